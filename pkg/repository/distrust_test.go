package repository_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
)

// TestDamageIsSentAgain (FC-094, FC-095): whatever object of a run is flipped, cut or
// gone, the verification finds it, and the next backup that is told of it does not fail,
// sends no more than it must, and is whole; the one after that is small again.
func TestDamageIsSentAgain(t *testing.T) {
	t.Parallel()
	first, second := chainOfTwo(5 << 18)
	w := newWorld(t, nil)
	two := w.backup("two", w.backup("one", nil, first), second)
	third := second.clone()
	third.disks[0][77] ^= 1
	objects := contents(t, w.store)
	all, partly := int64(0), 0
	for key, body := range objects {
		kind := kindOf(key)
		if kind != "data pack" && kind != "index pack" && kind != "data key" {
			continue
		}
		for _, m := range []mutation{{"flipped", flipped(body)}, {"cut", body[:len(body)/2]}, {"deleted", nil}} {
			if kind == "data key" && m.name == "flipped" {
				continue // seen only with an identity
			}
			w.mutate(key, m, objects)
			found := w.verify(repository.VerifySpec{})
			w.writer = w.keyless()
			spec := w.spec("three", two)
			spec.Damaged = keysOf(found.Damaged)
			three, err := w.try(spec, third)
			if err != nil || three.Full {
				t.Errorf("%s %q: full %t, %v", m.name, key, three.Full, err)
				continue
			}
			w.mustRestore(three.CommitRef, third)
			again := w.verify(repository.VerifySpec{State: found.State})
			if got := outcomes(again)[three.Key]; got != repository.OutcomeVerified {
				t.Errorf("%s %q: the backup after is %s", m.name, key, got)
			}
			w.reachesNothingOf(three, found.Damaged)
			spec = w.spec("four", &three)
			spec.Damaged = keysOf(again.Damaged)
			four, err := w.try(spec, third)
			must(t, err)
			spec = w.spec("five", &four) // the one before may renew packs of which little is left
			spec.Damaged = keysOf(again.Damaged)
			five, err := w.try(spec, third)
			must(t, err)
			if n := sent(five); n != 0 {
				t.Errorf("%s %q: the third backup after sent %d bytes again", m.name, key, n)
			}
			all += sent(three)
			if sent(three) < int64(len(third.disks[0])) {
				partly++
			}
		}
	}
	if all == 0 || partly == 0 {
		t.Errorf("%d bytes were sent again, %d times less than all", all, partly)
	}
}

// reachesNothingOf removes all other backups, and looks whether damage is still seen.
func (w *world) reachesNothingOf(r repository.Result, damaged []repository.DamagedObject) {
	w.t.Helper()
	before := w.store
	objects := contents(w.t, before)
	for key := range objects {
		if kindOf(key) == "c" && key != r.Key {
			delete(objects, key)
		}
	}
	w.store = storeOf(w.t, objects)
	if left := w.verify(repository.VerifySpec{}).Damaged; len(left) > 0 {
		w.t.Errorf("%v is damaged, and the backup after reaches %v", damaged, left)
	}
	w.store = before
}

func flipped(body []byte) []byte {
	out := bytes.Clone(body)
	out[len(out)/3] ^= 4
	return out
}

func keysOf(list []repository.DamagedObject) []string {
	var out []string
	for _, d := range list {
		out = append(out, d.Key)
	}
	return out
}

func sent(r repository.Result) int64 {
	n := int64(0)
	for _, v := range r.Volumes {
		n += v.SentBytes
	}
	return n
}

// TestOnlyWhatIsDamagedIsSent: one pack of many is gone, and little more than it held is
// sent again. What nobody told of is found out when the index is read, and costs no full
// backup either.
func TestOnlyWhatIsDamagedIsSent(t *testing.T) {
	w := newWorld(t, nil)
	in := input{disks: [][]byte{noise(21, 8<<20)}}
	one := w.backup("one", nil, in)
	keys := slices.Sorted(slices.Values(packsOf(contents(t, w.store))))
	data := keys[slices.IndexFunc(keys, func(k string) bool { return kindOf(k) == "data pack" })]
	must(t, w.store.Delete(t.Context(), data))
	spec := w.spec("two", one)
	spec.Damaged = []string{data, "r/of/another/k1.age"}
	two, err := w.try(spec, in)
	must(t, err)
	if n := sent(two); n < 1<<19 || n > 3<<19 {
		t.Errorf("%d bytes were sent again, the pack held about 1 MiB", n)
	}
	w.mustRestore(two.CommitRef, in)
}

// TestLostCheckpoint: an index pack of an attempt is gone on which a later attempt has
// built. What only it had told of is sent again, whatever has changed meanwhile.
func TestLostCheckpoint(t *testing.T) {
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
	if n := len(takeAway(t, mem, func(key string) bool { return strings.HasSuffix(key, "/i1-000000") })); n != 1 {
		t.Fatalf("%d index packs were taken away", n)
	}
	faults.Set(faultstore.Faults{})
	in.disks[0][300] ^= 1
	one, err := w.try(spec, in)
	must(t, err)
	w.mustRestore(one.CommitRef, in)
}
