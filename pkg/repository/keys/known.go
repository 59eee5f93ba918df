package keys

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Known is what a reader knows of the signing keys by another way than the store, which could hide or replace it: a
// bucket in wrong hands may show an epoch's successor, or what is distrusted, to nobody, and whoever has the signing key
// of an epoch that is over can make another successor.
type Known struct {
	// Epoch is the latest that was seen; 0 if none was.
	Epoch uint32
	// SigningKey is that epoch's; nil if it is not known.
	SigningKey ed25519.PublicKey
	// Distrusted are epochs of which the store must say what is still believed.
	Distrusted []uint32
	// Words are the latest that were seen, at most one an epoch.
	Words []Word
}

// Word is the latest that was seen on an epoch; the zero value if none was.
func (k Known) Word(epoch uint32) Word {
	at := slices.IndexFunc(k.Words, func(w Word) bool { return w.Epoch == epoch })
	if at < 0 {
		return Word{}
	}
	return k.Words[at]
}

// With also knows a word, instead of the earlier one on its epoch.
func (k Known) With(w Word) Known {
	k.Words = append(slices.DeleteFunc(slices.Clone(k.Words), func(o Word) bool { return o.Epoch == w.Epoch }), w)
	return k
}

// Shows is ErrSetBack unless a chain of signing keys leads to the latest that is known.
func (k Known) Shows(chain map[uint32]ed25519.PublicKey) error {
	if k.Epoch == 0 {
		return nil
	}
	shown, there := chain[k.Epoch]
	switch {
	case !there:
		return fmt.Errorf("%w: the keys are of epoch %d by now, and %q is gone or does not follow: somebody may hide what is distrusted",
			ErrSetBack, k.Epoch, EpochKey(k.Epoch))
	case k.SigningKey != nil && !bytes.Equal(shown, k.SigningKey):
		return fmt.Errorf("%w: %q has another signing key than it had: somebody who has that of epoch %d may have made it",
			ErrSetBack, EpochKey(k.Epoch), k.Epoch-1)
	default:
		return nil
	}
}

// Chain is the signing key of every epoch, as signatures lead from the root key to it. A file that does not follow
// ends it.
func Chain(ctx context.Context, store objectstore.Store, f Format) (map[uint32]ed25519.PublicKey, error) {
	out := map[uint32]ed25519.PublicKey{1: f.RootKey}
	for n := uint32(2); ; n++ {
		e, err := readEpoch(ctx, store, EpochKey(n))
		if err != nil && !isOfOne(err) {
			return nil, err
		}
		if err != nil || e.follows(f, n, out[n-1]) != nil {
			return out, nil
		}
		out[n] = e.SigningKey
	}
}

// Trust is what the store shows of its signing keys: what a reader keeps, to know it the next time. ErrSetBack if that is
// not all that is known. k are the keys of the repository, whose word counts more than the store's; nil if they are not here.
func Trust(ctx context.Context, store objectstore.Store, f Format, k *Keys, known Known) (Known, error) {
	chain, err := Chain(ctx, store, f)
	if err != nil {
		return Known{}, fmt.Errorf("follow the signing keys: %w", err)
	}
	if err := known.Shows(chain); err != nil {
		return Known{}, err
	}
	if k != nil {
		if err := (Known{Epoch: k.epoch, SigningKey: k.SigningKey()}).Shows(chain); err != nil {
			return Known{}, err
		}
		if known.Epoch <= k.epoch { // else keys were brought here that are over
			chain = k.SigningKeys()
		}
	}
	said, err := ReadDistrust(ctx, store, f, chain, known.Words)
	if err != nil {
		return Known{}, err
	}
	latest := slices.Max(slices.Collect(maps.Keys(chain)))
	out := Known{Epoch: latest, SigningKey: chain[latest]}
	for _, epoch := range slices.Sorted(maps.Keys(said)) {
		out.Words = append(out.Words, said[epoch].Word)
	}
	return out, nil
}

// SigningKeys are those of all epochs up to that of k.
func (k *Keys) SigningKeys() map[uint32]ed25519.PublicKey {
	out := map[uint32]ed25519.PublicKey{}
	for n, e := range k.Epochs() {
		out[n] = e.SigningKey
	}
	return out
}
