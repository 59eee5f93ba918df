package repository

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// trust is what is known of signing keys that are over.
type trust struct {
	chain map[uint32]ed25519.PublicKey
	// said is the word on each epoch, nil where there is none.
	said map[uint32]*keys.Distrust
}

// Known is what a reader knows of the signing keys by another way than the store, which could hide it: a bucket in
// wrong hands may show an epoch's successor, or what is distrusted, to nobody.
type Known struct {
	// Epoch is the latest that was seen; 0 if none was.
	Epoch uint32
	// Distrusted are epochs of which the store must say what is still believed.
	Distrusted []uint32
}

// Expect has backups refused where the store does not show what is known.
func (r *Repository) Expect(k Known) {
	r.trustMu.Lock()
	defer r.trustMu.Unlock()
	r.known = k
}

// believed is ErrNotAuthentic for a commit whose signing key is distrusted and that no cut names. It costs nothing
// while a repository has one epoch, but the look whether it has.
func (r *Repository) believed(ctx context.Context, o *opened) error {
	d, err := r.distrust(ctx, o.header.Epoch)
	if err != nil {
		return err
	}
	if d == nil || d.Believes(o.header.VM, o.digest) {
		return nil
	}
	return fmt.Errorf("%w (epoch %d), and this backup is not among those that are still believed", ErrDistrusted, o.header.Epoch)
}

func (r *Repository) distrust(ctx context.Context, epoch uint32) (*keys.Distrust, error) {
	r.trustMu.Lock()
	defer r.trustMu.Unlock()
	if r.trust == nil {
		t := &trust{said: map[uint32]*keys.Distrust{}, chain: map[uint32]ed25519.PublicKey{}}
		if r.keys != nil {
			for n, e := range r.keys.Epochs() {
				t.chain[n] = e.SigningKey
			}
		} else {
			var err error
			if t.chain, err = keys.Chain(ctx, r.store, r.format); err != nil {
				return nil, fmt.Errorf("follow the signing keys: %w", err)
			}
		}
		r.trust = t
	}
	if _, shown := r.trust.chain[r.known.Epoch]; r.known.Epoch > 0 && !shown {
		return nil, fmt.Errorf("%w: the keys are of epoch %d by now, and %q is gone or does not follow: somebody may hide what is distrusted",
			ErrNotAuthentic, r.known.Epoch, keys.EpochKey(r.known.Epoch))
	}
	if _, later := r.trust.chain[epoch+1]; !later {
		return nil, nil
	}
	if d, known := r.trust.said[epoch]; known {
		return d, nil
	}
	d, err := keys.ReadDistrust(ctx, r.store, r.format, epoch, r.trust.chain)
	if err != nil {
		return nil, err
	}
	if d == nil && slices.Contains(r.known.Distrusted, epoch) {
		return nil, fmt.Errorf("%w (epoch %d), and what of it is still believed is not in the store: see the findings of the VMStateStore", ErrDistrusted, epoch)
	}
	r.trust.said[epoch] = d
	return d, nil
}

// Distrust says of everything that the signing key of an earlier epoch has signed that only lastGood, the last good
// backup of each virtual machine, and the ones before it are to be believed. Backups of machines that are not named
// are not. It holds for everybody who reads the repository from now on.
func (r *Repository) Distrust(ctx context.Context, epoch uint32, lastGood []CommitRef) error {
	if r.keys == nil {
		return ErrNoKeys
	}
	d := keys.Distrust{Epoch: epoch}
	for _, ref := range lastGood {
		if ref.Digest == "" {
			return fmt.Errorf("%w: the last good backup %q is named without its digest", ErrInvalid, ref.Key)
		}
		o, err := r.readSigned(ctx, ref) // what was distrusted by mistake can be taken back
		if err != nil {
			return fmt.Errorf("last good backup: %w", err)
		}
		cut := keys.Cut{VM: o.header.VM, Sequence: o.header.Sequence, Digest: o.digest}
		for _, l := range o.record.Live {
			cut.Earlier = append(cut.Earlier, l.Digest)
		}
		d.Cuts = append(d.Cuts, cut)
	}
	if err := keys.StoreDistrust(ctx, r.store, r.keys, d); err != nil {
		return fmt.Errorf("distrust epoch %d: %w", epoch, err)
	}
	r.trustMu.Lock()
	defer r.trustMu.Unlock()
	r.trust = nil
	return nil
}
