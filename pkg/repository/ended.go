package repository

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// errSigners: the maintenance keys cannot be read, so that it is not known whether one
// of them has signed something.
var errSigners = errors.New("maintenance keys of the repository cannot be read")

// byMaintenance checks something against the maintenance keys. They are read when the
// first such thing is met, and again when one is met that none of them has signed.
func (r *Repository) byMaintenance(ctx context.Context, check func([]ed25519.PublicKey) error) error {
	r.mu.Lock()
	signers := r.maintainers
	r.mu.Unlock()
	if len(signers) > 0 {
		if err := check(signers); !errors.Is(err, ErrNotAuthentic) {
			return err
		}
	}
	signers, err := keys.MaintenanceKeys(ctx, r.store, r.format)
	if err != nil {
		return fmt.Errorf("%w: %w", errSigners, err)
	}
	r.mu.Lock()
	r.maintainers = signers
	r.mu.Unlock()
	return check(signers)
}

// place is the head of a commit at a key, without what only its object tells.
func (r *Repository) place(n layout.CommitName) commit.Header {
	return commit.Header{Repository: r.id, VM: n.VM, Sequence: n.Sequence, Origin: keys.Origin{Run: n.Run}}
}

// tombstone looks whether a commit is announced to be removed, and returns its digest.
// Only what a maintenance key has signed counts: nothing else has the commit removed. If
// these keys cannot be read, anything there is taken for a tombstone.
func (r *Repository) tombstone(ctx context.Context, n layout.CommitName) (d commit.Digest, there bool, err error) {
	key := layout.Tombstone(n.VM, n.Sequence, n.Run)
	object, err := objectstore.Get(ctx, r.store, key, commit.MaxObject)
	switch {
	case errors.Is(err, objectstore.ErrNotFound), isBroken(readError(err)):
		return d, false, nil
	case err != nil:
		return d, false, fmt.Errorf("look for tombstone %q: %w", key, err)
	}
	err = r.byMaintenance(ctx, func(signers []ed25519.PublicKey) (err error) {
		d, err = commit.VerifyTombstone(object, r.place(n), signers)
		return err
	})
	switch {
	case err == nil, errors.Is(err, errSigners) && isBroken(err):
		return d, true, nil
	case isBroken(err):
		return d, false, nil
	default:
		return d, false, fmt.Errorf("tombstone %q: %w", key, err)
	}
}

// ended returns ErrAborted for a marker that a maintenance key has signed, and what is
// wrong with it otherwise.
func (r *Repository) ended(ctx context.Context, n layout.CommitName, marker []byte) error {
	err := r.byMaintenance(ctx, func(signers []ed25519.PublicKey) error {
		return commit.VerifyAborted(marker, r.place(n), signers)
	})
	if err == nil {
		return ErrAborted
	}
	return err
}

// AddMaintenanceKey publishes a maintenance key, and returns its number in the
// repository. It needs the repository's own keys.
func (r *Repository) AddMaintenanceKey(ctx context.Context, m *keys.MaintenanceKey) (int, error) {
	if r.keys == nil {
		return 0, ErrNoKeys
	}
	return keys.AddMaintenance(ctx, r.store, r.keys, m)
}

// ClaimOwner is told in package keys.
func (r *Repository) ClaimOwner(ctx context.Context, claimant keys.ID, takeOver []uint64) (keys.Owners, error) {
	if r.keys == nil {
		return keys.Owners{}, ErrNoKeys
	}
	return keys.ClaimOwner(ctx, r.store, r.keys, claimant, takeOver)
}
