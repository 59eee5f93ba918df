package repository

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// Recipients and Keys are told in package keys.
type (
	Recipients = keys.Recipients
	Keys       = keys.Keys
)

// Repository is an open repository. It may be used concurrently.
type Repository struct {
	store      objectstore.Store
	format     keys.Format
	id         keys.ID
	keys       *keys.Keys
	identities []age.Identity
	handed     *Handed
	pinned     bool

	mu          sync.Mutex
	epochs      map[uint32]*keys.Epoch
	maintainers []ed25519.PublicKey // as they were last read

	trustMu sync.Mutex
	trust   *trust
	known   Known
}

// Init makes the repository in an empty store, or accepts the one that the same
// keys have made, also if that was left half done. ErrForeign if the store holds
// the repository of other keys. Recipients who were not there before are added.
func Init(ctx context.Context, store objectstore.Store, k *Keys, r Recipients) error {
	return keys.Init(ctx, store, k, r)
}

// Exists reports whether the store holds a repository, of whatever keys.
func Exists(ctx context.Context, store objectstore.Store) (bool, error) {
	_, err := keys.ReadFormat(ctx, store)
	if errors.Is(err, ErrNotInitialised) {
		return false, nil
	}
	return err == nil, err
}

// OpenWithKeys opens for backups; it also lists and shows, but reads no disk.
func OpenWithKeys(ctx context.Context, store objectstore.Store, k *Keys) (*Repository, error) {
	r, err := open(ctx, store)
	if err != nil {
		return nil, err
	}
	if err := keys.Owns(r.format, k); err != nil {
		return nil, err
	}
	r.keys, r.pinned = k, true
	r.epochs = k.Epochs()
	return r, nil
}

// OpenWithIdentities opens for reading, with nothing but the store and an age
// identity. rootKey pins the root signing key; nil accepts the store's, and then
// Commit.Authenticated is false unless the identity itself has proven it (keys.Prove). ErrWrongIdentity names who could open it.
func OpenWithIdentities(ctx context.Context, store objectstore.Store, ids []age.Identity, rootKey ed25519.PublicKey) (*Repository, error) {
	store = throughVersions(store)
	var r *Repository
	err := again(ctx, store, []string{keys.FormatKey, "k/"}, func() (err error) {
		r, err = openPinned(ctx, store, ids, rootKey)
		return err
	})
	return r, err
}

func openPinned(ctx context.Context, store objectstore.Store, ids []age.Identity, rootKey ed25519.PublicKey) (*Repository, error) {
	r, err := open(ctx, store)
	if err != nil {
		return nil, err
	}
	if err := r.pin(rootKey); err != nil {
		return nil, err
	}
	if err := r.proveRoot(ctx, ids); err != nil {
		return nil, err
	}
	r.identities = ids
	if _, err := r.epoch(ctx, 1); err != nil {
		return nil, err
	}
	return r, nil
}

// pin compares the root key that the store shows with one that is known otherwise; nil is none.
func (r *Repository) pin(rootKey ed25519.PublicKey) error {
	if rootKey == nil {
		return nil
	}
	if !bytes.Equal(rootKey, r.format.RootKey) {
		return fmt.Errorf("%w: root key of the repository is %s, not the pinned %s",
			ErrNotAuthentic, hex.EncodeToString(r.format.RootKey), hex.EncodeToString(rootKey))
	}
	r.pinned = true
	return nil
}

func open(ctx context.Context, store objectstore.Store) (*Repository, error) {
	store = throughVersions(store)
	var f keys.Format
	err := again(ctx, store, []string{keys.FormatKey}, func() (err error) {
		f, err = keys.ReadFormat(ctx, store)
		return err
	})
	if err != nil {
		return nil, err
	}
	id, err := keys.ParseID(f.Repository)
	if err != nil {
		return nil, err
	}
	return &Repository{store: store, format: f, id: id, epochs: map[uint32]*keys.Epoch{}}, nil
}

// ID names the repository.
func (r *Repository) ID() string { return r.id.String() }

// RootKey is the root signing key that the store shows; pin it elsewhere.
func (r *Repository) RootKey() ed25519.PublicKey { return r.format.RootKey }

// epoch returns the index keys of an epoch, from the key set or with an identity.
func (r *Repository) epoch(ctx context.Context, n uint32) (*keys.Epoch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.epochs[n]; ok {
		return e, nil
	}
	e, err := r.openEpoch(ctx, n)
	if errors.Is(err, objectstore.ErrNotFound) {
		err = fmt.Errorf("%w: %w", ErrMissing, err)
	}
	if err != nil {
		return nil, err
	}
	r.epochs[n] = e
	return e, nil
}

func (r *Repository) openEpoch(ctx context.Context, n uint32) (*keys.Epoch, error) {
	switch {
	case r.identities != nil:
		return keys.OpenEpoch(ctx, r.store, r.format, n, r.identities)
	case r.handed != nil:
		payload, ok := r.handed.Epochs[n]
		if !ok {
			return nil, fmt.Errorf("%w: the keys of epoch %d were not handed over", ErrNoIdentity, n)
		}
		return keys.AdoptEpoch(ctx, r.store, r.format, n, payload[:])
	default:
		return nil, fmt.Errorf("%w: the keys of epoch %d are not in this key set", ErrNoIdentity, n)
	}
}
