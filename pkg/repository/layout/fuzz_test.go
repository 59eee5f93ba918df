package layout

import (
	"strings"
	"testing"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// FuzzNames: whatever is read from the key of an object makes that key again, so that one name has one meaning.
func FuzzNames(f *testing.F) {
	vm, run := keys.ID{1, 0xab}, keys.ID{2}
	o := keys.Origin{Run: run, Attempt: 3}
	for _, key := range []string{
		Commit(vm, 7, run), Tombstone(vm, 12_345_678_901, run), Session(vm, run), Done(vm, run), Candidates(4),
		DataKey(vm, o), strings.TrimSuffix(DataKey(vm, o), ".age") + "-0123456789abcdef.age", DataPack(vm, o, 5), IndexPack(vm, o, 6),
	} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		check := func(made string) {
			if made != key {
				t.Errorf("%q is read as %q", key, made)
			}
		}
		if n, err := ParseCommit(key); err == nil {
			check(Commit(n.VM, n.Sequence, n.Run))
		}
		if n, err := ParseTombstone(key); err == nil {
			check(Tombstone(n.VM, n.Sequence, n.Run))
		}
		if vm, run, done, ok := ParseSession(key); ok && done {
			check(Done(vm, run))
		} else if ok {
			check(Session(vm, run))
		}
		if n, ok := ParseCandidates(key); ok {
			check(Candidates(n))
		}
		if o, err := ParseRunObject(key); err == nil {
			check(o.key())
		}
		if o, first, err := OfRun(key); err == nil && (o.key() != first || first != key && !strings.HasPrefix(key, strings.TrimSuffix(first, ".age")+"-")) {
			t.Errorf("%q is listed as %q, which is %+v", key, first, o)
		}
	})
}
