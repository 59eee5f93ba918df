// Package keys makes, keeps and finds the keys of a repository: who may read,
// who may write, and what the store says about both.
package keys

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
)

// ID is 128 bits that name a repository, a virtual machine or a run.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ParseID reads what String wrote.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("id %q has %d letters, not %d", s, len(s), 2*len(id))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil || id.String() != s {
		return ID{}, fmt.Errorf("id %q is not lower-case hexadecimal", s)
	}
	return id, nil
}

// Keys is what a writer holds: the index key of one epoch, the name key, which stays
// the same in every epoch so that chains of backups go on, and the signing key.
// It opens no disk contents. Kept in a Secret of the cluster.
type Keys struct {
	repository ID
	epoch      uint32
	index      [32]byte
	name       [32]byte
	signing    ed25519.PrivateKey
	// rootKey is the signing key of epoch 1; nil in epoch 1.
	rootKey ed25519.PublicKey
	// older are the epochs before, from 1: for reading what was written in them.
	older []olderKeys
}

// olderKeys are of an epoch that is over. Its private signing key is gone.
type olderKeys struct {
	index   [32]byte
	signing ed25519.PublicKey
}

// Next makes the keys of the next epoch: index and signing key are new, names stay, and what was written before can
// still be read. Rotate makes them known to the store.
func (k *Keys) Next() (*Keys, error) {
	next := &Keys{repository: k.repository, epoch: k.epoch + 1, name: k.name, rootKey: k.root()}
	rand.Read(next.index[:])
	_, signing, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate signing key: %w", err)
	}
	next.signing = signing
	next.older = append(slices.Clone(k.older), olderKeys{index: k.index, signing: k.SigningKey()})
	return next, nil
}

// succeeds says whether k was made by Next of before. Whoever makes it must hold all that before holds in secret but
// its signing key: keys that somebody else has put where these are looked for are never signed.
func (k *Keys) succeeds(before *Keys) bool {
	older := append(slices.Clone(before.older), olderKeys{index: before.index, signing: before.SigningKey()})
	return k.repository == before.repository && k.epoch == before.epoch+1 && k.name == before.name &&
		k.root().Equal(before.root()) && slices.EqualFunc(k.older, older, func(a, b olderKeys) bool {
		return a.index == b.index && a.signing.Equal(b.signing)
	})
}

func (k *Keys) root() ed25519.PublicKey {
	if k.rootKey == nil {
		return k.SigningKey()
	}
	return k.rootKey
}

// before is the key that signs the first file of this epoch: that of the epoch before, the root key for epoch 1.
func (k *Keys) before() ed25519.PublicKey {
	if len(k.older) == 0 {
		return k.SigningKey()
	}
	return k.older[len(k.older)-1].signing
}

// Epochs are all that these keys can read.
func (k *Keys) Epochs() map[uint32]*Epoch {
	out := map[uint32]*Epoch{k.epoch: {Set: k.Set(), SigningKey: k.SigningKey()}}
	for i, o := range k.older {
		n := uint32(i) + 1
		out[n] = &Epoch{Set: &Set{Repository: k.repository, Epoch: n, index: o.index, name: k.name}, SigningKey: o.signing}
	}
	return out
}

// Generate makes the keys of a new repository, epoch 1.
func Generate() (*Keys, error) {
	k := &Keys{epoch: 1}
	rand.Read(k.repository[:])
	rand.Read(k.index[:])
	rand.Read(k.name[:])
	_, signing, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate signing key: %w", err)
	}
	k.signing = signing
	return k, nil
}

// Repository names the repository that these keys are for.
func (k *Keys) Repository() ID { return k.repository }

// Epoch counts index key sets, from 1.
func (k *Keys) Epoch() uint32 { return k.epoch }

// SigningKey is the public half of the signing key; for epoch 1 the root key.
func (k *Keys) SigningKey() ed25519.PublicKey { return k.signing.Public().(ed25519.PublicKey) }
