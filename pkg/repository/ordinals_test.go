package repository_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/commit"
)

func noise(seed uint64, size int) []byte {
	r := rand.New(rand.NewPCG(seed, seed))
	d := make([]byte, size)
	for i := range d {
		d[i] = byte(r.Uint32())
	}
	return d
}

// killAfter ends the writer at the first data pack of an attempt over a number.
func killAfter(faults *faultstore.Store, attempt string, packs int) {
	faults.Set(faultstore.Faults{Before: func(c faultstore.Call) error {
		if c.Op != faultstore.Create || !strings.Contains(c.Key, "/p"+attempt+"-") {
			return nil
		}
		if packs--; packs < 0 {
			return errKilled
		}
		return nil
	}})
}

// takeAway removes the objects whose keys match, and returns them.
func takeAway(t *testing.T, s objectstore.Store, match func(key string) bool) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for key, body := range contents(t, s) {
		if match(key) {
			out[key] = body
			must(t, s.Delete(t.Context(), key))
		}
	}
	return out
}

// TestTwoAttemptsAtOnce: an attempt that still works when the next has begun gives its
// packs the same ordinals. Whoever comes third takes over one of the two.
func TestTwoAttemptsAtOnce(t *testing.T) {
	in := input{disks: [][]byte{noise(3, 16<<20)}}
	mem := memstore.New()
	faults := faultstore.New(mem, faultstore.Faults{})
	w := newWorld(t, faults)
	spec := careful(w.spec("one", nil))
	killAfter(faults, "1", 10)
	if _, err := w.try(spec, in); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	late := takeAway(t, mem, func(key string) bool {
		return strings.Contains(key, "/i1-") && !strings.HasSuffix(key, "/i1-000000") && !strings.HasSuffix(key, "/i1-000001")
	})
	if len(late) < 3 {
		t.Fatalf("%d index packs come late; the test wants more", len(late))
	}
	killAfter(faults, "2", 4)
	if _, err := w.try(spec, in); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	for key, body := range late {
		_, err := mem.Create(t.Context(), key, body)
		must(t, err)
	}
	faults.Set(faultstore.Faults{})
	one, err := w.try(spec, in)
	must(t, err)
	w.mustRestore(one.CommitRef, in)
	in = in.clone()
	in.disks[0][5<<20] ^= 1
	w.mustRestore(w.backup("two", &one, in).CommitRef, in)
}

// TestDamagedCheckpoint: attempts behind a damaged directory may build on what it held.
func TestDamagedCheckpoint(t *testing.T) {
	in := input{disks: [][]byte{noise(4, 12<<20)}}
	mem := memstore.New()
	faults := faultstore.New(mem, faultstore.Faults{})
	w := newWorld(t, faults)
	spec := careful(w.spec("one", nil))
	killAfter(faults, "1", 6)
	if _, err := w.try(spec, in); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	in.disks[0][100] ^= 1 // its leaf keeps units of attempt 1
	killAfter(faults, "2", 4)
	if _, err := w.try(spec, in); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	first := takeAway(t, mem, func(key string) bool { return strings.HasSuffix(key, "/i1-000000") })
	for key, body := range first {
		_, err := mem.Create(t.Context(), key, bytes.Repeat([]byte{1}, len(body)))
		must(t, err)
	}
	faults.Set(faultstore.Faults{})
	one, err := w.try(spec, in)
	must(t, err)
	w.mustRestore(one.CommitRef, in)
}

// TestOneOrdinalTwoPacks: the tables never lose a pack to another one.
func TestOneOrdinalTwoPacks(t *testing.T) {
	w := newWorld(t, nil)
	b, err := w.writer.Begin(t.Context(), careful(w.spec("one", nil)))
	must(t, err)
	defer b.Close()
	disk := noise(5, 3<<20)
	_, err = b.AddBlock(t.Context(), repository.BlockVolume{Name: "disk", Size: int64(len(disk)), Source: bytes.NewReader(disk)})
	must(t, err)
	b.Misplace()
	if _, err = b.Commit(t.Context(), nil); !errors.Is(err, repository.ErrDamaged) || errors.Is(err, repository.ErrParent) {
		t.Errorf("commit: %v", err)
	}
	if n := len(w.commits()); n != 0 {
		t.Errorf("%d commits", n)
	}
}

// TestCheckComparesNames: a pack is not listed because another one has its ordinal.
func TestCheckComparesNames(t *testing.T) {
	w := newWorld(t, nil)
	in := input{disks: [][]byte{noise(6, 2<<20)}}
	one := w.backup("one", nil, in)
	two := w.backup("two", one, input{disks: [][]byte{noise(7, 2<<20)}})
	first, err := w.writer.Commit(t.Context(), one.CommitRef)
	must(t, err)
	record, err := w.writer.Record(t.Context(), first)
	must(t, err)
	second, err := w.writer.Commit(t.Context(), two.CommitRef)
	must(t, err)
	cases := map[string]struct {
		change func(*commit.Record)
		want   error
	}{
		"AsItIs": {change: func(*commit.Record) {}},
		"OtherPack": {
			change: func(r *commit.Record) { r.Tail[0].Pack = record.Tail[0].Pack },
			want:   repository.ErrDamaged,
		},
		"OtherKeys": {change: func(r *commit.Record) { r.Keys = record.Keys }, want: repository.ErrDamaged},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := w.writer.CheckChanged(t.Context(), second, tc.change); !errors.Is(err, tc.want) {
				t.Errorf("check: %v, not %v", err, tc.want)
			}
		})
	}
}
