package repository_test

import (
	"strings"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// versionsOf counts the versions and markers of keys that begin with prefix.
func versionsOf(t *testing.T, s objectstore.Store, prefix string) int {
	t.Helper()
	n := 0
	for _, err := range objectstore.Versions(t.Context(), s, prefix) {
		must(t, err)
		n++
	}
	return n
}

// TestMaintainVersions: in a bucket that keeps versions and locks them nothing goes, and
// nothing piles up, until the locks have ended. Then all versions go: of a commit only
// the marker stays, and of its packs nothing, also where somebody had hidden them or put
// something over them.
func TestMaintainVersions(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_790_000_000, 0)
	store := memstore.NewVersioned(func() time.Time { return now }, func(key string) objectstore.Retention {
		if repository.Locked(key) || key[0] == 't' { // as if the bucket had a default
			return objectstore.Retention{Mode: objectstore.Compliance, Until: now.Add(24 * time.Hour)}
		}
		return objectstore.Retention{}
	})
	c := newCollectorOn(t, store)
	inputs := []input{{disks: [][]byte{noise(1, 1<<19)}}, {disks: [][]byte{noise(2, 1<<19)}}}
	refs := []*repository.Result{c.backup("a", nil, inputs[0]), c.backup("b", nil, inputs[1])} // sharing nothing
	old := layout.Runs + strings.Split(refs[0].Key, "/")[1] + "/" + refs[0].Key[len(refs[0].Key)-32:] + "/"
	c.pass(refs[0])
	replace(t, store, old+"p1-000000", []byte("junk"))
	replace(t, store, refs[0].Key, []byte("junk"))
	must(t, store.Delete(t.Context(), old+"i1-000000"))
	var before int
	for i := range 3 {
		r := c.pass()
		if len(r.Removed) != 0 || r.Packs.Objects != 0 || r.Locked.Objects == 0 {
			t.Errorf("pass %d while all is locked: %+v", i, r)
		}
		n := versionsOf(t, store, "c/") + versionsOf(t, store, "r/") + versionsOf(t, store, "t/")
		if i > 0 && n != before {
			t.Errorf("pass %d leaves %d versions, the one before left %d", i, n, before)
		}
		before = n
	}
	for i := range refs {
		c.mustRestore(refs[i].CommitRef, inputs[i])
	}
	now = now.Add(48 * time.Hour)
	if r := c.pass(); len(r.Removed) != 1 || r.Locked.Objects != 0 || r.Packs.Objects == 0 {
		t.Errorf("pass after the locks have ended: %+v", r)
	}
	c.pass()
	if n := versionsOf(t, store, refs[0].Key); n != 1 {
		t.Errorf("%d versions of a commit that went, not the marker alone", n)
	}
	if n := versionsOf(t, store, "t/"); n != 0 {
		t.Errorf("%d versions of tombstones are left", n)
	}
	for key := range contents(t, objectstore.NewOldest(store)) {
		if n := versionsOf(t, store, key); n != 1 {
			t.Errorf("%d versions of %q are left", n, key)
		}
	}
	c.mustRestore(refs[1].CommitRef, inputs[1])
}
