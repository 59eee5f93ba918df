package repository_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// TestVerifyFull: with an identity every backup is opened as well, and damage is told to the frame.
func TestVerifyFull(t *testing.T) {
	w, backups := verifyWorld(t)
	full := func() repository.VerifyResult {
		t.Helper()
		r, err := w.reader().Verify(t.Context(), repository.VerifySpec{Full: true})
		must(t, err)
		return r
	}
	want := map[string]repository.Outcome{}
	for _, b := range backups {
		want[b.Key] = repository.OutcomeVerified
	}
	if diff := cmp.Diff(want, outcomes(full())); diff != "" {
		t.Errorf("sound (-want +got):\n%s", diff)
	}
	objects := contents(t, w.store)
	for _, key := range packsOf(objects) {
		if kindOf(key) != "data pack" {
			continue
		}
		w.mutate(key, mutation{"flipped", flipped(objects[key])}, objects)
		coarse := w.verify(repository.VerifySpec{})
		for i, v := range full().Backups {
			if v.Outcome == repository.OutcomeDamaged && bytesHurt(v) >= bytesHurt(coarse.Backups[i]) && bytesHurt(v) > 1<<20 {
				t.Errorf("%q flipped: %d bytes of %s hurt, no fewer than without an identity", key, bytesHurt(v), v.Key)
			}
			if damaged := len(w.hurtBy(v.CommitRef)) > 0; damaged != (v.Outcome == repository.OutcomeDamaged) {
				t.Errorf("%q flipped: %s is %s: %s", key, v.Key, v.Outcome, v.Reason)
			}
		}
	}
	if _, err := w.keyless().Verify(t.Context(), repository.VerifySpec{Full: true}); !errors.Is(err, repository.ErrNoIdentity) {
		t.Errorf("without an identity: %v", err)
	}
}

func bytesHurt(v repository.Verdict) (n int64) {
	for _, h := range v.Volumes {
		n += h.Bytes
	}
	return n
}

// TestVerifyFullResumes: ended after any step, a full verification goes on from there: what was opened is
// not opened again, and nothing is left out.
func TestVerifyFullResumes(t *testing.T) {
	w, backups := verifyWorld(t)
	objects := contents(t, w.store)
	whole, err := w.reader().Verify(t.Context(), repository.VerifySpec{Full: true})
	must(t, err)
	for n := 1; ; n++ {
		w.store = storeOf(t, objects)
		ctx, cancel := context.WithCancel(t.Context())
		steps, state, judged := 0, "", map[string]repository.Outcome{}
		_, err := w.reader().Verify(ctx, repository.VerifySpec{Full: true, Progress: func(p repository.VerifyProgress) {
			if steps++; steps <= n {
				state = p.State
				judged = outcomes(repository.VerifyResult{Backups: p.Backups})
			}
			if steps == n {
				cancel()
			}
		}})
		cancel()
		if err == nil {
			if n < 10 {
				t.Fatalf("there were %d steps; is anything opened?", n-1)
			}
			return
		}
		opened := map[string]bool{}
		rest, err := w.reader().Verify(t.Context(), repository.VerifySpec{Full: true, State: state, Progress: func(p repository.VerifyProgress) {
			if p.Opening != nil {
				opened[p.Opening.Volume] = true
			}
		}})
		must(t, err)
		for key, o := range outcomes(rest) {
			judged[key] = o
		}
		if len(judged) != len(backups) || !rest.RoundDone {
			t.Errorf("after step %d: %d of %d backups were judged, round done %t", n, len(judged), len(backups), rest.RoundDone)
		}
		if rest.Bytes >= whole.Bytes {
			t.Errorf("after step %d the rest read %d bytes, all of it is %d", n, rest.Bytes, whole.Bytes)
		}
	}
}

// TestProveResumes: within a large volume the proof of a backup goes on where it was.
func TestProveResumes(t *testing.T) {
	w := newWorld(t, nil)
	b, err := w.writer.Begin(t.Context(), w.spec("one", nil))
	must(t, err)
	defer b.Close()
	const size, stride = 20 << 30, 2 << 30
	_, err = b.AddBlock(t.Context(), repository.BlockVolume{Name: "large", Size: size, Source: hugeDisk{peak: &peak{}}, Extents: func(yield func(repository.Extent, error) bool) {
		for at := int64(0); at < size; at += stride {
			if !yield(repository.Extent{Offset: at, Length: 1 << 20}, nil) {
				return
			}
		}
	}})
	must(t, err)
	one, err := b.Commit(t.Context(), nil)
	must(t, err)
	r := w.reader()
	c, err := r.Commit(t.Context(), one.CommitRef)
	must(t, err)
	var at []int64
	state := ""
	ctx, cancel := context.WithCancel(t.Context())
	_, err = r.Prove(ctx, c, repository.ProveSpec{Progress: func(p repository.ProveProgress) {
		if at = append(at, p.Done); len(at) == 2 {
			state = p.State
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || len(at) != 2 {
		t.Fatalf("cancelled at %v: %v", at, err)
	}
	v, err := r.Prove(t.Context(), c, repository.ProveSpec{State: state, Progress: func(p repository.ProveProgress) { at = append(at, p.Done) }})
	must(t, err)
	if !slices.IsSorted(at) || len(at) < 4 || at[len(at)-1] != size || v.Outcome != repository.OutcomeVerified {
		t.Errorf("proven up to %v; %+v", at, v)
	}
}

// TestVerifyFullRate: opening backups keeps to the rate as well.
func TestVerifyFullRate(t *testing.T) {
	w := newWorld(t, nil)
	w.backup("one", nil, input{disks: [][]byte{noise(9, 3<<20)}})
	start := time.Now()
	r, err := w.reader().Verify(t.Context(), repository.VerifySpec{Full: true, BytesPerSecond: 10 << 20})
	must(t, err)
	if r.Bytes < 6<<20 {
		t.Errorf("%d bytes were read, less than twice what was stored", r.Bytes)
	}
	if took, least := time.Since(start), time.Duration(r.Bytes-1<<20)*time.Second/(10<<20); took < least {
		t.Errorf("%d bytes at 10 MiB/s took %s, not %s", r.Bytes, took, least)
	}
}

// lateWorld has a backup made for the first of two identities, and one more made for the second, which has been given
// the keys of the index, and none of the data.
func lateWorld(t *testing.T) (w *world, first, second *repository.Result) {
	t.Helper()
	w = newWorld(t, nil)
	in := input{disks: [][]byte{noise(51, 2<<20)}, files: map[string]string{"tpm": "state"}}
	first = w.backup("one", nil, in)
	late, err := age.GenerateX25519Identity()
	must(t, err)
	to, err := keys.ParseRecipients([]string{late.Recipient().String()})
	must(t, err)
	must(t, repository.Init(t.Context(), w.store, w.keys, to))
	w.recipients, w.identities = to, []age.Identity{late}
	next := in.clone()
	copy(next.disks[0], noise(52, 1<<20))
	second = w.backup("two", first, next)
	return w, first, second
}

// TestClosed: what is for other identities is told apart from what is damaged.
func TestClosed(t *testing.T) {
	w, first, second := lateWorld(t)
	for _, ref := range []repository.CommitRef{first.CommitRef, second.CommitRef} {
		r := w.reader()
		c, err := r.Commit(t.Context(), ref)
		must(t, err)
		out, err := r.Salvage(t.Context(), c, repository.RestoreSpec{Volume: "diska", Target: &target{data: make([]byte, 2<<20)}})
		must(t, err)
		if len(out.Bad) == 0 || slices.ContainsFunc(out.Bad, func(b repository.BadRange) bool { return !b.Closed }) {
			t.Errorf("salvage of %s: %+v", ref.Key, out.Bad)
		}
		v, err := r.Prove(t.Context(), c, repository.ProveSpec{})
		must(t, err)
		if v.Outcome != repository.OutcomeClosed || len(v.Volumes) > 0 {
			t.Errorf("proof of %s: %+v", ref.Key, v)
		}
	}
	// A key file that was made for the identity and does not open is damaged.
	objects := contents(t, w.store)
	for key, body := range objects {
		if !strings.HasSuffix(key, "/k1.age") || !strings.Contains(key, strings.Split(second.Key, "-")[1]) {
			continue
		}
		at := strings.Index(string(body), "-> X25519 ") + 20
		altered := slices.Clone(body)
		altered[at] ^= 1
		w.mutate(key, mutation{"altered", altered}, objects)
		r := w.reader()
		c, err := r.Commit(t.Context(), second.CommitRef)
		must(t, err)
		v, err := r.Prove(t.Context(), c, repository.ProveSpec{})
		must(t, err)
		if v.Outcome != repository.OutcomeDamaged || !strings.Contains(v.Reason, key) {
			t.Errorf("%q altered: %+v", key, v)
		}
		return
	}
	t.Error("no key file was altered")
}

// TestVerifyCovered: what somebody put over the objects of a bucket with versions is neither damage nor taken for
// the objects, also by a call that goes on where another one was.
func TestVerifyCovered(t *testing.T) {
	t.Parallel()
	first, second := chainOfTwo(5 << 18)
	for _, thief := range thieves {
		t.Run(thief.name, func(t *testing.T) {
			t.Parallel()
			s := memstore.NewVersioned(time.Now, nil)
			w := newWorld(t, s)
			one := w.backup("one", nil, first)
			w.backup("two", one, second)
			for key, objects := range coverable(t, s) {
				thief.do(t, s, key, objects)
			}
			spec := repository.VerifySpec{Parts: 8, Full: true}
			for range 40 {
				r, err := w.reader().Verify(t.Context(), spec)
				must(t, err)
				for _, v := range r.Backups {
					if v.Outcome != repository.OutcomeVerified {
						t.Errorf("%s is %s: %s", v.Key, v.Outcome, v.Reason)
					}
				}
				if len(r.Damaged) > 0 {
					t.Errorf("damaged: %v", r.Damaged)
				}
				if r.RoundDone {
					return
				}
				spec.State = r.State
			}
			t.Error("the round does not end")
		})
	}
}

// coverable are the objects of runs, each with all objects.
func coverable(t *testing.T, s objectstore.Store) map[string]map[string][]byte {
	t.Helper()
	objects := contents(t, s)
	out := map[string]map[string][]byte{}
	for key := range objects {
		if strings.HasPrefix(key, "r/") {
			out[key] = objects
		}
	}
	return out
}

// TestVerifyStateOfOld: a state that an earlier version kept is gone on from.
func TestVerifyStateOfOld(t *testing.T) {
	w, backups := verifyWorld(t)
	old, err := json.Marshal(map[string]any{"version": 1, "damaged": []repository.DamagedObject{{Key: "r/x/y/p1-000000", Why: "missing"}}})
	must(t, err)
	r := w.verify(repository.VerifySpec{State: string(old)})
	if len(r.Backups) != len(backups) || len(r.Damaged) > 0 || !r.RoundDone {
		t.Errorf("%+v", r)
	}
}

// TestProveUnreachable: a store that does not answer ends a proof, and says nothing of the backup.
func TestProveUnreachable(t *testing.T) {
	w := newWorld(t, nil)
	one := w.backup("one", nil, input{disks: [][]byte{noise(31, 1<<20)}})
	w.store = faultstore.New(w.store, faultstore.Faults{Before: func(c faultstore.Call) error {
		if kindOf(c.Key) == "data pack" && c.Op == faultstore.Open {
			return objectstore.ErrUnreachable
		}
		return nil
	}})
	r := w.reader()
	c, err := r.Commit(t.Context(), one.CommitRef)
	must(t, err)
	if _, err := r.Prove(t.Context(), c, repository.ProveSpec{}); !errors.Is(err, objectstore.ErrUnreachable) {
		t.Errorf("prove: %v", err)
	}
}

// TestVerifyBesideRemoval: what a remover takes away while it is being read is no damage.
func TestVerifyBesideRemoval(t *testing.T) {
	c := newCollector(t)
	one := c.backup("one", nil, input{disks: [][]byte{noise(61, 5<<20)}})
	c.dead = true
	c.pass()
	other := input{disks: [][]byte{noise(62, 2<<20)}}
	two := c.backup("two", nil, other)
	c.pass(one)
	inner, removed := c.store, false
	c.store = faultstore.New(inner, faultstore.Faults{Before: func(call faultstore.Call) error {
		if call.Op == faultstore.Open && kindOf(call.Key) == "data pack" && !removed {
			removed = true
			if r := c.pass(); len(r.Removed) != 1 || r.Packs.Objects == 0 {
				t.Errorf("the pass removed %v, %+v", r.Removed, r.Packs)
			}
		}
		return nil
	}})
	r := c.verify(repository.VerifySpec{})
	if !removed || len(r.Damaged) > 0 || outcomes(r)[two.Key] != repository.OutcomeVerified {
		t.Errorf("removed %t, damaged %v, backups %v", removed, r.Damaged, r.Backups)
	}
	for _, v := range r.Backups {
		if v.Outcome == repository.OutcomeDamaged {
			t.Errorf("%+v", v)
		}
	}
}

// TestVerifyUntil: a part that is not read in time ends, and the next call goes on.
func TestVerifyUntil(t *testing.T) {
	w, backups := verifyWorld(t)
	spec := repository.VerifySpec{Until: time.Now()}
	for calls := 1; ; calls++ {
		r := w.verify(spec)
		if r.RoundDone {
			if calls < 2 || len(r.Backups) == 0 {
				t.Errorf("%d calls, %d backups at last of %d", calls, len(r.Backups), len(backups))
			}
			return
		}
		if r.Bytes == 0 || calls > 100 {
			t.Fatalf("call %d read nothing", calls)
		}
		spec.State = r.State
	}
}
