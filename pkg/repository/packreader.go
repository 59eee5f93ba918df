package repository

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/pack"
)

// verifyMemory bounds the packs that are in memory at once: three of 32 MiB. A GMAC
// needs the whole pack.
const verifyMemory = 104 << 20

// packReader reads whole packs, several at once.
type packReader struct {
	store  objectstore.Store
	memory *semaphore.Weighted
	mu     sync.Mutex
	free   [][]byte
}

func newPackReader(s objectstore.Store) *packReader {
	return &packReader{store: s, memory: semaphore.NewWeighted(verifyMemory)}
}

// damage is what is wrong with an object, in one word.
type damage struct{ why string }

func (d damage) Error() string { return "pack is " + d.why }

// check reads a pack and compares it with its entry, again if it differs: what was bent
// on its way is not damage. A damage is what is wrong with it; any other error is one of
// the store. It returns how many bytes were read.
func (p *packReader) check(ctx context.Context, key string, want index.Pack, t *pack.Tagger) (int64, error) {
	if want.Size > objectstore.MaxObjectBytes {
		return 0, damage{"unreadable"}
	}
	weight := min(want.Size, verifyMemory)
	if err := p.memory.Acquire(ctx, weight); err != nil {
		return 0, err
	}
	defer p.memory.Release(weight)
	buffer := p.buffer(int(want.Size))
	defer p.release(buffer)
	n, err := p.try(ctx, key, buffer, want, t)
	if _, ok := errors.AsType[damage](err); ok && n > 0 {
		n, err = p.try(ctx, key, buffer, want, t)
	}
	return n, err
}

func (p *packReader) try(ctx context.Context, key string, buffer []byte, want index.Pack, t *pack.Tagger) (int64, error) {
	n, err := p.read(ctx, key, buffer)
	switch {
	case errors.Is(err, ErrMissing):
		return n, damage{"missing"}
	case errors.Is(err, ErrDamaged):
		return n, damage{"cut"}
	case err != nil:
		return n, fmt.Errorf("read pack %q: %w", key, err)
	}
	return n, compare(buffer, int(n), want, t)
}

// compare tells whether what was read is the pack.
func compare(buffer []byte, n int, want index.Pack, t *pack.Tagger) error {
	switch {
	case int64(n) < want.Size:
		return damage{"cut"}
	case int64(n) > want.Size:
		return damage{"grown"}
	case objectstore.Checksum(buffer[:n]) != want.CRC32C:
		return damage{"altered"}
	case t.Tag(want.Kind, want.Origin, want.Number, buffer[:n]) != want.Tag:
		return damage{"altered"}
	default:
		return nil
	}
}

// read fills the buffer, which has room for one byte more than the pack should have.
func (p *packReader) read(ctx context.Context, key string, buffer []byte) (int64, error) {
	body, err := p.store.Open(ctx, key, 0, -1)
	if err != nil {
		return 0, readError(err)
	}
	defer body.Close()
	n, err := io.ReadFull(body, buffer)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return int64(n), readError(err)
}

// buffer returns memory for a pack of that size and a byte more.
func (p *packReader) buffer(size int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, b := range p.free {
		if cap(b) > size {
			p.free[i] = p.free[len(p.free)-1]
			p.free = p.free[:len(p.free)-1]
			return b[:size+1]
		}
	}
	p.free = nil // too small for what comes now
	return make([]byte, size+1)
}

func (p *packReader) release(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, b)
}
