package layout

import (
	"testing"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

func TestParseCommit(t *testing.T) {
	want := CommitName{VM: keys.ID{1, 0xab}, Sequence: 12_345_678_901, Run: keys.ID{2}}
	got, err := ParseCommit(Commit(want.VM, want.Sequence, want.Run))
	if err != nil || got != want {
		t.Errorf("parsed %+v, %v", got, err)
	}
	good := Commit(want.VM, 1, want.Run)
	for _, bad := range []string{"", "c/", "t" + good[1:], good + "0", good[:len(good)-1], "c/" + good, "c/x/1-y",
		good[:35] + "1" + good[45:]} {
		if _, err := ParseCommit(bad); err == nil {
			t.Errorf("%q was parsed", bad)
		}
	}
}

func TestKeysAreAllowed(t *testing.T) {
	vm, o := keys.ID{1}, keys.Origin{Run: keys.ID{2}, Attempt: 65535}
	for _, key := range []string{
		Commit(vm, 1<<63, o.Run), Tombstone(vm, 1, o.Run), Session(vm, o.Run),
		DataKey(vm, o), DataPack(vm, o, 1<<31), IndexPack(vm, o, 0),
	} {
		if err := objectstore.CheckKey(key); err != nil {
			t.Error(err)
		}
	}
}
