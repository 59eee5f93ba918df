package repository

import (
	"errors"
	"fmt"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// The errors of a repository besides those of its store. Ask with errors.Is.
var (
	// ErrNotInitialised: the store holds no format.json.
	ErrNotInitialised = keys.ErrNotInitialised
	// ErrForeign: the store holds the repository of another key set.
	ErrForeign = keys.ErrForeign
	// ErrUnsupported: the repository or one of its objects is of a format version
	// that this program does not know.
	ErrUnsupported = keys.ErrUnsupported
	// ErrWrongIdentity: no identity given opens this; the text names the
	// recipients that would.
	ErrWrongIdentity = keys.ErrWrongIdentity
	// ErrNotAuthentic: a signature, a key or a digest is not the one expected.
	ErrNotAuthentic = keys.ErrNotAuthentic
	// ErrDistrusted is ErrNotAuthentic of a backup that a signing key has signed which is no longer trusted, and that
	// is not among those that are still believed.
	ErrDistrusted = fmt.Errorf("%w: its signing key is distrusted", keys.ErrNotAuthentic)
	// ErrSetBack is ErrNotAuthentic of a store that does not show what is known of its signing keys (Expect).
	ErrSetBack = keys.ErrSetBack
	// ErrDamaged: an object is there and is not what was written: cut, altered or
	// another one in its place.
	ErrDamaged = keys.ErrDamaged
	// ErrMissing: an object that a commit needs is not there.
	ErrMissing = errors.New("object is missing")
	// ErrNoCommit: no backup is recorded under that key, or none of that VM.
	ErrNoCommit = errors.New("no such backup")
	// ErrAborted: this run was ended for good by garbage collection; only a new
	// backup can follow.
	ErrAborted = commit.ErrAborted
	// ErrStopped: the run was told to stop (BackupSpec.Stop); the next attempt takes over what was sent.
	ErrStopped = errors.New("told to stop")
	// ErrNewest: the newest backup of a chain is removed only if that is forced.
	ErrNewest = errors.New("newest backup of its chain")
	// ErrOtherBackup: a commit or session of this backup UID is there and describes
	// other volumes or another virtual machine.
	ErrOtherBackup = errors.New("backup UID was used for another backup")
	// ErrNoKeys: opened with identities only; a backup needs the key set.
	ErrNoKeys = errors.New("repository is open for reading only")
	// ErrNoIdentity: opened with keys only; disk contents need an age identity.
	ErrNoIdentity = errors.New("repository is open without an identity")
	// ErrTooLarge: a tree volume or a record is over its limit.
	ErrTooLarge = errors.New("too large")
	// ErrInvalid: an argument breaks the rule that its error tells.
	ErrInvalid = errors.New("invalid argument")
	// ErrVerify: what was read back from a restored volume is not what was written.
	ErrVerify = errors.New("read-back differs")
	// ErrParent: the index of the parent turned out to be unusable in the middle of
	// the run. Begin again with BackupSpec.Full.
	ErrParent = errors.New("parent backup is unusable")
	// ErrSource: the volume that is backed up could not be read.
	ErrSource = errors.New("read source volume")
)
