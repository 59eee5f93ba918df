package repository_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/repository"
)

// salvage brings back what it can of a disk, onto a target full of something else.
func (w *world) salvage(ref repository.CommitRef, volume repository.VolumeResult) ([]byte, repository.SalvageResult) {
	w.t.Helper()
	r := w.reader()
	c, err := r.Commit(w.t.Context(), ref)
	must(w.t, err)
	d := &target{data: bytes.Repeat([]byte{0xa5}, int(volume.Size))}
	out, err := r.Salvage(w.t.Context(), c, repository.RestoreSpec{Volume: volume.Name, Target: d})
	must(w.t, err)
	return d.data, out
}

// checkSalvaged: outside of the bad ranges all is as it was backed up, and nothing was
// written into them.
func checkSalvaged(t *testing.T, what string, want, got []byte, bad []repository.BadRange) {
	t.Helper()
	at := int64(0)
	for _, b := range append(bad, repository.BadRange{Offset: int64(len(want))}) {
		if b.Offset < at || b.Offset+b.Length > int64(len(want)) {
			t.Fatalf("%s: bad range %+v is out of order or behind the end", what, b)
		}
		if !bytes.Equal(got[at:b.Offset], want[at:b.Offset]) {
			t.Errorf("%s: %d to %d differ and are not told of", what, at, b.Offset)
		}
		at = b.Offset + b.Length
		if lost := got[b.Offset:at]; !bytes.Equal(lost, bytes.Repeat([]byte{0xa5}, len(lost))) {
			t.Errorf("%s: something was written to bad range %+v", what, b)
		}
	}
}

// TestSalvage: whatever object of a run is flipped, cut or gone, all that is still there
// comes back, and the rest is told, byte for byte. Where an object is gone, that is what
// the verification had named.
func TestSalvage(t *testing.T) {
	t.Parallel()
	first, second := chainOfTwo(5 << 18)
	w := newWorld(t, nil)
	one := w.backup("one", nil, first)
	two := w.backup("two", one, second)
	objects := contents(t, w.store)
	partly := 0
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if !strings.HasPrefix(key, "r/") {
			continue
		}
		body := objects[key]
		for _, m := range []mutation{{"flipped", flipped(body)}, {"cut", body[:len(body)*2/3]}, {"deleted", nil}} {
			w.mutate(key, m, objects)
			what := m.name + " " + key
			hurt := w.hurtBy(two.CommitRef)
			for i, v := range two.Volumes {
				if v.Kind != repository.KindBlock {
					continue
				}
				got, r := w.salvage(two.CommitRef, v)
				checkSalvaged(t, what, second.disks[i], got, r.Bad)
				if slices.Contains(hurt, v.Name) && len(r.Bad) == 0 && kindOf(key) != "index pack" {
					t.Errorf("%s: %s cannot be restored, and nothing of it is bad", what, v.Name)
				}
				if len(r.Bad) > 0 && r.BadBytes() < v.Size {
					partly++
				}
				for _, b := range r.Bad {
					if !strings.Contains(b.Why, key) {
						t.Errorf("%s: %+v does not name the object", what, b)
					}
				}
			}
		}
	}
	if partly < 3 {
		t.Errorf("%d times only a part was lost", partly)
	}
}

// TestSalvageFindsWhatVerifyNamed: what is told as hurt by a missing pack, without an
// identity, is what cannot be salvaged with one.
func TestSalvageFindsWhatVerifyNamed(t *testing.T) {
	first, second := chainOfTwo(5 << 18)
	w := newWorld(t, nil)
	one := w.backup("one", nil, first)
	two := w.backup("two", one, second)
	objects := contents(t, w.store)
	for _, key := range packsOf(objects) {
		if kindOf(key) != "data pack" {
			continue
		}
		w.mutate(key, mutation{"deleted", nil}, objects)
		for _, v := range w.verify(repository.VerifySpec{}).Backups {
			for _, hurt := range v.Volumes {
				at := slices.IndexFunc(two.Volumes, func(r repository.VolumeResult) bool { return r.Name == hurt.Name })
				if hurt.Kind != repository.KindBlock {
					continue
				}
				_, r := w.salvage(v.CommitRef, two.Volumes[at])
				var bad []repository.Extent
				for _, b := range r.Bad {
					bad = append(bad, repository.Extent{Offset: b.Offset, Length: b.Length})
				}
				if diff := cmp.Diff(hurt.Ranges, bad); diff != "" {
					t.Errorf("without %q, %s of %q (-verified +salvaged):\n%s", key, hurt.Name, v.Key, diff)
				}
			}
		}
	}
}

// TestSalvageOfUnreachable: a store that does not answer ends a salvage.
func TestSalvageOfUnreachable(t *testing.T) {
	w := newWorld(t, nil)
	in := input{disks: [][]byte{noise(31, 1<<20)}}
	one := w.backup("one", nil, in)
	w.store = faultstore.New(w.store, faultstore.Faults{Before: func(c faultstore.Call) error {
		if kindOf(c.Key) == "data pack" {
			return objectstore.ErrUnreachable
		}
		return nil
	}})
	r := w.reader()
	c, err := r.Commit(t.Context(), one.CommitRef)
	must(t, err)
	_, err = r.Salvage(t.Context(), c, repository.RestoreSpec{Volume: "diska", Target: &target{data: make([]byte, 1<<20)}})
	if !errors.Is(err, objectstore.ErrUnreachable) {
		t.Errorf("salvage: %v", err)
	}
}

// TestProve: with an identity only the frame that is damaged is told, not the whole pack.
func TestProve(t *testing.T) {
	w := newWorld(t, nil)
	in := input{disks: [][]byte{noise(41, 3<<20), noise(42, 1<<20)}, files: map[string]string{"tpm": "state"}}
	one := w.backup("one", nil, in)
	prove := func() repository.Verdict {
		t.Helper()
		r := w.reader()
		c, err := r.Commit(t.Context(), one.CommitRef)
		must(t, err)
		v, err := r.Prove(t.Context(), c, repository.ProveSpec{})
		must(t, err)
		return v
	}
	if v := prove(); v.Outcome != repository.OutcomeVerified || len(v.Volumes) > 0 {
		t.Errorf("sound: %+v", v)
	}
	objects := contents(t, w.store)
	keys := packsOf(objects)
	key := keys[slices.IndexFunc(keys, func(k string) bool { return kindOf(k) == "data pack" })]
	w.mutate(key, mutation{"flipped", flipped(objects[key])}, objects)
	v := prove()
	if v.Outcome != repository.OutcomeDamaged || len(v.Volumes) != 1 || !strings.Contains(v.Reason, key) {
		t.Fatalf("%q flipped: %+v", key, v)
	}
	if hurt := v.Volumes[0]; hurt.Name != "diska" || hurt.Bytes == 0 || hurt.Bytes > 1<<20 {
		t.Errorf("hurt is %+v, not one frame of diska", hurt)
	}
}
