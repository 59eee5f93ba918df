// Package layout names the objects of a repository. Every name is given once and
// never used for other bytes; none holds anything that a person called something.
package layout

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// Commits is the prefix of all commit records, of every VM.
const Commits = "c/"

// CommitsOf is the prefix of the commit records of one VM.
func CommitsOf(vm keys.ID) string { return Commits + vm.String() + "/" }

// Runs is the prefix of all packs and data keys, of every VM.
const Runs = "r/"

// Commit is the key of the commit record of one run, and of the marker that ends a
// run for good.
func Commit(vm keys.ID, sequence uint64, run keys.ID) string {
	return fmt.Sprintf("c/%s/%010d-%s", vm, sequence, run)
}

// Tombstone says that this commit is to be removed.
func Tombstone(vm keys.ID, sequence uint64, run keys.ID) string {
	return fmt.Sprintf("t/%s/%010d-%s", vm, sequence, run)
}

// Session pins the parent of a run.
func Session(vm, run keys.ID) string { return fmt.Sprintf("s/%s/%s", vm, run) }

// DataKey is the age file with the data key of one attempt, and its claim.
func DataKey(vm keys.ID, o keys.Origin) string {
	return fmt.Sprintf("r/%s/%s/k%d.age", vm, o.Run, o.Attempt)
}

// DataPack is a pack of frames.
func DataPack(vm keys.ID, o keys.Origin, number uint32) string {
	return fmt.Sprintf("r/%s/%s/p%d-%06d", vm, o.Run, o.Attempt, number)
}

// IndexPack is a pack of index nodes.
func IndexPack(vm keys.ID, o keys.Origin, number uint32) string {
	return fmt.Sprintf("r/%s/%s/i%d-%06d", vm, o.Run, o.Attempt, number)
}

// CommitName is what the key of a commit record says.
type CommitName struct {
	VM       keys.ID
	Sequence uint64
	Run      keys.ID
}

// ParseCommit reads the key of a commit record.
func ParseCommit(key string) (CommitName, error) {
	var n CommitName
	bad := fmt.Errorf("%q is not the key of a commit record", key)
	rest, ok := strings.CutPrefix(key, Commits)
	vm, rest, ok2 := strings.Cut(rest, "/")
	sequence, run, ok3 := strings.Cut(rest, "-")
	if !ok || !ok2 || !ok3 {
		return n, bad
	}
	var err error
	if n.VM, err = keys.ParseID(vm); err != nil {
		return n, bad
	}
	if n.Run, err = keys.ParseID(run); err != nil {
		return n, bad
	}
	if n.Sequence, err = strconv.ParseUint(sequence, 10, 64); err != nil || key != Commit(n.VM, n.Sequence, n.Run) {
		return n, bad
	}
	return n, nil
}
