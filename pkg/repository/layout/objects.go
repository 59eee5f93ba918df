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

// OfRun reads the key of an object of a run, also of a further file of a data key. first
// is the key that tables list it by: for such a file, that of the key's first one.
func OfRun(key string) (o RunObject, first string, err error) {
	first = key
	slash := strings.LastIndexByte(key, '/') + 1
	if name := key[slash:]; strings.HasPrefix(name, string(KindDataKey)) {
		attempt, _, more := strings.Cut(name, "-")
		if more && strings.HasSuffix(name, ".age") {
			first = key[:slash] + attempt + ".age"
		}
	}
	o, err = ParseRunObject(first)
	return o, first, err
}
