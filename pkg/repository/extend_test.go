package repository_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// locked is a world whose bucket has object lock and a clock of its own.
type locked struct {
	*world
	now    time.Time
	inner  *memstore.Store
	faults *faultstore.Store
}

const policy = 14 * 24 * time.Hour

func newLocked(t *testing.T) *locked {
	l := &locked{now: time.Unix(1_790_000_000, 0)}
	l.inner = memstore.NewVersioned(func() time.Time { return l.now }, func(key string) objectstore.Retention {
		if !repository.Locked(key) {
			return objectstore.Retention{}
		}
		return objectstore.Retention{Mode: objectstore.Governance, Until: l.now.Add(policy + repository.Generation)}
	})
	l.faults = faultstore.New(l.inner, faultstore.Faults{})
	l.world = newWorld(t, l.faults)
	return l
}

func (l *locked) extend(removed map[string]bool) (repository.ExtendResult, error) {
	return l.writer.ExtendRetention(l.t.Context(), repository.ExtendSpec{
		Store: l.faults, Mode: objectstore.Governance, For: policy, Now: l.now,
		Removed: func(ref repository.CommitRef) bool { return removed[ref.Key] },
	})
}

// checkLocked restores a backup and looks at the lock of every object that this read.
func (l *locked) checkLocked(ref repository.CommitRef, want input) {
	l.t.Helper()
	l.faults.Calls()
	l.mustRestore(ref, want)
	read := map[string]bool{}
	for _, c := range l.faults.Calls() {
		if c.Op == faultstore.Open && c.Key != keys.EpochKey(2) { // the look for a later epoch
			read[c.Key] = true
		}
	}
	for key := range read {
		r, err := l.inner.Retention(l.t.Context(), key, "")
		must(l.t, err)
		if r.Until.Before(l.now.Add(policy)) {
			l.t.Errorf("day %s: %q is locked until %s, less than the policy", l.now.Format(time.DateOnly), key, r.Until.Format(time.DateOnly))
		}
	}
	if len(read) < 6 {
		l.t.Errorf("the restore read %d objects", len(read))
	}
}

// TestExtendRetention: four months of daily looks and weekly backups, each taking most of its
// data over from the one before. Whatever a kept backup reaches is locked for as long as
// the policy says at any time, and an object is extended once in a generation.
func TestExtendRetention(t *testing.T) {
	t.Parallel()
	l := newLocked(t)
	r := rand.New(rand.NewPCG(3, 4))
	in := input{disks: [][]byte{randomDisk(r, 2<<20)}, files: map[string]string{"tpm": "0"}}
	var last *repository.Result
	retains, days, reached := 0, 0, int64(0)
	for day := range 120 {
		if day%10 == 0 && day < 50 {
			copy(in.disks[0][(day%20)<<16:], randomDisk(r, 1<<16))
			last = l.backup(fmt.Sprintf("day-%d", day), last, in)
		}
		got, err := l.extend(nil)
		must(t, err)
		n := faultstore.Count(l.faults.Calls(), faultstore.Retain)
		if int64(n) != got.Extended {
			t.Errorf("day %d: %d extended, %d requests", day, got.Extended, n)
		}
		if retains += n; n > 0 {
			days++
		}
		reached = got.Reached
		if day%17 == 0 {
			l.checkLocked(last.CommitRef, in)
		}
		l.now = l.now.Add(24 * time.Hour)
	}
	// Each is extended when 7 of its 30 days are left: after 24 days and from then each 24.
	if most := int(reached) * 5; retains > most || retains < int(reached)*2 {
		t.Errorf("%d extensions for %d objects in 120 days", retains, reached)
	}
	t.Logf("120 days: %d objects, %d extensions on %d days", reached, retains, days)
}

// TestExtendRetentionKilled ends it at every call: the next one leaves nothing short.
func TestExtendRetentionKilled(t *testing.T) {
	t.Parallel()
	first, second := chainOfTwo(5 << 18)
	gone := errors.New("killed")
	for n := 1; ; n += 3 {
		l := newLocked(t)
		one := l.backup("one", nil, first)
		two := l.backup("two", one, second)
		l.now = l.now.Add(29 * 24 * time.Hour)
		l.faults.Calls()
		start := 0
		l.faults.Set(faultstore.Faults{Before: func(c faultstore.Call) error {
			if start++; start >= n {
				return gone
			}
			return nil
		}})
		_, err := l.extend(nil)
		l.faults.Set(faultstore.Faults{})
		if _, again := l.extend(nil); again != nil {
			t.Fatal(again)
		}
		l.checkLocked(one.CommitRef, first)
		l.checkLocked(two.CommitRef, second)
		if err == nil {
			t.Logf("killed at each third of %d calls", start)
			return
		}
	}
}

// TestExtendLeavesRemoved: what only a backup that is to be removed reaches runs out.
func TestExtendLeavesRemoved(t *testing.T) {
	t.Parallel()
	first, second := chainOfTwo(5 << 18)
	l := newLocked(t)
	one := l.backup("one", nil, first)
	two := l.backup("two", one, second)
	l.now = l.now.Add(29 * 24 * time.Hour)
	_, err := l.extend(map[string]bool{one.Key: true})
	must(t, err)
	l.checkLocked(two.CommitRef, second)
	if r, err := l.inner.Retention(t.Context(), one.Key, ""); err != nil || r.Until.After(l.now.Add(policy+24*time.Hour)) {
		t.Errorf("the commit that is to be removed was extended to %s, %v", r.Until, err)
	}
}

// TestExtendLeavesAnnounced: a tombstone that a maintenance key has signed lets locks run out,
// and one of somebody else does not.
func TestExtendLeavesAnnounced(t *testing.T) {
	t.Parallel()
	first, second := chainOfTwo(5 << 18)
	l := newLocked(t)
	one := l.backup("one", nil, first)
	two := l.backup("two", one, second)
	key, err := keys.GenerateMaintenance(l.keys)
	must(t, err)
	_, err = l.writer.AddMaintenanceKey(t.Context(), key)
	must(t, err)
	thief, err := keys.GenerateMaintenance(l.keys)
	must(t, err)
	for signer, r := range map[*keys.MaintenanceKey]*repository.Result{key: one, thief: two} {
		n, err := layout.ParseCommit(r.Key)
		must(t, err)
		_, err = l.faults.Create(t.Context(), layout.Tombstone(n.VM, n.Sequence, n.Run), repository.TombstoneBy(signer, l.keys, *r))
		must(t, err)
	}
	l.now = l.now.Add(29 * 24 * time.Hour)
	_, err = l.extend(nil)
	must(t, err)
	l.checkLocked(two.CommitRef, second)
	if r, err := l.inner.Retention(t.Context(), one.Key, ""); err != nil || r.Until.After(l.now.Add(policy+24*time.Hour)) {
		t.Errorf("the commit that is announced to go was extended to %s, %v", r.Until, err)
	}
}

// TestExtendPastDamage: a backup whose tables are lost is named, and the locks of the others
// are extended.
func TestExtendPastDamage(t *testing.T) {
	t.Parallel()
	first, second := chainOfTwo(5 << 18)
	l := newLocked(t)
	one := l.backup("one", nil, first)
	two := l.backup("two", one, second)
	n, err := layout.ParseCommit(two.Key)
	must(t, err)
	l.now = l.now.Add(29 * 24 * time.Hour)
	l.faults.Set(faultstore.Faults{Before: func(c faultstore.Call) error {
		if strings.HasPrefix(c.Key, "r/") && strings.Contains(c.Key, n.Run.String()) && c.Op == faultstore.Open {
			return objectstore.ErrNotFound
		}
		return nil
	}})
	got, err := l.extend(nil)
	must(t, err)
	l.faults.Set(faultstore.Faults{})
	if len(got.Hurt) != 1 || got.Hurt[0].Key != two.Key || got.Hurt[0].Err == nil {
		t.Errorf("hurt: %+v", got.Hurt)
	}
	l.checkLocked(one.CommitRef, first)
}

// TestExtendIgnoresCovers: a version that was put over an object does not keep the object
// from being extended, nor is it what is extended.
func TestExtendIgnoresCovers(t *testing.T) {
	t.Parallel()
	first, _ := chainOfTwo(5 << 18)
	l := newLocked(t)
	one := l.backup("one", nil, first)
	ours := map[string]string{}
	for v, err := range l.inner.Versions(t.Context(), "") {
		must(t, err)
		if repository.Locked(v.Key) {
			ours[v.Key] = v.ID
		}
	}
	for key := range ours {
		replace(t, l.inner, key, []byte("junk"))
		must(t, l.inner.Delete(t.Context(), key))
	}
	l.now = l.now.Add(29 * 24 * time.Hour)
	got, err := l.extend(nil)
	must(t, err)
	if got.Extended != int64(len(ours)) {
		t.Errorf("%d objects extended, want %d", got.Extended, len(ours))
	}
	for key, id := range ours {
		r, err := l.inner.Retention(t.Context(), key, id)
		must(t, err)
		if want := l.now.Add(policy + repository.Generation); !r.Until.Equal(want) {
			t.Errorf("%q is locked until %s, want %s", key, r.Until, want)
		}
	}
	l.mustRestore(one.CommitRef, first)
}

// TestLocked: what a backup is read by is locked, and what must be able to go is not.
func TestLocked(t *testing.T) {
	for key, want := range map[string]bool{
		"format.json": true, "k/1.age": true, "a/maintenance-1": true, "r/x/y/p1-000001": true, "c/x/0000000001-y": true,
		"a/candidates-0000000001": false, "s/x/y": false, "t/x/0000000001-y": false,
	} {
		if got := repository.Locked(key); got != want {
			t.Errorf("Locked(%q) = %t, want %t", key, got, want)
		}
	}
}
