package mover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// MaintainResult is what one pass of cleaning up did.
type MaintainResult struct {
	repository.MaintainResult
	// Retention is what was locked for longer, in a store with object lock.
	Retention repository.ExtendResult
	// Sessions are of nobody that the task told of.
	Sessions []string
}

// Maintain is one pass of garbage collection. Its key is made at the first one, and kept before
// the repository follows it. A session is dead if it was there in the pass before, of nobody who
// was known, and is not of anybody who may be at work now: whoever begins after the task was
// planned has no session in the pass before.
func Maintain(ctx context.Context, e Env, c config.Maintain, now time.Time, keeper KeyKeeper) (MaintainResult, error) {
	var out MaintainResult
	store, ok := e.Store.(objectstore.Deleter)
	if !ok {
		return out, fmt.Errorf("%w: the store cannot delete", ErrTask)
	}
	k, err := e.repositoryKeys()
	if err != nil {
		return out, err
	}
	repo, err := e.expecting(ctx)(repository.OpenWithKeys(ctx, e.Store, k))
	if err != nil {
		return out, fmt.Errorf("open repository: %w", err)
	}
	key, err := e.maintenanceKey(ctx, repo, k, keeper)
	if err != nil {
		return out, err
	}
	spec := repository.MaintainSpec{Store: store, Key: key, Now: now, Interval: time.Duration(c.IntervalSeconds) * time.Second}
	if spec.Judge, err = judge(repo, c, &out.Sessions); err != nil {
		return out, err
	}
	for _, r := range c.Remove {
		spec.Remove = append(spec.Remove, repository.Removal{CommitRef: repository.CommitRef(r), Force: true})
	}
	for _, r := range c.Known {
		spec.Known = append(spec.Known, repository.CommitRef(r))
	}
	spec.Lost = c.Lost
	out.MaintainResult, err = repo.Maintain(ctx, spec)
	slices.Sort(out.Sessions)
	out.Sessions = slices.Compact(out.Sessions)
	if e.Lock == nil {
		return out, err
	}
	return out, errors.Join(err, e.extendRetention(ctx, repo, now, &out.Retention)) // whatever kept the pass from deleting
}

// judge tells what became of who made a session by what the task says of the backups and restores of the cluster, and collects
// the sessions that are of none of them.
func judge(repo *repository.Repository, c config.Maintain, nobodys *[]string) (func(context.Context, repository.Session) (repository.Fate, error), error) {
	alive := map[string]bool{}
	for _, w := range c.Alive {
		name, err := repo.SessionKey(w.VMUID, w.BackupUID)
		if err != nil {
			return nil, err
		}
		alive[name] = true
	}
	return func(_ context.Context, s repository.Session) (repository.Fate, error) {
		reads := func(uid string) bool { return repo.ReadBy(s, uid) }
		if alive[s.Key] || slices.ContainsFunc(c.Readers, reads) {
			return repository.Alive, nil
		}
		*nobodys = append(*nobodys, s.Key)
		if slices.Contains(c.Ended, s.Key) {
			return repository.Dead, nil
		}
		return repository.Unknown, nil
	}, nil
}

// extendRetention has all that backups need locked for as long as the store says. What has
// a tombstone since the pass is left to its time.
func (e Env) extendRetention(ctx context.Context, repo *repository.Repository, now time.Time, out *repository.ExtendResult) (err error) {
	store, ok := e.Store.(objectstore.Locker)
	if !ok {
		return fmt.Errorf("%w: the store cannot lock", ErrTask)
	}
	*out, err = repo.ExtendRetention(ctx, repository.ExtendSpec{
		Store: store, Mode: objectstore.RetentionMode(e.Lock.Mode), For: time.Duration(e.Lock.Days) * 24 * time.Hour, Now: now,
	})
	return err
}

// maintenanceKey reads the mounted key, or makes one. Publishing it again is harmless.
func (e Env) maintenanceKey(ctx context.Context, repo *repository.Repository, k *keys.Keys, keeper KeyKeeper) (*keys.MaintenanceKey, error) {
	files, err := readDir(e.Paths.MaintenanceKey)
	var m *keys.MaintenanceKey
	switch {
	case err == nil:
		if m, err = keys.MaintenanceFromSecret(files); err != nil {
			return nil, fmt.Errorf("maintenance key: %w", err)
		}
	case !errors.Is(err, ErrMount):
		return nil, err
	default:
		if m, err = keys.GenerateMaintenance(k); err != nil {
			return nil, err
		}
		if err := keeper.Keep(ctx, m.Secret()); errors.Is(err, ErrKeysExist) {
			return nil, fmt.Errorf("%w to find the maintenance key mounted: %w", ErrStartAgain, err)
		} else if err != nil {
			return nil, fmt.Errorf("keep the new maintenance key: %w", err)
		}
	}
	if _, err := repo.AddMaintenanceKey(ctx, m); err != nil {
		return nil, fmt.Errorf("publish the maintenance key: %w", err)
	}
	return m, nil
}

// verifyFor is how long one part is read for; the Job's own limit is 20 hours, and what a Job had read that is
// ended from outside would be read again, by every one of them.
const verifyFor = 18 * time.Hour

// Verify reads back a part of what e.Store holds, without any identity.
func Verify(ctx context.Context, e Env, c config.Verify) (repository.VerifyResult, error) {
	k, err := e.repositoryKeys()
	if err != nil {
		return repository.VerifyResult{}, err
	}
	repo, err := e.expecting(ctx)(repository.OpenWithKeys(ctx, e.Store, k))
	if err != nil {
		return repository.VerifyResult{}, fmt.Errorf("open repository: %w", err)
	}
	return repo.Verify(ctx, repository.VerifySpec{
		State: c.Cursor, Parts: c.Parts, BytesPerSecond: c.BytesPerSecond, Until: time.Now().Add(verifyFor),
		Progress: func(p repository.VerifyProgress) { e.progress(Progress{Total: p.Total, Done: p.Bytes, Read: p.Bytes}) },
	})
}
