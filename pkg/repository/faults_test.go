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
)

// chainOfTwo is what the tests of faults back up: a first backup, and a second one
// with changes all over, in packs so small that there are several of each kind.
func chainOfTwo(size int) (first, second input) {
	r := rand.New(rand.NewPCG(7, 7))
	first = input{disks: [][]byte{randomDisk(r, size), randomDisk(r, 100_001)}, files: map[string]string{"tpm": "one"}}
	second = first.clone()
	for at := 0; at < len(second.disks[0]); at += 1 << 20 {
		for i := range min(700<<10, len(second.disks[0])-at) {
			second.disks[0][at+i] = byte(r.Uint32())
		}
	}
	second.files["tpm"] = "two"
	return first, second
}

// careful records the index after each pack, so that there is much to continue.
func careful(s repository.BackupSpec) repository.BackupSpec {
	s.CheckpointEvery = time.Nanosecond
	return s
}

func (w *world) commits() []repository.CommitRef {
	w.t.Helper()
	var out []repository.CommitRef
	for c, err := range w.reader().Commits(w.t.Context()) {
		must(w.t, err)
		out = append(out, c.CommitRef)
	}
	return out
}

var errKilled = errors.New("process is gone")

// TestKilledAtEveryCall ends the writer for good before, or after, each call to the
// store. Nothing may be visible of the run unless it had committed; the rerun makes
// it whole, exactly once.
func TestKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	first, second := chainOfTwo(5 << 20)
	calls := killedAt(t, 1<<30, false, first, second)
	if calls < 16 {
		t.Errorf("the second backup took %d calls; the test wants one with many", calls)
	}
	for n := 1; n <= calls; n++ {
		for _, after := range []bool{false, true} {
			killedAt(t, n, after, first, second)
		}
	}
}

// killedAt kills the second backup at its call n and returns how many calls it
// took until then.
func killedAt(t *testing.T, n int, after bool, first, second input) int {
	t.Helper()
	faults := faultstore.New(memstore.New(), faultstore.Faults{})
	w := newWorld(t, faults)
	one := w.backup("one", nil, first)
	total := 0
	kill := func(c faultstore.Call) error {
		if total++; total >= n {
			return errKilled
		}
		return nil
	}
	set := faultstore.Faults{Before: kill}
	if after {
		set = faultstore.Faults{After: kill}
	}
	faults.Set(set)
	spec := careful(w.spec("two", one))
	early, err := w.try(spec, second)
	faults.Set(faultstore.Faults{})
	if err == nil && total >= n {
		t.Errorf("killed at call %d (after=%v), and yet the backup ended well", n, after)
	}
	if err != nil && !errors.Is(err, errKilled) {
		t.Errorf("killed at call %d (after=%v): %v", n, after, err)
	}
	visible := w.commits()
	two, err := w.try(spec, second)
	if err != nil {
		t.Errorf("rerun after a kill at call %d (after=%v): %v", n, after, err)
		return total
	}
	if len(visible) > 2 || len(visible) == 2 && !two.Found {
		t.Errorf("killed at call %d (after=%v): %d commits, but the rerun made another", n, after, len(visible))
	}
	if early.Key != "" && early.CommitRef != two.CommitRef {
		t.Errorf("rerun after success made %v, not %v", two.CommitRef, early.CommitRef)
	}
	if got := w.commits(); len(got) != 2 || got[0] != one.CommitRef || got[1] != two.CommitRef {
		t.Errorf("killed at call %d (after=%v): commits are %v", n, after, got)
	}
	w.mustRestore(one.CommitRef, first)
	w.mustRestore(two.CommitRef, second)
	return total
}

// TestRerunSendsTheRest: what an attempt has recorded is not sent again, whichever
// attempt it was.
func TestRerunSendsTheRest(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	disk := make([]byte, 12<<20)
	for i := range disk {
		disk[i] = byte(r.Uint32())
	}
	in := input{disks: [][]byte{disk}}
	faults := faultstore.New(memstore.New(), faultstore.Faults{})
	w := newWorld(t, faults)
	spec := careful(w.spec("one", nil))
	sent := int64(0)
	for _, packs := range []int{5, 3} {
		left := packs
		faults.Set(faultstore.Faults{Before: func(c faultstore.Call) error {
			if c.Op == faultstore.Create && strings.Contains(c.Key, "/p") {
				if left--; left < 0 {
					return errKilled
				}
				sent += c.Length
			}
			return nil
		}})
		if _, err := w.try(spec, in); !errors.Is(err, errKilled) {
			t.Fatalf("attempt ended with %v", err)
		}
	}
	faults.Set(faultstore.Faults{Before: func(c faultstore.Call) error {
		if c.Op == faultstore.Create && strings.Contains(c.Key, "/p") {
			sent += c.Length
		}
		return nil
	}})
	one, err := w.try(spec, in)
	must(t, err)
	faults.Set(faultstore.Faults{})
	// Besides the disk, each killed attempt may lose what was on its way: three packs.
	if limit := int64(len(disk)) + 7<<20; sent > limit {
		t.Errorf("three attempts sent %d bytes of a disk of %d, more than %d", sent, len(disk), limit)
	}
	w.mustRestore(one.CommitRef, in)
	w.mustRestore(w.backup("two", &one, in).CommitRef, in)
}

// TestStoreFails: a store that is full, or gone, in the middle is told as what it is;
// nothing is visible, and the next try succeeds.
func TestStoreFails(t *testing.T) {
	for _, cause := range []error{objectstore.ErrFull, objectstore.ErrUnreachable, objectstore.ErrDenied} {
		t.Run(cause.Error(), func(t *testing.T) {
			_, in := chainOfTwo(5 << 20)
			faults := faultstore.New(memstore.New(), faultstore.Faults{})
			w := newWorld(t, faults)
			puts := 0
			faults.Set(faultstore.Faults{Before: func(c faultstore.Call) error {
				if c.Op != faultstore.Create {
					return nil
				}
				if puts++; puts < 5 {
					return nil
				}
				return fmt.Errorf("create %q: %w", c.Key, cause)
			}})
			if _, err := w.try(w.spec("one", nil), in); !errors.Is(err, cause) {
				t.Errorf("backup ended with %v, not %v", err, cause)
			}
			faults.Set(faultstore.Faults{})
			if got := w.commits(); len(got) != 0 {
				t.Errorf("commits are visible: %v", got)
			}
			w.mustRestore(w.backup("one", nil, in).CommitRef, in)
		})
	}
}

// TestRequests counts what backups and restores ask of the store: no list at all, and
// one PUT a pack and five more.
func TestRequests(t *testing.T) {
	first, second := chainOfTwo(5 << 20)
	faults := faultstore.New(memstore.New(), faultstore.Faults{})
	w := newWorld(t, faults)
	faults.Calls()
	one := w.backup("one", nil, first)
	wantRequests(t, "full", faults.Calls(), 5)
	two := w.backup("two", one, second)
	wantRequests(t, "increment", faults.Calls(), 5)
	three := w.backup("three", two, second)
	wantRequests(t, "renewal", faults.Calls(), 5)
	w.backup("four", three, second)
	wantRequests(t, "unchanged", faults.Calls(), 4)
	reader := w.reader()
	faults.Calls()
	if _, err := restoreAll(t.Context(), reader, two.CommitRef); err != nil {
		t.Fatal(err)
	}
	calls := faults.Calls()
	if n := faultstore.Count(calls, faultstore.List); n > 0 {
		t.Errorf("restore lists %d times", n)
	}
	if n := faultstore.Count(calls, faultstore.Create); n > 0 {
		t.Errorf("restore writes %d times", n)
	}
}

func wantRequests(t *testing.T, what string, calls []faultstore.Call, more int) {
	t.Helper()
	sent := int64(0)
	for _, c := range calls {
		if c.Op == faultstore.Create {
			sent += c.Length
		}
	}
	puts, limit := faultstore.Count(calls, faultstore.Create), int(sent/(1<<20))+more
	if puts > limit {
		t.Errorf("%s: %d PUTs for %d bytes in packs of 1 MiB, more than %d", what, puts, sent, limit)
	}
	if n := faultstore.Count(calls, faultstore.List) + faultstore.Count(calls, faultstore.Delete); n > 0 {
		t.Errorf("%s: %d lists and deletes", what, n)
	}
}
