package repository

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/vmstate/vmstate/pkg/repository/blockfile"
	"github.com/vmstate/vmstate/pkg/repository/tree"
)

// VM is the virtual machine that a backup is of. UID names its chain of backups;
// all three are kept only in sealed data.
type VM struct {
	Namespace, Name, UID string
}

// BackupID is the API object that asked for a backup. UID makes the run: two
// attempts with the same UID are the same backup.
type BackupID struct {
	Namespace, Name, UID string
}

// CommitRef names one backup. Key is relative to the store; Digest is the SHA-256
// of the object at Key in lower-case hexadecimal. An empty Digest accepts
// whatever authentic record is at Key.
type CommitRef struct {
	Key    string
	Digest string
}

// BackupSpec is what a backup is called and what it stands on. Created and Owner
// are recorded, so a rerun gives the same values.
type BackupSpec struct {
	VM     VM
	Backup BackupID
	// Created is the time of the moment, to the second, UTC.
	Created time.Time
	// Parent is the backup that this one sends the difference to; nil sends all. A
	// parent that is gone, unreadable or of an older key epoch is left aside, which
	// Result.Full tells. A rerun keeps the parent of its first attempt.
	Parent *CommitRef
	// Full takes nothing over from Parent, which stays the link of the chain. It is
	// the way on after an AddBlock or Commit that ended with ErrParent.
	Full bool
	// Damaged are keys of objects known to be damaged or gone, of any virtual machine, as
	// VerifyResult.Damaged tells. What of the parent is in them is not built on: the source
	// is read in full and what they held of it is stored again.
	Damaged []string
	// Recipients can open the data of this run.
	Recipients Recipients
	// Owner numbers the cluster that judges this run's session dead; 0 is the first.
	Owner uint64
	// Progress is told after each MiB or so; nil is allowed. It is called from one
	// goroutine at a time and must not block.
	Progress func(Progress)
	// PackBytes is the target size of a data pack: 1 MiB to 64 MiB, 0 is 32 MiB.
	// Memory is three times that and some 40 MiB.
	PackBytes int
	// CheckpointEvery bounds how much time of a crashed attempt is sent again;
	// 0 is one minute.
	CheckpointEvery time.Duration
	// Stop, once closed, ends AddBlock with ErrStopped behind the chunk that is being read, after all that was sent is in
	// an index that the next attempt takes over; nil never does.
	Stop <-chan struct{}
}

// Progress counts bytes of the volumes since Begin; Sent counts bytes stored,
// index and keys included.
type Progress struct {
	Volume string
	// Total is the sum of the sizes of the volumes added so far.
	Total int64
	// Read were read from the source; Skipped were not, since the source told of holes or
	// of no change.
	Read, Skipped int64
	// Reused were read and found unchanged or known, and are not sent again; Zero were read and are zero.
	Reused, Zero int64
	Sent         int64
}

// Extent is a range of a volume that may hold data.
type Extent = blockfile.Extent

// BlockVolume is a disk to be stored. What is outside Extents is zero and is not
// read; nil Extents reads all. Extents come in order and do not overlap. Source is
// read by several goroutines, each into memory that direct access can use.
type BlockVolume struct {
	Name string
	// Role and Mode are recorded for the restore: "Disk", "Block" or "Filesystem".
	Role, Mode string
	Size       int64
	// LogicalBlockSize of the device, 0 if it has none.
	LogicalBlockSize int
	Source           io.ReaderAt
	Extents          iter.Seq2[Extent, error]
	// ExtentsTold says that Extents are the word of the storage and not the kernel's: a
	// volume that was read by them does not count as read in full.
	ExtentsTold bool
	// Changes since the parent, if the storage tells of them; nil reads Extents.
	Changes *Changes
	// Why less could not be read, for the record; at most 1 KiB of it is kept.
	Why string
}

// TreeVolume is a small set of files to be stored: at most MaxTreeBytes of
// contents. Entries are sorted by path here.
type TreeVolume struct {
	Name string
	// Role and Mode are recorded for the restore: "FirmwareState" or "Spec".
	Role, Mode string
	Entries    []tree.Entry
	// Open returns the contents of the regular file at an entry's path.
	Open func(path string) (io.ReadCloser, error)
}

// MaxTreeBytes bounds the contents of one tree volume.
const MaxTreeBytes = 256 << 20

// VolumeResult is one stored volume. Digest is its content root: equal for equal
// contents under one key epoch, whatever was sent.
type VolumeResult struct {
	Name, Role, Mode string
	Kind             VolumeKind
	Size             int64
	// UsedBytes are not zero, in whole units.
	UsedBytes int64
	// SentBytes are bytes of this volume that were stored anew, before compression.
	SentBytes        int64
	LogicalBlockSize int
	Digest           string
	Reading          Reading
}

// VolumeKind tells a disk from a set of files.
type VolumeKind string

// The kinds of volumes.
const (
	KindBlock VolumeKind = "Block"
	KindTree  VolumeKind = "Tree"
)

// Result is one committed backup. A rerun returns the same, except Found.
type Result struct {
	CommitRef
	Sequence uint64
	// Full says that nothing was taken over from a parent.
	Full    bool
	Volumes []VolumeResult
	// LogicalBytes is the sum of the sizes of the volumes; StoredBytes was added to
	// the store by the run, all its attempts' recorded packs included.
	LogicalBytes, StoredBytes int64
	// Found says that an earlier attempt had committed already.
	Found bool
}

// Commit is one backup as recorded, its signature checked.
type Commit struct {
	Result
	VM      VM
	Backup  BackupID
	Created time.Time
	Parent  *CommitRef
	// Moment is the record of how the moment was made, as given to Backup.Commit.
	Moment []byte
	// Recipients are the fingerprints of those that open this run's own data.
	Recipients []string
	// Authenticated says that the root signing key was pinned or that the
	// repository was opened with its keys. Otherwise the signature only proves that
	// the record belongs to the repository that the store shows.
	Authenticated bool
}

// WriterAt is where a block volume is restored to. ReadAt is used to read back
// what was written; it must not be served from a cache where that can be avoided. A
// target with a method LogicalBlockSize that tells other sectors than the volume had
// is refused. One with a method Extents, as Source has, is not read in place where it
// has holes.
type WriterAt interface {
	io.WriterAt
	io.ReaderAt
	// Zero makes [offset, offset+length) read as zeros.
	Zero(offset, length int64) error
	// Sync makes everything written durable.
	Sync() error
}

// RestoreSpec asks for one block volume.
type RestoreSpec struct {
	Volume string
	Target WriterAt
	// Fresh says that Target reads as zeros everywhere, so zeros are not written. A
	// recycled device is not fresh.
	Fresh bool
	// InPlace says that Target may hold much of the volume already: it is read first,
	// and only units that differ by their content ids are fetched, written and read
	// back; what became zero is zeroed. Whatever ended an earlier attempt, the next
	// one goes on from what it left. Not together with Fresh.
	InPlace bool
	// Progress is called as Begin's is; nil is allowed.
	Progress func(RestoreProgress)
}

// RestoreProgress counts bytes of one volume.
type RestoreProgress struct {
	Volume string
	Total  int64
	// Done are in place; Zero of them needed no data, Kept were so before. Verified
	// were read from the target and are right.
	Done, Zero, Kept, Verified int64
	// Fetched were read from the store.
	Fetched int64
}

// RestoreResult is one restored and verified volume. DataBytes were written,
// KeptBytes were in place before.
type RestoreResult struct {
	Volume                                  string
	Size, DataBytes, KeptBytes, FetchedByte int64
	Requests                                int64
}

// OpenTree gives the entries of a tree volume and their contents.
type OpenTree interface {
	Entries() []tree.Entry
	// Contents returns the verified bytes of the regular file at path.
	Contents(ctx context.Context, path string) ([]byte, error)
}
