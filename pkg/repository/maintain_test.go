package repository_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// collector is a world with garbage collection.
type collector struct {
	*world
	faults *faultstore.Store
	key    *keys.MaintenanceKey
	now    time.Time
	dead   bool // what is said of every process
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	return newCollectorOn(t, memstore.New())
}

func newCollectorOn(t *testing.T, store objectstore.Store) *collector {
	t.Helper()
	faults := faultstore.New(store, faultstore.Faults{})
	c := &collector{world: newWorld(t, faults), faults: faults, now: time.Unix(1_790_000_000, 0), dead: true}
	var err error
	c.key, err = keys.GenerateMaintenance(c.keys)
	must(t, err)
	_, err = c.writer.AddMaintenanceKey(t.Context(), c.key)
	must(t, err)
	return c
}

func (c *collector) maintainSpec(remove ...*repository.Result) repository.MaintainSpec {
	s := repository.MaintainSpec{
		Store: c.faults, Key: c.key, Now: c.now, Interval: time.Hour,
		Judge: func(context.Context, repository.Session) (repository.Fate, error) {
			if c.dead {
				return repository.Dead, nil
			}
			return repository.Unknown, nil
		},
	}
	for _, r := range remove {
		s.Remove = append(s.Remove, repository.Removal{CommitRef: r.CommitRef})
	}
	return s
}

// pass is one pass, an interval after the one before.
func (c *collector) pass(remove ...*repository.Result) repository.MaintainResult {
	c.t.Helper()
	c.now = c.now.Add(time.Hour)
	r, err := c.writer.Maintain(c.t.Context(), c.maintainSpec(remove...))
	must(c.t, err)
	for _, h := range r.Held {
		c.t.Errorf("held %s: %v", h.VM, h.Err)
	}
	for _, refused := range r.Refused {
		c.t.Errorf("refused %s: %v", refused.Key, refused.Err)
	}
	return r
}

// settled runs passes until nothing is left to do, at most n, and expects that nothing of
// no use is left.
func (c *collector) settled(n int) {
	c.t.Helper()
	var last repository.MaintainResult
	for range n {
		last = c.pass()
	}
	if last.Waiting != (repository.Amount{}) || last.Unexplained != (repository.Amount{}) {
		c.t.Errorf("left after %d passes: %+v", n, last)
	}
	for key := range contents(c.t, c.store) {
		if key[0] == 't' || strings.HasPrefix(key, layout.CandidatesPrefix) {
			c.t.Errorf("%q is left", key)
		}
	}
}

// objectsOf are the keys of runs and sessions, what deletion is to free.
func (c *collector) objectsOf(prefixes ...string) []string {
	c.t.Helper()
	var out []string
	for key := range contents(c.t, c.store) {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) }) {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// chain makes n backups of a disk of which a part changes each time.
func (c *collector) chain(n int) (refs []*repository.Result, inputs []input) {
	c.t.Helper()
	in := input{disks: [][]byte{noise(1, 3<<20)}, files: map[string]string{"tpm": "0"}}
	var parent *repository.Result
	for i := range n {
		in = in.clone()
		copy(in.disks[0][(i*300)<<10:], noise(uint64(100+i), 200<<10))
		in.files["tpm"] = fmt.Sprint(i)
		parent = c.backup(fmt.Sprint("b", i), parent, in)
		refs, inputs = append(refs, parent), append(inputs, in)
	}
	return refs, inputs
}

// TestRetention: what is asked to go is gone after the second pass, with what only it
// needed, and every other backup restores.
func TestRetention(t *testing.T) {
	c := newCollector(t)
	refs, inputs := c.chain(5)
	before := len(c.objectsOf("r/"))
	first := c.pass(refs[0], refs[2])
	if first.Tombstones != 2 || len(first.Removed) != 0 || first.Deleted.Objects != 0 {
		t.Errorf("first pass: %+v", first)
	}
	for i, ref := range refs {
		c.mustRestore(ref.CommitRef, inputs[i]) // until the interval is over
	}
	second := c.pass()
	if len(second.Removed) != 2 || second.Packs.Objects == 0 {
		t.Errorf("second pass: %+v", second)
	}
	for _, i := range []int{1, 3, 4} {
		c.mustRestore(refs[i].CommitRef, inputs[i])
	}
	for _, i := range []int{0, 2} {
		if _, err := c.reader().Commit(t.Context(), refs[i].CommitRef); !errors.Is(err, repository.ErrAborted) {
			t.Errorf("removed backup %d: %v", i, err)
		}
	}
	if after := len(c.objectsOf("r/")); after >= before {
		t.Errorf("%d objects of runs, before %d", after, before)
	}
	if left := c.objectsOf("s/", "t/"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	c.settled(1)
	six := c.backup("six", refs[4], inputs[0])
	c.mustRestore(six.CommitRef, inputs[0])
	again := c.pass(refs[0])
	if diff := cmp.Diff([]repository.CommitRef{refs[0].CommitRef}, again.Removed); diff != "" {
		t.Errorf("removed once more (-want +got):\n%s", diff)
	}
}

// TestNothingElseGoes: passes without an order change nothing but ended sessions.
func TestNothingElseGoes(t *testing.T) {
	c := newCollector(t)
	c.chain(3)
	before := c.objectsOf("r/", "c/", "k/", "f")
	c.dead = false
	for range 3 {
		c.pass()
	}
	if diff := cmp.Diff(before, c.objectsOf("r/", "c/", "k/", "f")); diff != "" {
		t.Errorf("objects (-before +after):\n%s", diff)
	}
	if got := len(c.objectsOf("s/")); got != 3 {
		t.Errorf("%d sessions of writers that nobody called dead, not 3", got)
	}
	c.dead = true
	c.pass()
	c.pass()
	if left := c.objectsOf("s/", "a/cand"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestNewestStays(t *testing.T) {
	c := newCollector(t)
	refs, inputs := c.chain(3)
	spec := c.maintainSpec(refs...)
	r, err := c.writer.Maintain(t.Context(), spec)
	must(t, err)
	if len(r.Refused) != 1 || r.Refused[0].CommitRef != refs[2].CommitRef || !errors.Is(r.Refused[0].Err, repository.ErrNewest) || r.Tombstones != 2 {
		t.Errorf("all asked to go: %+v", r)
	}
	c.pass()
	c.mustRestore(refs[2].CommitRef, inputs[2])
	spec = c.maintainSpec(refs[2])
	spec.Remove[0].Force = true
	_, err = c.writer.Maintain(t.Context(), spec)
	must(t, err)
	c.settled(1)
	if left := c.objectsOf("r/", "s/", "t/"); len(left) > 0 {
		t.Errorf("left of a chain that went whole: %q", left)
	}
	if got := c.commits(); len(got) != 0 {
		t.Errorf("commits %v", got)
	}
}

// TestPinned: a backup that somebody stands on stays until he has ended.
func TestPinned(t *testing.T) {
	c := newCollector(t)
	refs, inputs := c.chain(2)
	c.pass()
	c.pass()
	c.dead = false
	b, err := c.writer.Begin(t.Context(), c.spec("three", refs[0]))
	must(t, err)
	defer b.Close()
	c.pass(refs[0])
	r := c.pass()
	if len(r.Pinned) != 1 || r.Pinned[0].Key != refs[0].Key || len(r.Pinned[0].Sessions) != 1 {
		t.Errorf("pinned: %+v", r.Pinned)
	}
	three, err := run(t.Context(), b, inputs[1])
	must(t, err)
	c.mustRestore(refs[0].CommitRef, inputs[0])
	c.pass()
	c.pass()
	c.mustRestore(three.CommitRef, inputs[1])
	c.mustRestore(refs[1].CommitRef, inputs[1])
	if got := c.commits(); len(got) != 2 {
		t.Errorf("commits %v", got)
	}
}

// TestReaderPins: a restore that may write holds its backup until it has ended.
func TestReaderPins(t *testing.T) {
	c := newCollector(t)
	refs, inputs := c.chain(2)
	c.dead = false
	reader := c.reader()
	commit, err := reader.Commit(t.Context(), refs[0].CommitRef)
	must(t, err)
	if _, err := reader.Pin(t.Context(), commit, "restore", 0); !errors.Is(err, repository.ErrNoKeys) {
		t.Errorf("pin without keys: %v", err)
	}
	must(t, reader.UseKeys(c.keys))
	pin, err := reader.Pin(t.Context(), commit, "restore", 0)
	must(t, err)
	for range 3 {
		c.pass(refs[0])
	}
	c.mustRestore(refs[0].CommitRef, inputs[0])
	must(t, pin.Done(t.Context()))
	if _, err := reader.Pin(t.Context(), commit, "restore", 0); !errors.Is(err, repository.ErrNoCommit) {
		t.Errorf("pin of what is being removed: %v", err)
	}
	c.dead = true
	c.pass()
	c.pass()
	if _, err := reader.Pin(t.Context(), commit, "late", 0); !errors.Is(err, repository.ErrNoCommit) {
		t.Errorf("pin of what was removed: %v", err)
	}
	c.settled(2)
	if left := c.objectsOf("s/"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestDeadWriter: what a dead writer has sent goes, its late commit is refused, and its
// rerun is told so.
func TestDeadWriter(t *testing.T) {
	c := newCollector(t)
	refs, inputs := c.chain(1)
	zombie, err := c.writer.Begin(t.Context(), c.spec("two", refs[0]))
	must(t, err)
	defer zombie.Close()
	if r := c.pass(); r.Aborted != 1 {
		t.Errorf("aborted %d runs", r.Aborted)
	}
	if _, err := run(t.Context(), zombie, inputs[0]); !errors.Is(err, repository.ErrAborted) {
		t.Errorf("late commit: %v", err)
	}
	c.dead = false
	if _, err := c.try(c.spec("two", refs[0]), inputs[0]); !errors.Is(err, repository.ErrAborted) {
		t.Errorf("rerun: %v", err)
	}
	c.dead = true
	c.settled(3)
	if got := c.commits(); len(got) != 1 {
		t.Errorf("commits %v", got)
	}
	c.mustRestore(refs[0].CommitRef, inputs[0])
}

// TestOtherOwners: only a session's owner judges it, or who has taken over from it.
func TestOtherOwners(t *testing.T) {
	c := newCollector(t)
	here, there := keys.ID{1}, keys.ID{2}
	mine, err := c.writer.ClaimOwner(t.Context(), here, nil)
	must(t, err)
	theirs, err := c.writer.ClaimOwner(t.Context(), there, nil)
	must(t, err)
	if mine.Current == theirs.Current {
		t.Fatalf("both own %d", mine.Current)
	}
	spec := c.spec("one", nil)
	spec.Owner = theirs.Current
	b, err := c.writer.Begin(t.Context(), spec)
	must(t, err)
	defer b.Close()
	aborted := func(o keys.Owners) int {
		s := c.maintainSpec()
		s.Owners = o.Judged
		r, err := c.writer.Maintain(t.Context(), s)
		must(t, err)
		return r.Aborted
	}
	if n := aborted(mine); n != 0 {
		t.Errorf("%d runs of another owner were ended", n)
	}
	again, err := c.writer.ClaimOwner(t.Context(), here, nil)
	must(t, err)
	if diff := cmp.Diff(mine, again); diff != "" {
		t.Errorf("claimed again (-first +second):\n%s", diff)
	}
	taken, err := c.writer.ClaimOwner(t.Context(), here, []uint64{theirs.Current})
	must(t, err)
	if n := aborted(taken); n != 1 {
		t.Errorf("%d runs were ended by who took over, as %+v", n, taken)
	}
}

// TestTombstonedParent: a backup does not stand on one that is announced to go, and goes
// on with its chain. What nobody who may has signed announces nothing.
func TestTombstonedParent(t *testing.T) {
	c := newCollector(t)
	refs, inputs := c.chain(2)
	spec := c.maintainSpec(refs[1])
	spec.Remove[0].Force = true
	_, err := c.writer.Maintain(t.Context(), spec)
	must(t, err)
	three := c.backup("three", refs[1], inputs[0])
	if diff := cmp.Diff(told{Full: true, Live: []uint64{1, 2}}, c.told(three)); diff != "" {
		t.Errorf("backup on one that goes (-want +got):\n%s", diff)
	}
	c.pass()
	c.pass()
	c.mustRestore(three.CommitRef, inputs[0])
	c.mustRestore(refs[0].CommitRef, inputs[0])
	thief, err := keys.GenerateMaintenance(c.keys)
	must(t, err)
	n, err := layout.ParseCommit(three.Key)
	must(t, err)
	_, err = c.faults.Create(t.Context(), layout.Tombstone(n.VM, n.Sequence, n.Run), repository.TombstoneBy(thief, c.keys, *three))
	must(t, err)
	if four := c.backup("four", three, inputs[0]); four.Full {
		t.Error("a tombstone that no maintenance key has signed cost a backup its parent")
	}
	c.pass()
	c.pass()
	c.mustRestore(three.CommitRef, inputs[0])
}
