package s3store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/probe"
)

// probeTries is few: a probe is repeated as a whole.
const probeTries = 3

// target lets package probe ask a bucket.
type target struct {
	opt  Options
	last *Store
}

var _ probe.Target = (*target)(nil)

// Target is the bucket of opt for package probe; Checksum and Tries are not used.
func Target(opt Options) probe.Target {
	opt.Tries = probeTries
	return &target{opt: opt}
}

func (t *target) Modes() []string {
	var modes []string
	for _, c := range Checksums {
		modes = append(modes, string(c))
	}
	return modes
}

func (t *target) Open(mode string) (objectstore.Store, error) {
	return t.open(mode)
}

func (t *target) open(mode string) (*Store, error) {
	opt := t.opt
	opt.Checksum = Checksum(mode)
	s, err := New(opt)
	if err != nil {
		return nil, err
	}
	t.last = s
	return s, nil
}

func (t *target) Verifies(ctx context.Context, mode, key string) (bool, error) {
	s, err := t.open(mode)
	if err != nil {
		return false, err
	}
	body, other := []byte("the body that is sent"), []byte("the body that the checksum is of")
	sums := s.sums(other, objectstore.Checksum(other))
	put, err := s.put(ctx, key, body, sums)
	err = translate(err)
	switch {
	case s.checksum == None:
		return false, err
	case s.checksum == CRC32CTrailer: // made by the client from the body: no way to send a false one
		return put.ChecksumCRC32C != "", err
	case errors.Is(err, objectstore.ErrCorrupted):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("falsified body: %w", err)
	default:
		return false, nil
	}
}

func (t *target) Skew() (time.Duration, bool) {
	if t.last == nil {
		return 0, false
	}
	return t.last.clock.read()
}

func (t *target) Encrypted() bool {
	return strings.HasPrefix(t.opt.Endpoint, "https://")
}

func (t *target) Name() string {
	return fmt.Sprintf("bucket %q at %s", t.opt.Bucket, t.opt.Endpoint)
}
