package repository

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
	"github.com/vmstate/vmstate/pkg/repository/pack"
)

// MaxMoment bounds the moment record in bytes.
const MaxMoment = commit.MaxMoment

const (
	defaultPackBytes  = 32 << 20
	minPackBytes      = 1 << 20
	maxPackBytes      = 64 << 20
	defaultCheckpoint = time.Minute
	// uploads is how many packs may be on their way to the store at once; one more
	// is being filled.
	uploads = 2
)

// Backup is one run. It is used from one goroutine.
type Backup struct {
	repo    *Repository
	spec    BackupSpec
	epoch   *keys.Epoch
	vm      keys.ID
	session commit.Session
	found   *Result

	origin     keys.Origin
	commitment [32]byte
	keyBytes   int64
	keyVersion string
	parent     *opened        // nil if nothing is taken over
	before     *commit.Record // of the pinned parent, nil if it cannot be read
	objects    objects
	nodes      *index.Nodes
	ordinals   uint64 // the next free place in the pack table
	keyBase    uint64 // the place of attempt 1 in the key table

	up       *pack.Uploader
	data     *pack.Data
	index    *pack.Index
	frames   *framer
	flushed  time.Time
	recorded int // data packs since the last checkpoint

	resume   *resume
	distrust distrust
	renew    renewal          // nil before the first volume
	removed  map[keys.ID]bool // runs of earlier backups that were found to be removed
	accounts accounts
	// recounts says that the books cannot be kept by differences to the parent's.
	recounts bool
	stored   stored
	tailFull int // bytes from which another index pack takes on the tables
	volumes  []commit.Volume
	readings []commit.Reading // of the volumes, in their order
	progress Progress
	failed   error
	sealed   bool // the nonce of the record is used
}

// Begin starts or continues the run of one backup. Backup.Committed tells whether
// an earlier attempt has finished it.
func (r *Repository) Begin(ctx context.Context, spec BackupSpec) (*Backup, error) {
	if r.keys == nil {
		return nil, ErrNoKeys
	}
	if err := spec.check(); err != nil {
		return nil, err
	}
	epoch, err := r.epoch(ctx, r.keys.Epoch())
	if err != nil {
		return nil, err
	}
	vm := epoch.VM(spec.VM.UID)
	b := &Backup{
		repo: r, spec: spec, epoch: epoch, vm: vm,
		objects:  objects{r.store, vm},
		nodes:    index.NewNodes(epoch.Set, vm),
		accounts: newAccounts(),
		stored:   stored{limit: maxStored},
		tailFull: checkpointBytes,
	}
	if err := b.openSession(ctx); err != nil {
		return nil, err
	}
	if b.found != nil {
		return b, nil
	}
	if err := b.openParent(ctx); err != nil {
		return nil, err
	}
	if err := b.openDistrust(ctx); err != nil {
		return nil, err
	}
	if err := b.claim(ctx); err != nil {
		return nil, err
	}
	if err := b.openResume(ctx); err != nil {
		return nil, err
	}
	b.start(ctx)
	return b, nil
}

func (s *BackupSpec) check() error {
	switch {
	case s.VM.UID == "" || s.Backup.UID == "":
		return fmt.Errorf("%w: the UID of the virtual machine or of the backup is empty", ErrInvalid)
	case s.Recipients.Empty():
		return fmt.Errorf("%w: no recipient is given", ErrInvalid)
	case s.Created.Unix() < 0:
		return fmt.Errorf("%w: time of the backup %s is before 1970", ErrInvalid, s.Created)
	}
	if s.PackBytes == 0 {
		s.PackBytes = defaultPackBytes
	}
	if s.PackBytes < minPackBytes || s.PackBytes > maxPackBytes {
		return fmt.Errorf("%w: packs of %d bytes; %d to %d are allowed", ErrInvalid, s.PackBytes, minPackBytes, maxPackBytes)
	}
	if s.CheckpointEvery == 0 {
		s.CheckpointEvery = defaultCheckpoint
	}
	if s.Progress == nil {
		s.Progress = func(Progress) {}
	}
	return nil
}

// openSession pins the parent, or finds what an earlier attempt has pinned, and
// then whether it has committed.
func (b *Backup) openSession(ctx context.Context) error {
	b.session = commit.Session{
		Kind: commit.WriterSession, Repository: b.repo.id, Epoch: b.epoch.Epoch, VM: b.vm,
		Run: b.epoch.Run(b.vm, b.spec.Backup.UID), Owner: b.spec.Owner,
	}
	if b.spec.Parent != nil {
		l, err := linkOf(*b.spec.Parent, b.vm)
		if err != nil {
			return err
		}
		b.session.Parent = &l
	}
	key := layout.Session(b.vm, b.session.Run)
	_, err := b.repo.store.Create(ctx, key, b.session.Encode(b.repo.keys))
	if err == nil {
		return b.findCommit(ctx) // the session of a run that has ended may be gone
	}
	if !errors.Is(err, objectstore.ErrExists) {
		return fmt.Errorf("create session: %w", err)
	}
	object, err := objectstore.Get(ctx, b.repo.store, key, commit.MaxObject)
	if err != nil {
		return fmt.Errorf("read session: %w", readError(err))
	}
	earlier, err := b.repo.decodeSession(ctx, object)
	if err != nil {
		return fmt.Errorf("session %q: %w", key, err)
	}
	if earlier.Kind != commit.WriterSession || earlier.Repository != b.repo.id || earlier.VM != b.vm || earlier.Run != b.session.Run {
		return fmt.Errorf("session %q: %w: it is another run's", key, ErrNotAuthentic)
	}
	b.session = earlier
	return b.findCommit(ctx)
}

// decodeSession reads a session of whichever epoch it began in.
func (r *Repository) decodeSession(ctx context.Context, object []byte) (commit.Session, error) {
	n, err := commit.SessionEpoch(object)
	if err != nil {
		return commit.Session{}, err
	}
	e, err := r.epoch(ctx, n)
	if err != nil {
		return commit.Session{}, err
	}
	return commit.DecodeSession(object, e.SigningKey)
}

func (b *Backup) commitKey() string {
	return layout.Commit(b.vm, b.session.Sequence(), b.session.Run)
}

// findCommit looks for the commit of this run, which an earlier attempt may have
// made, and which garbage collection may have forbidden.
func (b *Backup) findCommit(ctx context.Context) error {
	o, err := b.repo.readCommit(ctx, CommitRef{Key: b.commitKey()})
	if errors.Is(err, ErrNoCommit) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.record.VM.UID != b.spec.VM.UID || o.record.Backup.UID != b.spec.Backup.UID {
		return fmt.Errorf("commit %q: %w", o.ref.Key, ErrOtherBackup)
	}
	found := resultOf(o)
	found.Found = true
	b.found = &found
	return nil
}

// openParent opens the pinned parent. One that cannot serve is left aside, and still
// tells of the chain if it reads; a store that cannot be reached is an error. The
// tombstone is looked for first: it is put before the commit goes, and taken away after
// that, so whoever sees no tombstone and then the commit has pinned it in time.
func (b *Backup) openParent(ctx context.Context) error {
	link := b.session.Parent
	if link == nil {
		return nil
	}
	_, tombstone, err := b.repo.tombstone(ctx, layout.CommitName{VM: b.vm, Sequence: link.Sequence, Run: link.Run})
	if err != nil {
		return err
	}
	var o *opened
	err = b.repo.again(ctx, layout.Commit(b.vm, link.Sequence, link.Run), func() (err error) {
		o, err = b.repo.readCommit(ctx, refOf(b.vm, *link))
		return err
	})
	switch {
	case isBroken(err), errors.Is(err, ErrNoCommit), errors.Is(err, ErrAborted),
		errors.Is(err, ErrUnsupported), errors.Is(err, ErrNoIdentity):
		return nil
	case err != nil:
		return fmt.Errorf("open parent: %w", err)
	}
	b.before = o.record
	if b.spec.Full || tombstone || o.epoch.Epoch != b.epoch.Epoch {
		return nil
	}
	b.parent = o
	b.ordinals, b.keyBase = o.record.Packs.Next, o.record.Keys.Next
	return nil
}

// claim takes the next attempt of the run, by storing a fresh data key under a name
// that only one process can take.
func (b *Backup) claim(ctx context.Context) error {
	var secret [32]byte
	rand.Read(secret[:])
	file, err := b.spec.Recipients.Wrap(secret[:])
	if err != nil {
		return err
	}
	for n := 1; n <= math.MaxUint16; n++ {
		b.origin = keys.Origin{Run: b.session.Run, Attempt: uint16(n)}
		info, err := objectstore.CreateOrSame(ctx, b.repo.store, layout.DataKey(b.vm, b.origin), file)
		if errors.Is(err, objectstore.ErrExists) {
			continue
		}
		if err != nil {
			return fmt.Errorf("claim attempt %d: %w", n, err)
		}
		b.keyBytes, b.keyVersion = int64(len(file)), info.VersionID
		b.commitment = keys.Commitment(secret, b.repo.id, b.vm, b.origin)
		return b.newFramer(secret)
	}
	return fmt.Errorf("%w: %d attempts", ErrTooLarge, math.MaxUint16)
}

func (b *Backup) start(ctx context.Context) {
	a := &pack.Attempt{
		VM: b.vm, Origin: b.origin, Ordinals: &b.ordinals,
		Tagger: pack.NewTagger(b.epoch.Set, b.vm),
	}
	b.up = pack.NewUploader(ctx, b.repo.store, uploads)
	b.data = pack.NewData(a, b.up, b.spec.PackBytes, uploads+1)
	b.index = pack.NewIndex(a, b.repo.store, b.nodes)
	b.flushed = time.Now()
	b.frames.start()
}

// Committed returns the result of an earlier attempt, or nil. If it is not nil,
// only Close may follow.
func (b *Backup) Committed() *Result { return b.found }

// Close ends the run's goroutines. It removes nothing from the store.
func (b *Backup) Close() {
	if b.up == nil {
		return
	}
	b.frames.close()
	b.up.Close()
}

// keyOrdinal is the place of this attempt's data key in the key table.
func (b *Backup) keyOrdinal() uint64 { return b.keyBase + uint64(b.origin.Attempt) - 1 }

// domain is the chain that ids and fingerprints are keyed for.
func (b *Backup) domain() keys.ID {
	if b.parent != nil {
		return b.parent.record.Domain
	}
	return b.vm
}
