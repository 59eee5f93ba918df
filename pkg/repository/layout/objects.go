package layout

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// Prefixes of the objects of all virtual machines.
const (
	Sessions   = "s/"
	Tombstones = "t/"
	Runs       = "r/"
)

// CandidatesPrefix begins the keys of lists of candidates.
const CandidatesPrefix = "a/candidates-"

// Candidates is the list that a pass of garbage collection leaves to the next.
func Candidates(pass uint64) string { return fmt.Sprintf("%s%010d", CandidatesPrefix, pass) }

// ParseCandidates reads the key of a list of candidates.
func ParseCandidates(key string) (uint64, bool) {
	digits, ok := strings.CutPrefix(key, CandidatesPrefix)
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, ok && err == nil && key == Candidates(n)
}

// OfVM is the part of a prefix that belongs to one virtual machine.
func OfVM(prefix string, vm keys.ID) string { return prefix + vm.String() + "/" }

// Done ends the pin of a reader.
func Done(vm, run keys.ID) string { return Session(vm, run) + ".done" }

// ParseSession reads the key of a session, or of the object that ends one.
func ParseSession(key string) (vm, run keys.ID, done, ok bool) {
	rest, ok := strings.CutPrefix(key, Sessions)
	name, rest, ok2 := strings.Cut(rest, "/")
	rest, done = strings.CutSuffix(rest, ".done")
	vm, err := keys.ParseID(name)
	run, err2 := keys.ParseID(rest)
	return vm, run, done, ok && ok2 && err == nil && err2 == nil
}

// ParseTombstone reads the key of a tombstone.
func ParseTombstone(key string) (CommitName, error) {
	rest, ok := strings.CutPrefix(key, Tombstones)
	if !ok {
		return CommitName{}, fmt.Errorf("%q is not the key of a tombstone", key)
	}
	return ParseCommit(Commits + rest)
}

// RunObject is what the key of an object of a run says.
type RunObject struct {
	VM  keys.ID
	Run keys.ID
	// Kind is 'p', 'i' or 'k': data pack, index pack, data key.
	Kind    byte
	Attempt uint16
	// Name of the object that a table lists: for a further file of a data key, the
	// first file of that key.
	Name string
}

// ParseRunObject reads the key of an object of a run; ok is false for what no program
// of this version has put there.
func ParseRunObject(key string) (o RunObject, ok bool) {
	parts := strings.Split(key, "/")
	if len(parts) != 4 || parts[0]+"/" != Runs || len(parts[3]) < 2 {
		return o, false
	}
	vm, err := keys.ParseID(parts[1])
	run, err2 := keys.ParseID(parts[2])
	if err != nil || err2 != nil {
		return o, false
	}
	o = RunObject{VM: vm, Run: run, Kind: parts[3][0], Name: key}
	rest := parts[3][1:]
	switch o.Kind {
	case 'k':
		rest, ok = strings.CutSuffix(rest, ".age")
		if !ok {
			return o, false
		}
		rest, _, _ = strings.Cut(rest, "-")
	case 'p', 'i':
		if rest, _, ok = strings.Cut(rest, "-"); !ok {
			return o, false
		}
	default:
		return o, false
	}
	n, err := strconv.ParseUint(rest, 10, 16)
	o.Attempt = uint16(n)
	if o.Kind == 'k' {
		o.Name = DataKey(vm, keys.Origin{Run: run, Attempt: o.Attempt})
	}
	return o, err == nil && n > 0
}
