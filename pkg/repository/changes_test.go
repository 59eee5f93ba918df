package repository_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
	"github.com/vmstate/vmstate/pkg/repository"
)

const (
	unit = 16 << 10
	leaf = 64 * unit
)

// counting counts the bytes that are read.
type counting struct {
	io.ReaderAt
	read atomic.Int64
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.read.Add(int64(len(p)))
	return c.ReaderAt.ReadAt(p, off)
}

func sequence(list ...repository.Extent) iter.Seq2[repository.Extent, error] {
	return func(yield func(repository.Extent, error) bool) {
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// hinted is a disk and what the storage tells of it.
type hinted struct {
	disk      []byte
	since     *repository.Result
	changed   []repository.Extent
	allocated []repository.Extent // nil tells nothing
	audit     bool
	sector    int
}

func (v hinted) volume() (repository.BlockVolume, *counting) {
	source := &counting{ReaderAt: bytes.NewReader(v.disk)}
	out := repository.BlockVolume{
		Name: "diska", Role: "Disk", Mode: "Block", Size: int64(len(v.disk)), LogicalBlockSize: v.sector, Source: source,
	}
	if v.allocated != nil {
		out.Extents, out.ExtentsTold = sequence(v.allocated...), true
	}
	if v.since != nil {
		out.Changes = &repository.Changes{Since: v.since.CommitRef, Ranges: sequence(v.changed...), Audit: v.audit}
	}
	return out, source
}

// backupTold backs one disk up and restores it; it returns what was read.
func (w *world) backupTold(name string, parent *repository.Result, v hinted) (repository.Result, int64) {
	w.t.Helper()
	volume, source := v.volume()
	r, err := w.tryTold(name, parent, volume)
	must(w.t, err)
	return r, source.read.Load()
}

func (w *world) tryTold(name string, parent *repository.Result, v repository.BlockVolume) (repository.Result, error) {
	b, err := w.writer.Begin(w.t.Context(), w.spec(name, parent))
	if err != nil {
		return repository.Result{}, err
	}
	defer b.Close()
	if _, err := b.AddBlock(w.t.Context(), v); err != nil {
		return repository.Result{}, err
	}
	return b.Commit(w.t.Context(), []byte("{}"))
}

// rework changes a disk and returns the ranges that a storage with blocks of that size
// would tell of, and what is allocated.
func rework(rng *rand.Rand, disk []byte, block int) (changed, allocated []repository.Extent) {
	blocks := (len(disk) + block - 1) / block
	dirty := make([]bool, blocks)
	for range 1 + rng.IntN(12) {
		from := rng.IntN(len(disk))
		part := disk[from:min(len(disk), from+1+rng.IntN(3*unit))]
		if rng.IntN(4) == 0 {
			from = from / block * block
			part = disk[from:min(len(disk), from+max(block, rng.IntN(3*leaf/2)/block*block))]
			clear(part) // discarded
		} else {
			for i := range part {
				part[i] = byte(rng.Uint32())
			}
		}
		for i := from / block; i <= (from+len(part)-1)/block; i++ {
			dirty[i] = true
		}
	}
	for i := range dirty {
		e := repository.Extent{Offset: int64(i * block), Length: int64(min(block, len(disk)-i*block))}
		if dirty[i] {
			changed = append(changed, e)
		}
		if slices.ContainsFunc(disk[e.Offset:e.Offset+e.Length], func(b byte) bool { return b != 0 }) {
			allocated = append(allocated, e)
		}
	}
	return changed, allocated
}

// A chain of backups of a disk that is changed, discarded and grown, by what the storage
// tells: each restores to what the disk was, its books are right, and no more is read
// than was told of.
func TestChangesChain(t *testing.T) {
	for _, block := range []int{4096, 3 * 4096, 1 << 20} {
		t.Run(fmt.Sprint(block), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(7, uint64(block)))
			w := newWorld(t, nil)
			disk := make([]byte, 3*leaf+3*unit+500)
			_, allocated := rework(rng, disk, block)
			last, _ := w.backupTold("b0", nil, hinted{disk: disk, allocated: allocated})
			w.mustRestore(last.CommitRef, input{disks: [][]byte{disk}})
			for i := range 6 {
				was := len(disk)
				if i%4 == 2 {
					disk = append(disk, storetest.Bytes(uint64(i), rng.IntN(2*leaf))...) // and nobody tells
				}
				v := hinted{disk: disk, since: &last}
				v.changed, v.allocated = rework(rng, disk, block)
				limit := int64(len(disk) - was/unit*unit)
				if len(disk) == was {
					limit = 0
				}
				for _, e := range v.changed {
					limit += e.Length + 2*unit
				}
				if i%2 == 0 {
					v.allocated = nil
				}
				next, read := w.backupTold(fmt.Sprint("b", i+1), &last, v)
				w.mustRestore(next.CommitRef, input{disks: [][]byte{disk}})
				if next.Volumes[0].Reading.Way != repository.WayChanged || read > limit {
					t.Errorf("backup %d: read %d of at most %d bytes, %+v", i+1, read, limit, next.Volumes[0].Reading)
				}
				all, err := w.try(w.spec(fmt.Sprint("all", i), &last), input{disks: [][]byte{disk}})
				must(t, err)
				if a, b := all.Volumes[0], next.Volumes[0]; a.Digest != b.Digest || a.UsedBytes != b.UsedBytes {
					t.Errorf("backup %d: %s of %d bytes used; when all is read, %s of %d", i+1, b.Digest, b.UsedBytes, a.Digest, a.UsedBytes)
				}
				last = next
			}
		})
	}
}

// How a volume is read, and what the record says of it.
func TestReading(t *testing.T) {
	disk := make([]byte, 3*leaf)
	for i := range disk[:2*leaf] {
		disk[i] = byte(i>>8) + 1
	}
	changed := bytes.Clone(disk)
	copy(changed[leaf+5*unit:], "changed")
	one := []repository.Extent{{Offset: leaf + 5*unit, Length: 512}}
	for name, tc := range map[string]struct {
		reason string
		change func(*hinted, *repository.Result)
		parent bool
		want   repository.Reading
		read   int64
	}{
		"Changed": {
			reason: "only the unit that was told of is read", parent: true,
			want: repository.Reading{Way: repository.WayChanged, UnreadBytes: 2*leaf - unit, FullySequence: 1}, read: unit,
		},
		"NothingChanged": {
			reason: "an unchanged disk is not read at all", parent: true,
			change: func(v *hinted, _ *repository.Result) { v.disk, v.changed = disk, nil },
			want:   repository.Reading{Way: repository.WayChanged, UnreadBytes: 2 * leaf, FullySequence: 1},
		},
		"Allocated": {
			reason: "what is not allocated is zero, and not read",
			change: func(v *hinted, _ *repository.Result) {
				v.since, v.allocated = nil, []repository.Extent{{Offset: 0, Length: 2 * leaf}}
			},
			want: repository.Reading{Way: repository.WayAllocated}, read: 2 * leaf,
		},
		"AllocatedOnParent": {
			reason: "the parent was read in full, this one was not", parent: true,
			change: func(v *hinted, _ *repository.Result) {
				v.since, v.allocated = nil, []repository.Extent{{Offset: 0, Length: 2 * leaf}}
			},
			want: repository.Reading{Way: repository.WayAllocated, FullySequence: 1}, read: 2 * leaf,
		},
		"Audit": {
			reason: "all is read, and nothing has changed that was not told", parent: true,
			change: func(v *hinted, _ *repository.Result) {
				v.audit, v.allocated = true, []repository.Extent{{Offset: 0, Length: unit}}
			},
			want: repository.Reading{Way: repository.WayAudited, FullySequence: 2}, read: 3 * leaf,
		},
		"AuditFinds": {
			reason: "a change that was not told is found, and is in the backup", parent: true,
			change: func(v *hinted, _ *repository.Result) { v.audit, v.changed = true, nil },
			want: repository.Reading{
				Way: repository.WayAudited, FullySequence: 2, UntoldBytes: unit, UntoldAt: leaf + 5*unit,
			}, read: 3 * leaf,
		},
		"AuditFindsData": {
			reason: "data where there was none is a change as well", parent: true,
			change: func(v *hinted, _ *repository.Result) {
				v.audit, v.disk = true, append(bytes.Clone(changed[:2*leaf+unit]), append([]byte("data"), changed[2*leaf+unit+4:]...)...)
			},
			want: repository.Reading{
				Way: repository.WayAudited, FullySequence: 2, UntoldBytes: unit, UntoldAt: 2*leaf + unit,
			}, read: 3 * leaf,
		},
		"AuditFindsZeros": {
			reason: "zeros where there was data are a change as well", parent: true,
			change: func(v *hinted, _ *repository.Result) {
				v.audit = true
				v.disk = bytes.Clone(changed)
				clear(v.disk[:leaf])
			},
			want: repository.Reading{Way: repository.WayAudited, FullySequence: 2, UntoldBytes: leaf}, read: 3 * leaf,
		},
		"NoParent": {
			reason: "without a parent there is nothing to take over",
			want:   repository.Reading{Way: repository.WayAll, FullySequence: 1, Why: "nothing is taken over from an earlier backup"}, read: 3 * leaf,
		},
		"OtherParent": {
			reason: "changes since another backup say nothing", parent: true,
			change: func(v *hinted, r *repository.Result) {
				v.since = &repository.Result{CommitRef: repository.CommitRef{Key: r.Key, Digest: "00"}}
			},
			want: repository.Reading{Way: repository.WayAll, FullySequence: 2, Why: "the changes that the storage tells of are not those since the parent"}, read: 3 * leaf,
		},
		"Shrunk": {
			reason: "a smaller volume is read in full", parent: true,
			change: func(v *hinted, _ *repository.Result) { v.disk = v.disk[:2*leaf] },
			want:   repository.Reading{Way: repository.WayAll, FullySequence: 2, Why: "the volume has 2097152 bytes, and had 3145728 in the parent"}, read: 2 * leaf,
		},
		"OtherSectors": {
			reason: "a volume with other sectors is another volume", parent: true,
			change: func(v *hinted, _ *repository.Result) { v.sector = 4096 },
			want:   repository.Reading{Way: repository.WayAll, FullySequence: 2, Why: "the volume has sectors of 4096 bytes, and had 512 in the parent"}, read: 3 * leaf,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			first, _ := w.backupTold("first", nil, hinted{disk: disk, sector: 512})
			v := hinted{disk: changed, since: &first, changed: one, sector: 512}
			if tc.change != nil {
				tc.change(&v, &first)
			}
			parent := &first
			if !tc.parent {
				w, parent = newWorld(t, nil), nil
			}
			got, read := w.backupTold("second", parent, v)
			tc.want.FullyAt = w.spec("", nil).Created.UTC() // of all backups here
			if diff := cmp.Diff(tc.want, got.Volumes[0].Reading); diff != "" || read != tc.read {
				t.Errorf("%s: read %d bytes, want %d; reading (-want +got):\n%s", tc.reason, read, tc.read, diff)
			}
			w.mustRestore(got.CommitRef, input{disks: [][]byte{v.disk}})
			volume, _ := v.volume()
			again, err := w.try(w.spec("second", parent), input{})
			if err != nil || !again.Found || !cmp.Equal(again.Volumes, got.Volumes) {
				t.Errorf("a rerun says %+v, %v; volume %+v", again, err, volume.Name)
			}
		})
	}
}

// What the storage tells must make sense; if it does not, there is no backup.
func TestChangesRefused(t *testing.T) {
	disk := bytes.Repeat([]byte("data"), 2*leaf/4)
	failed := errors.New("stream broke")
	for name, ranges := range map[string]iter.Seq2[repository.Extent, error]{
		"OutOfOrder": sequence(repository.Extent{Offset: leaf, Length: 512}, repository.Extent{Offset: 0, Length: 512}),
		"Overlap":    sequence(repository.Extent{Offset: 0, Length: 1024}, repository.Extent{Offset: 512, Length: 1024}),
		"Negative":   sequence(repository.Extent{Offset: 0, Length: -1}),
		"BehindEnd":  sequence(repository.Extent{Offset: 2*leaf + 1, Length: 1}),
		"Broken": func(yield func(repository.Extent, error) bool) {
			_ = yield(repository.Extent{Offset: 0, Length: 512}, nil) && yield(repository.Extent{}, failed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			first, _ := w.backupTold("first", nil, hinted{disk: disk})
			for what, change := range map[string]func(*repository.BlockVolume){
				"changed":   func(v *repository.BlockVolume) { v.Changes.Ranges = ranges },
				"audited":   func(v *repository.BlockVolume) { v.Changes.Ranges, v.Changes.Audit = ranges, true },
				"allocated": func(v *repository.BlockVolume) { v.Extents, v.ExtentsTold = ranges, true },
			} {
				v, _ := hinted{disk: disk, since: &first, changed: []repository.Extent{{Length: 2 * leaf}}}.volume()
				change(&v)
				if _, err := w.tryTold(what, &first, v); !errors.Is(err, repository.ErrSource) {
					t.Errorf("%s: got %v, want ErrSource", what, err)
				}
			}
		})
	}
}

// What the parent lacks and the storage says has not changed is nowhere else: the run ends with ErrParent, or what it
// made tells of the damage when it is restored. It is never taken for zeros.
func TestChangesOnBrokenParent(t *testing.T) {
	first, second := chainOfTwo(5 << 18)
	w := newWorld(t, nil)
	one := w.backup("one", nil, first)
	objects := contents(t, w.store)
	parents, runs := 0, 0
	for key := range objects {
		if kindOf(key) != "index pack" {
			continue
		}
		for i, m := range mutations(key, objects) {
			w.mutate(key, m, objects)
			var err error
			w.writer, err = repository.OpenWithKeys(t.Context(), w.store, w.keys)
			must(t, err)
			v, _ := hinted{disk: second.disks[0], since: one, changed: []repository.Extent{{Length: unit}}}.volume()
			v.LogicalBlockSize = 512
			runs++
			two, err := w.tryTold(fmt.Sprint("two", i, key[len(key)-8:]), one, v)
			if errors.Is(err, repository.ErrParent) {
				parents++
				continue
			}
			must(t, err)
			got, err := restoreAll(t.Context(), w.reader(), two.CommitRef)
			if err == nil && !bytes.Equal(got.disks[0][unit:], first.disks[0][unit:len(got.disks[0])]) {
				t.Errorf("%s of %q: a backup that restores to something else", m.name, key)
			}
		}
	}
	if parents == 0 || runs == parents {
		t.Errorf("%d of %d runs ended with ErrParent: this test looks at nothing", parents, runs)
	}
}

// What is told as damaged is read again, whatever the storage says.
func TestChangesAndDamage(t *testing.T) {
	w := newWorld(t, nil)
	disk := noise(21, 4<<20)
	one, _ := w.backupTold("one", nil, hinted{disk: disk})
	for key := range contents(t, w.store) {
		if kindOf(key) != "data pack" {
			continue
		}
		must(t, w.store.Delete(t.Context(), key))
		spec := w.spec("two", &one)
		spec.Damaged = []string{key}
		b, err := w.writer.Begin(t.Context(), spec)
		must(t, err)
		defer b.Close()
		v, _ := hinted{disk: disk, since: &one}.volume()
		got, err := b.AddBlock(t.Context(), v)
		must(t, err)
		if got.Reading.Way != repository.WayAll || got.Reading.Why != "what is damaged in the store is read and stored again" {
			t.Errorf("read %+v", got.Reading)
		}
		two, err := b.Commit(t.Context(), nil)
		must(t, err)
		w.mustRestore(two.CommitRef, input{disks: [][]byte{disk}})
		return
	}
}
