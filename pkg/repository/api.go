package repository

import (
	"context"
	"errors"
	"iter"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// Recipients and Keys are told in package keys.
type (
	Recipients = keys.Recipients
	Keys       = keys.Keys
)

var errSoon = errors.New("not there yet")

// Repository is an open repository. It may be used concurrently.
type Repository struct{}

// Init makes the repository in an empty store, or accepts the one that the same
// keys have made, also if that was left half done. ErrForeign if the store holds
// the repository of other keys. Recipients who were not there before are added.
func Init(ctx context.Context, store objectstore.Store, k *Keys, r Recipients) error { return errSoon }

// Exists reports whether the store holds a repository, of whatever keys.
func Exists(ctx context.Context, store objectstore.Store) (bool, error) { return false, errSoon }

// OpenWithKeys opens for backups; it also lists and shows, but reads no disk.
func OpenWithKeys(ctx context.Context, store objectstore.Store, k *Keys) (*Repository, error) {
	return nil, errSoon
}

// OpenWithIdentities opens for reading, with nothing but the store and an age
// identity. rootKey pins the root signing key; nil accepts the store's, and then
// Commit.Authenticated is false.
func OpenWithIdentities(ctx context.Context, store objectstore.Store, ids []age.Identity, rootKey []byte) (*Repository, error) {
	return nil, errSoon
}

// Begin starts or continues the run of one backup. Backup.Committed tells whether
// an earlier attempt has finished it.
func (r *Repository) Begin(ctx context.Context, spec BackupSpec) (*Backup, error) {
	return nil, errSoon
}

// Backup is one run. It is used from one goroutine.
type Backup struct{}

// Committed returns the result of an earlier attempt, or nil. If it is not nil,
// only Close may follow.
func (b *Backup) Committed() *Result { return nil }

// AddBlock stores a disk. A rerun must add the same volumes in the same order.
func (b *Backup) AddBlock(ctx context.Context, v BlockVolume) (VolumeResult, error) {
	return VolumeResult{}, errSoon
}

// AddTree stores a tree of files.
func (b *Backup) AddTree(ctx context.Context, v TreeVolume) (VolumeResult, error) {
	return VolumeResult{}, errSoon
}

// Commit makes the backup exist. moment is recorded as it is, at most MaxMoment.
func (b *Backup) Commit(ctx context.Context, moment []byte) (Result, error) {
	return Result{}, errSoon
}

// Close ends the run's goroutines. It removes nothing from the store.
func (b *Backup) Close() {}

// Commits yields all backups in the store, by VM and sequence. A damaged record is
// yielded as an error that names it, and the list goes on after it.
func (r *Repository) Commits(ctx context.Context) iter.Seq2[*Commit, error] { return nil }

// Commit reads one record. ErrNoCommit, ErrDamaged, ErrNotAuthentic.
func (r *Repository) Commit(ctx context.Context, ref CommitRef) (*Commit, error) {
	return nil, errSoon
}

// Latest returns the newest backup of a VM by name, ErrNoCommit if there is none.
// A damaged record of that store is an error, never skipped.
func (r *Repository) Latest(ctx context.Context, namespace, name string) (*Commit, error) {
	return nil, errSoon
}

// Check proves that c is complete: every index node reads and is authentic, every
// pack and key file is there with the recorded size. It reads no disk data.
func (r *Repository) Check(ctx context.Context, c *Commit) error { return errSoon }

// ReadTree opens a tree volume of c.
func (r *Repository) ReadTree(ctx context.Context, c *Commit, volume string) (OpenTree, error) {
	return nil, errSoon
}

// RestoreBlock writes a block volume of c, checks every unit on its way in and
// reads it back. The target is useful only if it returns without error; a failed
// restore can be run again on the same target, which is then not Fresh.
func (r *Repository) RestoreBlock(ctx context.Context, c *Commit, spec RestoreSpec) (RestoreResult, error) {
	return RestoreResult{}, errSoon
}
