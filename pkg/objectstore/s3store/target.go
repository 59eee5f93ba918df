package s3store

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

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

var _ probe.Setup = (*target)(nil)

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
	if opt.Lock != nil {
		opt.Lock = &Lock{Mode: opt.Lock.Mode, For: probe.LockFor, Covers: func(key string) bool {
			return strings.HasPrefix(path.Base(key), probe.LockedName)
		}}
	}
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

func (t *target) Wanted() probe.Wanted {
	w := probe.Wanted{Lock: t.opt.Lock != nil}
	switch e := t.opt.Encryption; {
	case e == nil:
	case len(e.CustomerKey) > 0:
		w.Encryption = "SSE-C"
	case e.KMS || e.KMSKeyID != "":
		w.Encryption = "SSE-KMS"
	default:
		w.Encryption = "SSE-S3"
	}
	return w
}

// Bucket asks for versioning and object lock. Servers that know neither have neither; what
// the credentials may not see is told as unknown.
func (t *target) Bucket(ctx context.Context) (probe.Bucket, error) {
	var b probe.Bucket
	var versioning minio.BucketVersioningConfiguration
	err := t.last.try(ctx, func() (err error) {
		versioning, err = t.last.core.GetBucketVersioning(ctx, t.opt.Bucket)
		return err
	})
	if err != nil {
		return unknown(b, err)
	}
	b.Versioned = versioning.Enabled()
	var on string
	var mode *minio.RetentionMode
	var validity *uint
	var unit *minio.ValidityUnit
	err = t.last.try(ctx, func() (err error) {
		on, mode, validity, unit, err = t.last.core.GetObjectLockConfig(ctx, t.opt.Bucket)
		return err
	})
	if errors.Is(err, objectstore.ErrNoLock) || errors.Is(err, objectstore.ErrNotFound) {
		return b, nil
	}
	if err != nil {
		return unknown(b, err)
	}
	b.Locks = on == "Enabled"
	if mode == nil || validity == nil || unit == nil {
		return b, nil
	}
	b.Default, b.DefaultMode = time.Duration(*validity)*24*time.Hour, objectstore.RetentionMode(strings.ToUpper(string(*mode)[:1])+strings.ToLower(string(*mode)[1:]))
	if *unit == minio.Years {
		b.Default *= 365
	}
	return b, nil
}

func unknown(b probe.Bucket, err error) (probe.Bucket, error) {
	switch {
	case errors.Is(err, objectstore.ErrNotSupported):
		return b, nil
	case errors.Is(err, objectstore.ErrDenied):
		b.Unknown = err
		return b, nil
	default:
		return b, err
	}
}

func (t *target) EncryptedAs(ctx context.Context, key string) (string, error) {
	return t.last.encryptedAs(ctx, key)
}
