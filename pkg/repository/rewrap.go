package repository

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// Rewrapped counts what Rewrap has done.
type Rewrapped struct {
	// Epochs and Runs whose keys got a file for the recipients; Had had one already.
	Epochs, Runs, Had int
	// LeftOut are backups that cannot be used, and key files that are there and open for nobody, each with its error.
	LeftOut []error
}

// Rewrap makes every backup in the store readable for recipients, beside those that can read it already: it only adds
// small key files, so it works under object lock, and running it again adds what is new since. Keys are proven by the
// commits that name them before they are wrapped; a commit that cannot be used is left out, and told.
func (r *Repository) Rewrap(ctx context.Context, to Recipients) (Rewrapped, error) {
	var done Rewrapped
	if len(r.identities) == 0 {
		return done, ErrNoIdentity
	}
	for n := uint32(1); ; n++ {
		_, err := r.store.Stat(ctx, keys.EpochKey(n))
		if errors.Is(err, objectstore.ErrNotFound) && n > 1 {
			break
		}
		e, err := r.epoch(ctx, n)
		if err != nil {
			return done, err
		}
		if err := r.addKeyFile(ctx, keys.AddedEpochKey(n, to), e.Payload(), to, &done); err != nil {
			return done, err
		}
		done.Epochs++
	}
	seen := map[keys.ID]map[keys.Origin]bool{}
	for info, err := range r.store.List(ctx, layout.Commits) {
		if err != nil {
			return done, fmt.Errorf("list commits: %w", err)
		}
		if err := r.rewrapCommit(ctx, info.Key, to, seen, &done); err != nil {
			return done, err
		}
	}
	return done, nil
}

func (r *Repository) rewrapCommit(ctx context.Context, key string, to Recipients, seen map[keys.ID]map[keys.Origin]bool, done *Rewrapped) error {
	c, err := r.Commit(ctx, CommitRef{Key: key})
	switch {
	case errors.Is(err, ErrAborted), errors.Is(err, ErrNoCommit):
		return nil
	case err != nil && isOfOne(err):
		done.LeftOut = append(done.LeftOut, err)
		return nil
	case err != nil:
		return err
	}
	needed, err := r.neededKeys(ctx, c)
	if err != nil {
		return err
	}
	name, err := layout.ParseCommit(key)
	if err != nil {
		return err
	}
	if seen[name.VM] == nil {
		seen[name.VM] = map[keys.Origin]bool{}
	}
	for _, entry := range needed {
		if seen[name.VM][entry.Origin] {
			continue
		}
		seen[name.VM][entry.Origin] = true
		if err := r.rewrapRun(ctx, name.VM, entry, to, done); err != nil {
			return err
		}
	}
	return nil
}

func (r *Repository) rewrapRun(ctx context.Context, vm keys.ID, entry index.DataKey, to Recipients, done *Rewrapped) error {
	d := &dataKeys{repo: r, vm: vm}
	name := strings.TrimSuffix(layout.DataKey(vm, entry.Origin), ".age") + "-" + keys.SetFingerprint(to) + ".age"
	key, err := d.read(ctx, entry)
	if err != nil {
		return err
	}
	if err := r.addKeyFile(ctx, name, key[:], to, done); err != nil {
		return err
	}
	done.Runs++
	return nil
}

// addKeyFile creates a file for later recipients. One that is there is for the same, as its name says; whom it really
// opens for only they can find out, but one that opens for nobody is told, lest somebody relies on it.
func (r *Repository) addKeyFile(ctx context.Context, name string, secret []byte, to Recipients, done *Rewrapped) error {
	file, err := to.Wrap(secret)
	if err != nil {
		return err
	}
	_, err = r.store.Create(ctx, name, file)
	if errors.Is(err, objectstore.ErrExists) {
		there, err := objectstore.Get(ctx, r.store, name, maxKeyFile)
		if err == nil {
			err = keys.CheckAdded(there, len(secret))
		}
		if err = readError(err); err != nil && !isOfOne(err) {
			return fmt.Errorf("get %q: %w", name, err)
		}
		if err != nil {
			done.LeftOut = append(done.LeftOut, fmt.Errorf("key file %q is in the way, and opens for nobody: %w; delete it and type this again", name, err))
			return nil
		}
		done.Had++
		return nil
	}
	if err != nil {
		return fmt.Errorf("create %q: %w", name, err)
	}
	return nil
}

// proveRoot asks the identities themselves whether the root key is right, where nobody has pinned it.
func (r *Repository) proveRoot(ctx context.Context, ids []age.Identity) error {
	if r.pinned {
		return nil
	}
	var err error
	r.pinned, err = keys.CheckProof(ctx, r.store, r.format, ids)
	return err
}
