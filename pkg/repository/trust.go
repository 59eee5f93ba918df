package repository

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// trust is what the store shows of its signing keys.
type trust struct {
	chain map[uint32]ed25519.PublicKey
	// said are the words on epochs that are over; nil before they are read.
	said map[uint32]keys.Said
}

// Known is told in package keys.
type Known = keys.Known

// Word is told in package keys.
type Word = keys.Word

// Expect has backups refused where the store does not show what is known.
func (r *Repository) Expect(k Known) {
	r.trustMu.Lock()
	defer r.trustMu.Unlock()
	r.known = k
}

// Shows is ErrSetBack if the store does not show all that is known, also where no backup asks for it. It costs nothing
// for a repository that nobody knows more than one epoch of.
func (r *Repository) Shows(ctx context.Context) error {
	r.trustMu.Lock()
	known := r.known
	r.trustMu.Unlock()
	if known.Epoch <= 1 && len(known.Words) == 0 {
		return nil
	}
	return again(ctx, r.store, trustPrefixes, func() error {
		_, err := keys.Trust(ctx, r.store, r.format, r.keys, known)
		return err
	})
}

// trustPrefixes are where what is known of signing keys may have been covered.
var trustPrefixes = []string{"k/", "a/distrust-"}

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

// distrust is the word on an epoch; nil if there is none.
func (r *Repository) distrust(ctx context.Context, epoch uint32) (*keys.Distrust, error) {
	r.trustMu.Lock()
	defer r.trustMu.Unlock()
	var d *keys.Distrust
	err := again(ctx, r.store, trustPrefixes, func() (err error) {
		d, err = r.wordOn(ctx, epoch)
		if errors.Is(err, ErrSetBack) {
			r.trust = nil // what was put over it may be looked through
		}
		return err
	})
	return d, err
}

func (r *Repository) wordOn(ctx context.Context, epoch uint32) (*keys.Distrust, error) {
	if r.trust == nil {
		t := &trust{}
		if r.keys != nil {
			t.chain = r.keys.SigningKeys()
		} else {
			var err error
			if t.chain, err = keys.Chain(ctx, r.store, r.format); err != nil {
				return nil, fmt.Errorf("follow the signing keys: %w", err)
			}
		}
		r.trust = t
	}
	if err := r.known.Shows(r.trust.chain); err != nil {
		return nil, err
	}
	if _, later := r.trust.chain[epoch+1]; !later {
		return nil, nil
	}
	if r.trust.said == nil {
		said, err := keys.ReadDistrust(ctx, r.store, r.format, r.trust.chain, r.known.Words)
		if err != nil {
			return nil, err
		}
		r.trust.said = said
	}
	if d, said := r.trust.said[epoch]; said {
		return &d.Distrust, nil
	}
	if slices.Contains(r.known.Distrusted, epoch) {
		return nil, fmt.Errorf("%w (epoch %d), and what of it is still believed is not in the store: see the findings of the VMStateStore", ErrDistrusted, epoch)
	}
	return nil, nil
}

// Distrust says of everything that the signing key of an earlier epoch has signed that only lastGood, the last good
// backup of each virtual machine, and the ones before it are to be believed. Backups of machines that are not named
// are not. It holds for everybody who reads the repository from now on. The word that says so is returned, to be known.
func (r *Repository) Distrust(ctx context.Context, epoch uint32, lastGood []CommitRef) (Word, error) {
	if r.keys == nil {
		return Word{}, ErrNoKeys
	}
	d := keys.Distrust{Epoch: epoch}
	for _, ref := range lastGood {
		if ref.Digest == "" {
			return Word{}, fmt.Errorf("%w: the last good backup %q is named without its digest", ErrInvalid, ref.Key)
		}
		o, err := r.readSigned(ctx, ref) // what was distrusted by mistake can be taken back
		if err != nil {
			return Word{}, fmt.Errorf("last good backup: %w", err)
		}
		cut := keys.Cut{VM: o.header.VM, Sequence: o.header.Sequence, Digest: o.digest}
		for _, l := range o.record.Live {
			cut.Earlier = append(cut.Earlier, l.Digest)
		}
		d.Cuts = append(d.Cuts, cut)
	}
	r.trustMu.Lock()
	defer r.trustMu.Unlock()
	word, err := keys.StoreDistrust(ctx, r.store, r.keys, d, r.known.Word(epoch))
	if err != nil {
		return word, fmt.Errorf("distrust epoch %d: %w", epoch, err)
	}
	r.trust = nil
	r.known = r.known.With(word)
	return word, nil
}
