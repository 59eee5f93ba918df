package repository_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
)

// verifyWorld is three backups of one machine that share packs, a backup of it that
// shares nothing, and one of another machine.
func verifyWorld(t *testing.T) (*world, []*repository.Result) {
	t.Helper()
	w := newWorld(t, nil)
	first, second := chainOfTwo(5 << 18)
	third := second.clone()
	copy(third.disks[0][1<<19:], noise(5, 100_000))
	one := w.backup("one", nil, first)
	two := w.backup("two", one, second)
	three := w.backup("three", two, third)
	spec := w.spec("full", three)
	spec.Full = true
	full, err := w.try(spec, third)
	must(t, err)
	spec = w.spec("other", nil)
	spec.VM = repository.VM{Namespace: "prod", Name: "web", UID: "uid-web"}
	other, err := w.try(spec, first)
	must(t, err)
	return w, []*repository.Result{one, two, three, &full, &other}
}

// keyless is the store as the cluster that writes backups sees it.
func (w *world) keyless() *repository.Repository {
	w.t.Helper()
	r, err := repository.OpenWithKeys(w.t.Context(), w.store, w.keys)
	must(w.t, err)
	return r
}

func (w *world) verify(spec repository.VerifySpec) repository.VerifyResult {
	w.t.Helper()
	r, err := w.keyless().Verify(w.t.Context(), spec)
	must(w.t, err)
	return r
}

// outcomes are the verdicts by the key of the backup.
func outcomes(r repository.VerifyResult) map[string]repository.Outcome {
	out := map[string]repository.Outcome{}
	for _, v := range r.Backups {
		out[v.Key] = v.Outcome
	}
	return out
}

func packsOf(objects map[string][]byte) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if kind := kindOf(key); kind == "data pack" || kind == "index pack" {
			out = append(out, key)
		}
	}
	return out
}

// TestVerifyReadsOnce: all backups of a sound store are verified, without an identity,
// and every pack is read once, however many backups share it.
func TestVerifyReadsOnce(t *testing.T) {
	w, backups := verifyWorld(t)
	read := map[string]int{}
	objects := contents(t, w.store)
	w.store = faultstore.New(w.store, faultstore.Faults{Before: func(c faultstore.Call) error {
		if c.Op == faultstore.Open && c.Length < 0 {
			read[c.Key]++
		}
		return nil
	}})
	r := w.verify(repository.VerifySpec{})
	want := map[string]repository.Outcome{}
	for _, b := range backups {
		want[b.Key] = repository.OutcomeVerified
	}
	if diff := cmp.Diff(want, outcomes(r)); diff != "" || !r.RoundDone || len(r.Damaged) > 0 {
		t.Errorf("done %t, damaged %v, verdicts (-want +got):\n%s", r.RoundDone, r.Damaged, diff)
	}
	size := int64(0)
	for _, key := range packsOf(objects) {
		size += int64(len(objects[key]))
		if read[key] != 1 {
			t.Errorf("%q was read %d times", key, read[key])
		}
	}
	if r.Bytes != size {
		t.Errorf("%d bytes were read, the packs have %d", r.Bytes, size)
	}
}

// hurtBy restores every volume alone and tells which of them cannot be.
func (w *world) hurtBy(ref repository.CommitRef) []string {
	w.t.Helper()
	r := w.reader()
	c, err := r.Commit(w.t.Context(), ref)
	must(w.t, err)
	var out []string
	for _, v := range c.Volumes {
		if v.Kind == repository.KindTree {
			_, err = readFiles(w.t.Context(), r, c, v.Name)
		} else {
			_, err = r.RestoreBlock(w.t.Context(), c, repository.RestoreSpec{Volume: v.Name, Target: &target{data: make([]byte, v.Size)}})
		}
		if err != nil {
			out = append(out, v.Name)
		}
	}
	return out
}

// TestDamageNamesWhatIsHurt (FC-114): with any object gone, the verdicts name exactly the
// backups and volumes that cannot be restored, and the next round says the same.
func TestDamageNamesWhatIsHurt(t *testing.T) {
	t.Parallel()
	w, backups := verifyWorld(t)
	objects := contents(t, w.store)
	hurt := 0
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if !strings.HasPrefix(key, "r/") {
			continue
		}
		w.mutate(key, mutation{"deleted", nil}, objects)
		r := w.verify(repository.VerifySpec{})
		for _, b := range backups {
			var got []string
			at := slices.IndexFunc(r.Backups, func(v repository.Verdict) bool { return v.Key == b.Key })
			v := r.Backups[at]
			for _, volume := range v.Volumes {
				got = append(got, volume.Name)
			}
			want := w.hurtBy(b.CommitRef)
			hurt += len(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("without %q, volumes of %s hurt (-want +got):\n%s", key, b.Key, diff)
			}
			if damaged := v.Outcome == repository.OutcomeDamaged; damaged != (len(want) > 0) && !strings.Contains(v.Reason, "table") {
				t.Errorf("without %q: %s is %s: %s", key, b.Key, v.Outcome, v.Reason)
			}
			if v.Outcome == repository.OutcomeDamaged && !strings.Contains(v.Reason, key) {
				t.Errorf("without %q: reason is %q", key, v.Reason)
			}
		}
		again := w.verify(repository.VerifySpec{State: r.State})
		if diff := cmp.Diff(r.Backups, again.Backups); diff != "" {
			t.Errorf("without %q, a round later (-first +second):\n%s", key, diff)
		}
		w.store = storeOf(t, objects)
		if healed := w.verify(repository.VerifySpec{State: r.State}); len(healed.Damaged) > 0 {
			t.Errorf("%q is back, and still told as damaged", key)
		}
	}
	if hurt < 20 {
		t.Errorf("%d volumes were hurt; does the test take away what is needed?", hurt)
	}
}

// TestVerifyMutations: whatever is done to a pack is seen without an identity.
func TestVerifyMutations(t *testing.T) {
	t.Parallel()
	w, _ := verifyWorld(t)
	objects := contents(t, w.store)
	for _, key := range packsOf(objects) {
		for _, m := range mutations(key, objects) {
			w.mutate(key, m, objects)
			r := w.verify(repository.VerifySpec{})
			if len(r.Damaged) != 1 || r.Damaged[0].Key != key {
				t.Errorf("%s of %q: damaged are %v", m.name, key, r.Damaged)
			}
		}
	}
}

// TestUnreachableIsNotDamage: a store that does not answer says nothing about what it
// holds. The next try goes on from there.
func TestUnreachableIsNotDamage(t *testing.T) {
	w, _ := verifyWorld(t)
	whole := w.verify(repository.VerifySpec{})
	calls := 0
	inner := w.store
	for _, kind := range []error{objectstore.ErrUnreachable, objectstore.ErrDenied} {
		for n := 1; ; n++ {
			calls = 0
			w.store = inner
			r := w.keylessOver(faultstore.New(inner, faultstore.Faults{Before: func(faultstore.Call) error {
				if calls++; calls == n {
					return kind
				}
				return nil
			}}), &calls)
			got, err := r.Verify(t.Context(), repository.VerifySpec{})
			if err == nil {
				break
			}
			if !errors.Is(err, kind) || len(got.Damaged) > 0 || slices.ContainsFunc(got.Backups, func(v repository.Verdict) bool {
				return v.Outcome != repository.OutcomeVerified
			}) {
				t.Errorf("call %d: %v; damaged %v, backups %v", n, err, got.Damaged, got.Backups)
			}
			rest, err := w.keyless().Verify(t.Context(), repository.VerifySpec{State: got.State})
			if err != nil || got.Packs+rest.Packs < whole.Packs || got.Packs+rest.Packs > whole.Packs+32 {
				t.Errorf("call %d: %d packs were read, then %d, of %d: %v", n, got.Packs, rest.Packs, whole.Packs, err)
			}
		}
	}
}

// keylessOver opens a store without counting what opening takes.
func (w *world) keylessOver(s objectstore.Store, calls *int) *repository.Repository {
	w.t.Helper()
	*calls = -1 << 20
	r, err := repository.OpenWithKeys(w.t.Context(), s, w.keys)
	must(w.t, err)
	*calls = 0
	return r
}

// TestVerifyInParts: a round in parts, with backups made and removed between them, reads
// every pack that was there at the begin and still is, once.
func TestVerifyInParts(t *testing.T) {
	w, backups := verifyWorld(t)
	read := map[string]int{}
	w.store = faultstore.New(w.store, faultstore.Faults{Before: func(c faultstore.Call) error {
		if c.Op == faultstore.Open && c.Length < 0 && strings.HasPrefix(c.Key, "r/") && !strings.HasSuffix(c.Key, ".age") {
			read[c.Key]++
		}
		return nil
	}})
	w.writer = w.keyless()
	clear(read)
	spec := repository.VerifySpec{Parts: 6}
	verified := map[string]bool{}
	_, third := chainOfTwo(5 << 18)
	for part := 0; ; part++ {
		r := w.verify(spec)
		spec.State = r.State
		for _, v := range r.Backups {
			if v.Outcome != repository.OutcomeVerified {
				t.Errorf("part %d: %s is %s: %s", part, v.Key, v.Outcome, v.Reason)
			}
			verified[v.Key] = true
		}
		if r.RoundDone {
			if part < 3 {
				t.Errorf("the round took %d parts", part+1)
			}
			break
		}
		switch part {
		case 0:
			w.backup("late", backups[2], third)
		case 1:
			must(t, w.store.Delete(t.Context(), backups[0].Key))
		}
	}
	for key, n := range read {
		if n != 1 {
			t.Errorf("%q was read %d times", key, n)
		}
	}
	for _, b := range backups[1:] {
		if !verified[b.Key] {
			t.Errorf("nothing was said of %s", b.Key)
		}
	}
	if len(read) == 0 {
		t.Error("nothing was read")
	}
}

// TestVerifyRate: reading keeps to the rate.
func TestVerifyRate(t *testing.T) {
	w := newWorld(t, nil)
	w.backup("one", nil, input{disks: [][]byte{noise(9, 3<<20)}})
	start := time.Now()
	r := w.verify(repository.VerifySpec{BytesPerSecond: 10 << 20})
	// The first MiB may come at once.
	if took, least := time.Since(start), time.Duration(r.Bytes-1<<20)*time.Second/(10<<20); took < least {
		t.Errorf("%d bytes at 10 MiB/s took %s, not %s", r.Bytes, took, least)
	}
}

// TestVerifyWhileRemoving: packs of a backup that is being removed may be gone already.
func TestVerifyWhileRemoving(t *testing.T) {
	w := newWorld(t, memstore.New())
	one := w.backup("one", nil, input{disks: [][]byte{bytes.Repeat(noise(3, 1<<16), 9)}})
	takeAway(t, w.store, func(key string) bool { return kindOf(key) == "data pack" })
	if r := w.verify(repository.VerifySpec{}); outcomes(r)[one.Key] != repository.OutcomeDamaged {
		t.Errorf("without its packs: %v", r.Backups)
	}
	_, err := w.store.Create(t.Context(), strings.Replace(one.Key, "c/", "t/", 1), []byte("t"))
	must(t, err)
	if r := w.verify(repository.VerifySpec{}); outcomes(r)[one.Key] != repository.OutcomeUnknown {
		t.Errorf("with a tombstone: %v", r.Backups)
	}
}
