package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// Generation is how much longer than asked for an object is locked when it is written,
// and each time that its retention is extended: until the end of it a backup can take the
// object over and nothing has to be extended.
const Generation = 30 * 24 * time.Hour

const (
	// extendMargin is how long before a lock falls short it is extended: that long
	// ExtendRetention may not run, or fail.
	extendMargin = 7 * 24 * time.Hour
	// extendParallel is how many objects are extended at once.
	extendParallel = 8
)

// Locked tells whether the object at key is one that backups reach, which a store with
// object lock retains: packs, keys, commits, and what describes the repository. Sessions,
// tombstones and lists of candidates end with what they are for, and a probe's objects with
// the probe.
func Locked(key string) bool {
	if _, list := layout.ParseCandidates(key); list {
		return false
	}
	for _, prefix := range []string{"r/", layout.Commits, "k/", "a/", "o/"} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return key == keys.FormatKey
}

// ExtendSpec asks that what the backups of a repository reach stays locked.
type ExtendSpec struct {
	// Store is that of the repository.
	Store objectstore.Locker
	// Mode of the retention. Where an object has a stronger one it keeps that.
	Mode objectstore.RetentionMode
	// For is how long from now every object must be locked at least.
	For time.Duration
	Now time.Time
	// Removed tells further backups that are to be removed: what they alone reach is left
	// to its time, as with those that have a tombstone. Nil for none.
	Removed func(CommitRef) bool
}

// ExtendResult counts objects.
type ExtendResult struct {
	// Reached are all that backups reach, Extended those whose retention was extended.
	Reached, Extended int64
	// Hurt are backups whose records or tables do not tell what they reach, with why:
	// what they alone reach was not extended.
	Hurt []HurtRetention
}

// HurtRetention is a backup of which it is not known what it reaches.
type HurtRetention struct {
	// Key of its commit; empty for one that cannot be told from others.
	Key string
	Err error
}

// ExtendRetention extends the retention of every object that a backup reaches, of a
// generation's objects once in a generation. A run's objects were locked at about the
// same time and are extended together, in the order of their keys, so that the last
// ones tell of all: run after run, a few requests when nothing is due. What a crash
// leaves undone the next call does.
func (r *Repository) ExtendRetention(ctx context.Context, spec ExtendSpec) (ExtendResult, error) {
	x := &extension{repo: r, spec: spec, commits: map[keys.ID][]*opened{}}
	if err := x.all(ctx); err != nil {
		return x.result, fmt.Errorf("extend retention: %w", err)
	}
	return x.result, nil
}

// extension is one call of ExtendRetention.
type extension struct {
	repo    *Repository
	spec    ExtendSpec
	commits map[keys.ID][]*opened
	result  ExtendResult
	// tombstones of backups, by the keys of their commits.
	tombstones map[string]commit.Digest
}

func (x *extension) all(ctx context.Context) error {
	var err error
	if x.tombstones, err = x.repo.announced(ctx); err != nil {
		return err
	}
	if err := x.readCommits(ctx); err != nil {
		return err
	}
	for _, vm := range slices.SortedFunc(maps.Keys(x.commits), compareID) {
		if err := x.machine(ctx, vm); err != nil {
			return err
		}
	}
	// Last, so that nobody takes a repository for safe whose packs are not.
	for _, prefix := range []string{"k/", "a/", "o/", keys.FormatKey} {
		if err := x.below(ctx, prefix, Locked); err != nil {
			return err
		}
	}
	return nil
}

func compareID(a, b keys.ID) int { return slices.Compare(a[:], b[:]) }

// readCommits reads all commits that stay. One that is damaged reaches what nobody
// knows; the others are extended all the same.
func (x *extension) readCommits(ctx context.Context) error {
	for c, err := range x.repo.Commits(ctx) {
		if isOfOne(err) {
			x.result.Hurt = append(x.result.Hurt, HurtRetention{Err: err})
			continue
		}
		if err != nil {
			return err
		}
		if x.spec.Removed != nil && x.spec.Removed(c.CommitRef) {
			continue
		}
		o, err := x.repo.readCommit(ctx, c.CommitRef)
		if err != nil {
			return err
		}
		if d, announced := x.tombstones[o.ref.Key]; announced && d == o.digest {
			continue
		}
		x.commits[o.header.VM] = append(x.commits[o.header.VM], o)
	}
	return nil
}

// announced finds the tombstones that a maintenance key has signed. Unlike whoever may not
// stand on such a backup (tombstone), it does not count one whose signer is not known:
// that would have locks end on somebody's word.
func (r *Repository) announced(ctx context.Context) (map[string]commit.Digest, error) {
	signers, err := keys.MaintenanceKeys(ctx, r.store, r.format)
	if err != nil {
		return nil, err
	}
	found := map[string]commit.Digest{}
	for info, err := range r.store.List(ctx, layout.Tombstones) {
		if err != nil {
			return nil, fmt.Errorf("list tombstones: %w", err)
		}
		n, err := layout.ParseTombstone(info.Key)
		if err != nil {
			continue // not ours
		}
		object, err := objectstore.Get(ctx, r.store, info.Key, commit.MaxObject)
		if err != nil && !errors.Is(err, objectstore.ErrNotFound) && !isBroken(readError(err)) {
			return nil, fmt.Errorf("read tombstone %q: %w", info.Key, err)
		}
		if d, err := commit.VerifyTombstone(object, r.place(n), signers); err == nil {
			found[keyOf(n)] = d
		}
	}
	return found, nil
}

// machine extends what the backups of one virtual machine reach, and then their commits.
func (x *extension) machine(ctx context.Context, vm keys.ID) error {
	reached := map[string]bool{}
	for _, o := range x.commits[vm] {
		err := x.repo.again(ctx, o.ref.Key, func() error { return x.reach(ctx, o, reached) })
		if isOfOne(err) {
			x.result.Hurt = append(x.result.Hurt, HurtRetention{Key: o.ref.Key, Err: err})
			continue
		}
		if err != nil {
			return fmt.Errorf("backup %q: %w", o.ref.Key, err)
		}
	}
	err := x.below(ctx, "r/"+vm.String()+"/", func(key string) bool { return reached[firstKeyFile(key)] })
	if err != nil {
		return err
	}
	commits := map[string]bool{}
	for _, o := range x.commits[vm] {
		commits[o.ref.Key] = true
	}
	return x.below(ctx, layout.Commits+vm.String()+"/", func(key string) bool { return commits[key] })
}

// firstKeyFile is the name by which a table lists the object at key: further files of a
// data key, for later recipients, go with the first.
func firstKeyFile(key string) string {
	dir, name := path.Split(key)
	attempt, _, later := strings.Cut(name, "-")
	if later && strings.HasPrefix(name, "k") {
		return dir + attempt + ".age"
	}
	return key
}

// reach adds the packs and keys that a backup's tables list.
func (x *extension) reach(ctx context.Context, o *opened, reached map[string]bool) error {
	from := objects{x.repo.store, o.header.VM}
	packs, err := index.OpenPacks(ctx, o.nodes(), from, o.record.Packs)
	if err != nil {
		return fmt.Errorf("read pack table: %w", readError(err))
	}
	add := func(_ uint64, p index.Pack) error {
		reached[packNameOf(&p).key(o.header.VM)] = true
		return nil
	}
	for _, p := range o.record.Tail {
		_ = add(p.Ordinal, p.Pack) // never fails
	}
	if err := packs.All(ctx, add); err != nil {
		return fmt.Errorf("read pack table: %w", readError(err))
	}
	table, err := index.OpenKeys(ctx, o.nodes(), from, o.record.Keys)
	if err != nil {
		return fmt.Errorf("read key table: %w", readError(err))
	}
	err = table.All(ctx, func(_ uint64, k index.DataKey) error {
		reached[layout.DataKey(o.header.VM, k.Origin)] = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("read key table: %w", readError(err))
	}
	return nil
}

// below extends the wanted objects under prefix, folder by folder: one is what a run
// has, or the commits of a machine. Of each key the first version is ours.
func (x *extension) below(ctx context.Context, prefix string, wanted func(key string) bool) error {
	var group []objectstore.Version
	for v, err := range objectstore.Versions(ctx, x.spec.Store, prefix) {
		if err != nil {
			return err
		}
		if v.Marker || !wanted(v.Key) {
			continue
		}
		last := len(group) - 1
		if last >= 0 && group[last].Key == v.Key {
			group[last] = v // an older one of the same key
			continue
		}
		if last >= 0 && path.Dir(group[last].Key) != path.Dir(v.Key) {
			if err := x.group(ctx, group); err != nil {
				return err
			}
			group = group[:0]
		}
		group = append(group, v)
	}
	return x.group(ctx, group)
}

// group extends objects that were locked together, unless the last of them, which are
// extended last, say that this is done.
func (x *extension) group(ctx context.Context, all []objectstore.Version) error {
	x.result.Reached += int64(len(all))
	due, err := x.due(ctx, all[max(0, len(all)-extendParallel):])
	if err != nil || !due {
		return err
	}
	for part := range slices.Chunk(all, extendParallel) {
		work, ctx := errgroup.WithContext(ctx)
		for _, v := range part {
			work.Go(func() error { return x.retain(ctx, v) })
		}
		if err := work.Wait(); err != nil {
			return err
		}
		x.result.Extended += int64(len(part))
	}
	return nil
}

func (x *extension) due(ctx context.Context, some []objectstore.Version) (bool, error) {
	for _, v := range some {
		r, err := x.spec.Store.Retention(ctx, v.Key, v.ID)
		if err != nil {
			return false, err
		}
		if r.Until.Before(x.spec.Now.Add(x.spec.For + extendMargin)) {
			return true, nil
		}
	}
	return false, nil
}

// retain extends one object. One that has a stronger mode, or a later end, keeps it.
func (x *extension) retain(ctx context.Context, v objectstore.Version) error {
	want := objectstore.Retention{Mode: x.spec.Mode, Until: x.spec.Now.Add(x.spec.For + Generation)}
	err := x.spec.Store.Retain(ctx, v.Key, v.ID, want)
	if !errors.Is(err, objectstore.ErrLocked) && !errors.Is(err, objectstore.ErrDenied) {
		return err
	}
	has, readErr := x.spec.Store.Retention(ctx, v.Key, v.ID)
	if readErr != nil {
		return cmp.Or(err, readErr)
	}
	if !has.Until.Before(want.Until) {
		return nil
	}
	if has.Mode == want.Mode || has.Mode == "" {
		return err
	}
	want.Mode = has.Mode
	return x.spec.Store.Retain(ctx, v.Key, v.ID, want)
}
