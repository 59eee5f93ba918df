package repository_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// fullStore keeps the packs of runs outside the heap: of data packs their size alone, and
// index packs in a file. It tells version ids as long as those of real buckets.
type fullStore struct {
	objectstore.Store
	peak *peak
	file *os.File

	mu    sync.Mutex
	index map[string]place
	sizes map[string]int64 // of data packs that are not repository.FullPackBytes long
	end   int64
}

type place struct{ offset, length int64 }

func newFullStore(t *testing.T, p *peak) *fullStore {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "packs"))
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return &fullStore{Store: memstore.New(), peak: p, file: f, index: map[string]place{}, sizes: map[string]int64{}}
}

func (s *fullStore) Create(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	o, err := layout.ParseRunObject(key)
	if err != nil || o.Kind == layout.KindDataKey {
		return s.Store.Create(ctx, key, body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info := objectstore.Info{Key: key, Size: int64(len(body)), CRC32C: objectstore.Checksum(body)}
	info.VersionID = fmt.Sprintf("%08x-75c2-4b1f-9d64-%012x", info.CRC32C, o.Number)
	if o.Kind == layout.KindDataPack {
		if info.Size != repository.FullPackBytes {
			s.sizes[key] = info.Size
		}
		return info, nil
	}
	s.peak.sample()
	s.index[key] = place{s.end, info.Size}
	s.end += info.Size
	_, err = s.file.WriteAt(body, s.index[key].offset)
	return info, err
}

func (s *fullStore) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	o, err := layout.ParseRunObject(key)
	if err != nil || o.Kind == layout.KindDataKey {
		return s.Store.Stat(ctx, key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info := objectstore.Info{Key: key, Size: repository.FullPackBytes}
	if size, ok := s.sizes[key]; ok {
		info.Size = size
	}
	if o.Kind == layout.KindIndexPack {
		info.Size = s.index[key].length
	}
	if o.Number%4096 == 0 {
		s.peak.sample()
	}
	return info, nil
}

func (s *fullStore) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	s.mu.Lock()
	at, ok := s.index[key]
	s.mu.Unlock()
	if !ok {
		return s.Store.Open(ctx, key, offset, length)
	}
	s.peak.sample()
	if length < 0 {
		length = at.length - offset
	}
	return io.NopCloser(io.NewSectionReader(s.file, at.offset+offset, length)), nil
}

// fullDisk has something new in one unit of each leaf that has data.
type fullDisk struct {
	peak   *peak
	leaves int64
}

func (d fullDisk) changed() iter.Seq2[repository.Extent, error] {
	return func(yield func(repository.Extent, error) bool) {
		for i := range d.leaves {
			if !yield(repository.Extent{Offset: i * repository.FullStride, Length: 64 << 10}, nil) {
				return
			}
		}
	}
}

func (d fullDisk) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	binary.BigEndian.PutUint64(b, uint64(off)+1)
	return len(b), nil
}

// TestFullTables: a disk that is full, with a pack for each 32 MiB of it, takes no more
// memory than a small one, to back up first, to back up again with something new in all
// of its packs, and to check. Nothing of its data is stored, but all of its tables are.
// VMSTATE_TABLES is how many TiB it has; 16 take half a minute.
func TestFullTables(t *testing.T) {
	full := int64(1 << 40)
	if n, err := strconv.ParseInt(os.Getenv("VMSTATE_TABLES"), 10, 16); err == nil {
		full *= n
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(176 << 20)) // that of cmd/mover
	runtime.GC()                                                // what tests before this one have left is not counted
	p := &peak{}
	w := newWorld(t, newFullStore(t, p))
	tell := func(what string) {
		p.sample()
		if limit := uint64(192 << 20); p.bytes.Load() > limit {
			t.Errorf("%s: %d MiB of heap were in use, more than %d", what, p.bytes.Load()>>20, limit>>20)
		}
		t.Logf("%s: %d MiB of heap at most", what, p.bytes.Load()>>20)
		p.bytes.Store(0)
	}
	b, err := w.writer.Begin(t.Context(), w.spec("one", nil))
	must(t, err)
	defer b.Close()
	leaves := full / (32 << 20) / repository.FullPacks
	size, err := b.AddFull(t.Context(), "full", leaves)
	must(t, err)
	one, err := b.Commit(t.Context(), nil)
	must(t, err)
	tell("first backup")

	b, err = w.writer.Begin(t.Context(), w.spec("two", &one))
	must(t, err)
	defer b.Close()
	disk := fullDisk{p, leaves}
	_, err = b.AddBlock(t.Context(), repository.BlockVolume{
		Name: "full", Size: size, Source: disk,
		Changes: &repository.Changes{Since: one.CommitRef, Ranges: disk.changed()},
	})
	must(t, err)
	two, err := b.Commit(t.Context(), nil)
	must(t, err)
	tell("second backup")

	c, err := w.writer.Commit(t.Context(), two.CommitRef)
	must(t, err)
	must(t, w.writer.Check(t.Context(), c))
	tell("check")
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range bytes.Lines(status) {
			if strings.HasPrefix(string(line), "VmHWM") {
				t.Logf("%s", line)
			}
		}
	}
}

// TestManyPacks: what is done for the sake of memory where a run has very many packs gives
// the same backups.
func TestManyPacks(t *testing.T) {
	mem := memstore.New()
	faults := faultstore.New(mem, faultstore.Faults{})
	w := newWorld(t, faults)
	in := input{disks: [][]byte{noise(8, 20<<20), noise(9, 3<<20)}}
	cramped := func(spec repository.BackupSpec, in input) (repository.Result, error) {
		b, err := w.writer.Begin(t.Context(), spec)
		must(t, err)
		defer b.Close()
		b.Cramp()
		return run(t.Context(), b, in)
	}
	killAfter(faults, "1", 12)
	if _, err := cramped(careful(w.spec("one", nil)), in); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	faults.Set(faultstore.Faults{})
	one, err := cramped(careful(w.spec("one", nil)), in)
	must(t, err)
	w.mustRestore(one.CommitRef, in)
	c, err := w.writer.Commit(t.Context(), one.CommitRef)
	must(t, err)
	record, err := w.writer.Record(t.Context(), c)
	must(t, err)
	if len(record.Tail) < 3 {
		t.Errorf("the tables are in %d index packs", len(record.Tail))
	}
	last := one
	for i, name := range []string{"two", "three", "four"} {
		in = in.clone()
		copy(in.disks[0][i*(5<<20)+1000:], noise(uint64(20+i), 3<<20))
		last, err = cramped(careful(w.spec(name, &last)), in)
		must(t, err)
		w.mustRestore(last.CommitRef, in)
	}
	w.mustRestore(one.CommitRef, input{disks: [][]byte{noise(8, 20<<20), noise(9, 3<<20)}})
}
