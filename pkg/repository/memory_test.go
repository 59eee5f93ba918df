package repository_test

import (
	"encoding/binary"
	"iter"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vmstate/vmstate/pkg/repository"
)

// peak is the most heap that was seen in use.
type peak struct{ bytes atomic.Uint64 }

func (p *peak) sample() {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	for {
		old := p.bytes.Load()
		if now := s[0].Value.Uint64(); now <= old || p.bytes.CompareAndSwap(old, now) {
			return
		}
	}
}

const (
	hugeSize   = 16 << 40
	hugeStride = 16 << 30
	hugePiece  = 64 << 10
)

// hugeDisk has a piece of data every 16 GiB, which tells where it is.
type hugeDisk struct {
	peak    *peak
	version uint64
}

func (d hugeDisk) ReadAt(b []byte, off int64) (int, error) {
	d.peak.sample()
	clear(b)
	for at := (off + hugeStride - 1) / hugeStride * hugeStride; at < off+int64(len(b)); at += hugeStride {
		binary.BigEndian.PutUint64(b[at-off:], uint64(at)+d.version+1)
	}
	return len(b), nil
}

func (d hugeDisk) volume() repository.BlockVolume {
	return repository.BlockVolume{Name: "huge", Size: hugeSize, Source: d, Extents: func(yield func(repository.Extent, error) bool) {
		for at := int64(0); at < hugeSize; at += hugeStride {
			if !yield(repository.Extent{Offset: at, Length: hugePiece}, nil) {
				return
			}
		}
	}}
}

// hugeTarget counts the pieces that come back right.
type hugeTarget struct {
	peak    *peak
	version uint64
	right   atomic.Int64
	wrong   atomic.Int64
}

func (h *hugeTarget) WriteAt(b []byte, off int64) (int, error) {
	h.peak.sample()
	if off%hugeStride != 0 || binary.BigEndian.Uint64(b) != uint64(off)+h.version+1 {
		h.wrong.Add(1)
	}
	h.right.Add(1)
	return len(b), nil
}

func (h *hugeTarget) ReadAt(b []byte, off int64) (int, error) {
	return hugeDisk{h.peak, h.version}.ReadAt(b, off)
}
func (h *hugeTarget) Zero(int64, int64) error { return nil }
func (h *hugeTarget) Sync() error             { return nil }

// hugeOld holds the first version and takes the second one, piece by piece.
type hugeOld struct {
	hugeDisk
	mu    sync.Mutex
	taken map[int64]bool
}

func (h *hugeOld) WriteAt(b []byte, off int64) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken[off] = true
	return len(b), nil
}

func (h *hugeOld) ReadAt(b []byte, off int64) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	version := uint64(0)
	if h.taken[off] {
		version = 1
	}
	return hugeDisk{h.peak, version}.ReadAt(b, off)
}

func (h *hugeOld) Extents(from, to int64) iter.Seq2[repository.Extent, error] {
	return func(yield func(repository.Extent, error) bool) {
		for e := range h.volume().Extents {
			a, b := max(from, e.Offset), min(to, e.Offset+e.Length)
			if a < b && !yield(repository.Extent{Offset: a, Length: b - a}, nil) {
				return
			}
		}
	}
}

func (h *hugeOld) Zero(int64, int64) error { return nil }
func (h *hugeOld) Sync() error             { return nil }

// TestHugeDisk: a disk of 16 TiB with data all over takes no more memory than a small
// one, to back up, to back up again, to restore and to restore in place. Every piece lies under another
// inner node, so the index has one for each.
func TestHugeDisk(t *testing.T) {
	runtime.GC() // what tests before this one have left is not counted
	w := newWorld(t, nil)
	p := &peak{}
	var last *repository.Result
	for version := range uint64(2) {
		b, err := w.writer.Begin(t.Context(), w.spec([]string{"one", "two"}[version], last))
		must(t, err)
		defer b.Close()
		_, err = b.AddBlock(t.Context(), hugeDisk{p, version}.volume())
		must(t, err)
		r, err := b.Commit(t.Context(), nil)
		must(t, err)
		last = &r
	}
	reader := w.reader()
	c, err := reader.Commit(t.Context(), last.CommitRef)
	must(t, err)
	must(t, reader.Check(t.Context(), c))
	target := &hugeTarget{peak: p, version: 1}
	_, err = reader.RestoreBlock(t.Context(), c, repository.RestoreSpec{Volume: "huge", Target: target, Fresh: true})
	must(t, err)
	old := &hugeOld{hugeDisk: hugeDisk{p, 0}, taken: map[int64]bool{}}
	out, err := reader.RestoreBlock(t.Context(), c, repository.RestoreSpec{Volume: "huge", Target: old, InPlace: true})
	must(t, err)
	if changed := int64(hugeSize / hugeStride * hugePiece); out.DataBytes != changed || out.KeptBytes != hugeSize-changed {
		t.Errorf("in place, %d bytes were written and %d kept", out.DataBytes, out.KeptBytes)
	}
	if target.right.Load() != hugeSize/hugeStride || target.wrong.Load() > 0 {
		t.Errorf("%d pieces came back, %d of them wrong; %d were stored", target.right.Load(), target.wrong.Load(), hugeSize/hugeStride)
	}
	if limit := uint64(192 << 20); p.bytes.Load() > limit {
		t.Errorf("%d bytes of heap were in use, more than %d", p.bytes.Load(), limit)
	}
	t.Logf("%d MiB of heap at most", p.bytes.Load()>>20)
}
