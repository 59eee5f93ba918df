package repository

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// MaintainSpec is what one pass of garbage collection may do.
type MaintainSpec struct {
	// Store is the repository's store with the credential that deletes. All that the
	// pass reads comes from it as well.
	Store objectstore.Deleter
	// Key signs; it must have been published by AddMaintenanceKey.
	Key *keys.MaintenanceKey
	// Now is the time of the pass. Interval is how long something must have been of no
	// use, seen by two passes at least, before it is deleted. Safety does not rest on
	// either: they are the time in which an error of a person can be undone, and in which
	// a restore that could not pin its backup can end.
	Now      time.Time
	Interval time.Duration
	// Remove are the backups that go. No other backup is ever removed.
	Remove []Removal
	// Known are backups that must be there. If one is not listed, the list is not
	// believed, and nothing of that virtual machine is deleted.
	Known []CommitRef
	// Lost are keys of commits that are known to be lost, and keys of runs
	// (r/<vm>/<run>/) that are known to belong to nothing: what would otherwise make the
	// lists of a virtual machine unbelievable.
	Lost []string
	// Owners are the numbers whose sessions Judge may judge; nil is 0 alone.
	Owners []uint64
	// Judge says what became of whoever made a session. nil knows of none.
	Judge func(context.Context, Session) (Fate, error)
	// MaxDeletes bounds the objects that one pass deletes; 0 is no bound.
	MaxDeletes int
	// DryRun changes nothing, and reports what a pass with the same spec would do as
	// far as that can be known.
	DryRun bool
	// Report is told of each act, before it; nil is allowed.
	Report func(Act)
}

// Removal is one backup that is to be removed. Its digest must be given.
type Removal struct {
	CommitRef
	// Force removes it even if it is the newest of its chain.
	Force bool
}

// Fate is what became of the process behind a session.
type Fate int

const (
	// Unknown and Alive keep the session.
	Unknown Fate = iota
	Alive
	// Dead: no process of this run is at work any more, and none will start.
	Dead
)

// Session is one pin, as Judge is asked about it.
type Session struct {
	// Key of the session, as SessionKey returns it.
	Key   string
	Owner uint64
	// Reader tells a restore or a verification from a backup.
	Reader bool
	// Parent is the backup that it pins; nil for none.
	Parent *CommitRef
	// Ended says that it pins nothing any more; if it is Dead as well, it is removed.
	Ended bool
}

// ActKind is what a pass does to one object.
type ActKind string

// The kinds of acts.
const (
	ActTombstone ActKind = "Tombstone" // announces the removal of a commit
	ActAbort     ActKind = "Abort"     // forbids the commit of a run whose writer is dead
	ActRemove    ActKind = "Remove"    // puts the marker in the place of a commit
	ActDelete    ActKind = "Delete"
	ActWait      ActKind = "Wait" // is of no use, and too new a candidate
)

// Act is one step of a pass.
type Act struct {
	Kind   ActKind
	Key    string
	Bytes  int64
	Reason string
}

// Amount counts objects and their bytes.
type Amount struct {
	Objects int
	Bytes   int64
}

func (a *Amount) add(bytes int64) {
	a.Objects++
	a.Bytes += bytes
}

// MaintainResult is what a pass did and what it left.
type MaintainResult struct {
	// Tombstones that were put. Removed are backups that are gone from now on, those of
	// spec.Remove that were gone already included. Aborted runs can never commit.
	Tombstones int
	Removed    []CommitRef
	Aborted    int
	// Refused are members of spec.Remove that stay, with why.
	Refused []Refusal
	// Pinned are backups with a tombstone that somebody stands on.
	Pinned []Pin
	// Deleted are all objects that were deleted, Packs those of them with data or index.
	Deleted, Packs Amount
	// Waiting are of no use, and stay for a later pass. Locked are those of them that stay for
	// a lock: the store would not delete them, or the commit that needs them.
	Waiting, Locked Amount
	// Unexplained are objects under r/ that belong to no run that is known.
	Unexplained Amount
	// Held are virtual machines of which nothing was deleted, with why.
	Held []Held
	// Requests of the pass.
	Requests Requests
}

// Refusal is a removal that was not begun.
type Refusal struct {
	CommitRef
	Err error
}

// Pin is a commit that stays for now because of sessions.
type Pin struct {
	CommitRef
	Sessions []string
}

// Held is a virtual machine, by its name in the store, whose lists or records cannot be
// relied on.
type Held struct {
	VM  string
	Err error
}

// SessionKey is the key of the session of one backup, or of one reader: what a caller
// of Maintain knows its own by.
func (r *Repository) SessionKey(vmUID, uid string) (string, error) {
	if r.keys == nil {
		return "", ErrNoKeys
	}
	set := r.keys.Set()
	vm := set.VM(vmUID)
	return layout.Session(vm, set.Run(vm, uid)), nil
}

// pass is one pass over the repository.
type pass struct {
	repo    *Repository
	store   objectstore.Deleter // counts, and looks through what was put over objects
	counts  *requestCount
	spec    MaintainSpec
	lost    map[string]bool
	before  map[string]int64 // candidates of the pass before: since when
	next    []commit.Candidate
	deletes int
	result  MaintainResult
}

// Maintain is one pass of garbage collection. It announces what is to go, finds what
// nobody can reach, and deletes what an earlier pass has found so already. Each virtual
// machine is judged by lists in the order that FORMAT.md gives; any error of the store
// ends the pass. What it returns beside an error is what was done until then.
//
// It may be ended at any call and run again, also beside another that is still at work.
func (r *Repository) Maintain(ctx context.Context, spec MaintainSpec) (MaintainResult, error) {
	p, err := r.newPass(ctx, spec)
	if err != nil {
		return MaintainResult{}, err
	}
	err = p.all(ctx)
	p.result.Requests = p.counts.so()
	if err != nil {
		return p.result, fmt.Errorf("maintenance: %w", err)
	}
	return p.result, nil
}

func (r *Repository) newPass(ctx context.Context, spec MaintainSpec) (*pass, error) {
	switch {
	case r.keys == nil:
		return nil, ErrNoKeys
	case spec.Store == nil || spec.Key == nil:
		return nil, fmt.Errorf("%w: maintenance needs a store that deletes and a maintenance key", ErrInvalid)
	case spec.Key.Repository() != r.id:
		return nil, fmt.Errorf("%w: the maintenance key is for repository %s", ErrForeign, spec.Key.Repository())
	}
	if spec.Owners == nil {
		spec.Owners = []uint64{0}
	}
	if spec.Report == nil {
		spec.Report = func(Act) {}
	}
	if spec.Judge == nil {
		spec.Judge = func(context.Context, Session) (Fate, error) { return Unknown, nil }
	}
	counts := &requestCount{}
	store := counts.of(spec.Store)
	repo := r.over(store)
	signers, err := keys.MaintenanceKeys(ctx, store, r.format)
	if err != nil {
		return nil, err
	}
	repo.maintainers = signers
	if !slices.ContainsFunc(signers, func(k ed25519.PublicKey) bool { return spec.Key.Public().Equal(k) }) {
		return nil, fmt.Errorf("%w: the maintenance key is not published in the repository", ErrForeign)
	}
	p := &pass{repo: repo, store: store, counts: counts, spec: spec, lost: map[string]bool{}, before: map[string]int64{}}
	for _, key := range spec.Lost {
		p.lost[key] = true
	}
	return p, nil
}

// over is the same repository as seen through another store.
func (r *Repository) over(store objectstore.Store) *Repository {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &Repository{
		store: store, format: r.format, id: r.id, keys: r.keys,
		identities: r.identities, pinned: r.pinned, epochs: maps.Clone(r.epochs),
	}
}

func (p *pass) all(ctx context.Context) error {
	lists, err := p.readCandidates(ctx)
	if err != nil {
		return err
	}
	vms, err := p.machines(ctx)
	if err != nil {
		return err
	}
	for _, vm := range vms {
		err := p.newMachine(vm).all(ctx)
		switch {
		case err == nil:
		case ctx.Err() == nil && isOfOne(err):
			p.result.Held = append(p.result.Held, Held{VM: vm.String(), Err: err})
		default:
			return err
		}
	}
	return p.writeCandidates(ctx, lists)
}

// machines finds the virtual machines that have anything in the store: every run
// begins with a session, and ends with what takes the key of its commit.
func (p *pass) machines(ctx context.Context) ([]keys.ID, error) {
	found := map[keys.ID]bool{}
	add := func(key string) {
		_, rest, _ := strings.Cut(key, "/")
		name, _, _ := strings.Cut(rest, "/")
		if vm, err := keys.ParseID(name); err == nil {
			found[vm] = true
		}
	}
	for _, prefix := range []string{layout.Commits, layout.Sessions} {
		for info, err := range p.store.List(ctx, prefix) {
			if err != nil {
				return nil, err
			}
			add(info.Key)
		}
	}
	for key := range p.before { // should the lists be empty, that is noticed
		add(key)
	}
	refs := slices.Clone(p.spec.Known)
	for _, r := range p.spec.Remove {
		refs = append(refs, r.CommitRef)
	}
	for _, ref := range refs {
		n, err := layout.ParseCommit(ref.Key)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		found[n.VM] = true
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b keys.ID) int { return slices.Compare(a[:], b[:]) }), nil
}

// readCandidates reads what the pass before has left, and returns the keys of all such
// lists. One that no maintenance key has signed counts for nothing.
func (p *pass) readCandidates(ctx context.Context) (lists []string, err error) {
	for info, err := range p.store.List(ctx, layout.CandidatesPrefix) {
		if err != nil {
			return nil, err
		}
		if _, ok := layout.ParseCandidates(info.Key); ok {
			lists = append(lists, info.Key)
		}
	}
	for _, key := range slices.Backward(lists) {
		object, err := objectstore.Get(ctx, p.store, key, commit.MaxCandidateObject)
		if err != nil && !isBroken(readError(err)) {
			return nil, err
		}
		c, err := commit.DecodeCandidates(object, p.repo.maintainers)
		if n, _ := layout.ParseCandidates(key); err != nil || c.Repository != p.repo.id || c.Pass != n {
			continue
		}
		for _, k := range c.Keys {
			p.before[k.Key] = k.Since
		}
		break
	}
	return lists, nil
}

// writeCandidates leaves a list to the next pass, in the place of those that are there.
func (p *pass) writeCandidates(ctx context.Context, lists []string) error {
	if p.spec.DryRun {
		return nil
	}
	if len(p.next) > 0 {
		slices.SortFunc(p.next, func(a, b commit.Candidate) int { return strings.Compare(a.Key, b.Key) })
		number := uint64(1)
		if len(lists) > 0 {
			n, _ := layout.ParseCandidates(lists[len(lists)-1])
			number = n + 1
		}
		c := commit.Candidates{Repository: p.repo.id, Pass: number, Keys: p.next}
		_, err := p.store.Create(ctx, layout.Candidates(number), c.Encode(p.spec.Key))
		if errors.Is(err, objectstore.ErrExists) {
			return nil // of a pass beside this one
		}
		if err != nil {
			return fmt.Errorf("create list of candidates: %w", err)
		}
	}
	for _, key := range lists {
		if err := p.store.Delete(ctx, key); err != nil && !errors.Is(err, objectstore.ErrLocked) {
			return err // a list that a lock keeps is passed over for a later one
		}
	}
	return nil
}
