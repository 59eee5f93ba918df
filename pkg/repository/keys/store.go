package keys

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

func sortedNames(r Recipients) []string { return slices.Sorted(slices.Values(r.names)) }

// ReadFormat reads format.json. ErrNotInitialised if it is absent.
func ReadFormat(ctx context.Context, store objectstore.Store) (Format, error) {
	body, err := objectstore.Get(ctx, store, FormatKey, maxDocument)
	if errors.Is(err, objectstore.ErrNotFound) {
		return Format{}, fmt.Errorf("%w: %w", ErrNotInitialised, err)
	}
	if err != nil {
		return Format{}, fmt.Errorf("get %q: %w", FormatKey, readError(err))
	}
	return DecodeFormat(body)
}

// Init writes the key file of the epoch and then format.json, each only if it is
// not there. What is there must be of the same keys: ErrForeign otherwise.
func Init(ctx context.Context, store objectstore.Store, k *Keys, r Recipients) error {
	found, err := ReadFormat(ctx, store)
	initialised := err == nil
	if err != nil && !errors.Is(err, ErrNotInitialised) {
		return err
	}
	if !initialised && k.epoch > 1 {
		return err // later epochs come to a repository that is there
	}
	if initialised {
		if err := Owns(found, k); err != nil {
			return err
		}
	}
	if err := initEpoch(ctx, store, k, r); err != nil || k.epoch > 1 {
		return err
	}
	body, err := encodeFormat(k)
	if err != nil {
		return err
	}
	if _, err := objectstore.CreateOrSame(ctx, store, FormatKey, body); err != nil {
		if errors.Is(err, objectstore.ErrExists) {
			err = fmt.Errorf("%w: %w", ErrForeign, err)
		}
		return fmt.Errorf("create %q: %w", FormatKey, err)
	}
	return nil
}

// Owns returns ErrForeign unless k are keys of the repository that f describes.
func Owns(f Format, k *Keys) error {
	if f.Repository != k.repository.String() {
		return fmt.Errorf("%w: the store holds repository %s, the keys are for %s",
			ErrForeign, f.Repository, k.repository)
	}
	if !bytes.Equal(f.RootKey, k.root()) {
		return fmt.Errorf("%w: the root signing key differs", ErrForeign)
	}
	return nil
}

func initEpoch(ctx context.Context, store objectstore.Store, k *Keys, r Recipients) error {
	key := EpochKey(k.epoch)
	body, err := encodeEpoch(k, k, r)
	if err != nil {
		return err
	}
	if k.epoch == 1 {
		_, err = store.Create(ctx, key, body)
		if err == nil {
			return nil
		}
		if !errors.Is(err, objectstore.ErrExists) {
			return fmt.Errorf("create %q: %w", key, err)
		}
	}
	there, err := ownEpoch(ctx, store, key, k)
	if err != nil || there.Equal(r) {
		return err
	}
	return addEpoch(ctx, store, k, r, body)
}

// addEpoch stores a file for recipients who came later. One that is there must be
// just that: exports would go to recipients who can never open the index key.
func addEpoch(ctx context.Context, store objectstore.Store, k *Keys, r Recipients, body []byte) error {
	key := AddedEpochKey(k.epoch, r)
	_, err := store.Create(ctx, key, body)
	if err == nil {
		return nil
	}
	if !errors.Is(err, objectstore.ErrExists) {
		return fmt.Errorf("create %q: %w", key, err)
	}
	there, err := ownEpoch(ctx, store, key, k)
	if err != nil {
		return err
	}
	if !there.Equal(r) {
		return fmt.Errorf("%w: %q is for other recipients than its name says", ErrDamaged, key)
	}
	return nil
}

// ownEpoch returns the recipients of a key file. ErrForeign unless it is of k.
func ownEpoch(ctx context.Context, store objectstore.Store, key string, k *Keys) (Recipients, error) {
	found, err := readEpoch(ctx, store, key)
	if err != nil {
		return Recipients{}, err
	}
	if !found.isOf(k) {
		return Recipients{}, fmt.Errorf("%w: %q was written with other keys, which are lost or elsewhere; "+
			"use another prefix or bring its keys back", ErrForeign, key)
	}
	r, err := ParseRecipients(found.Recipients)
	if err != nil {
		return r, fmt.Errorf("%w: %q: %w", ErrDamaged, key, err)
	}
	return r, nil
}

func readEpoch(ctx context.Context, store objectstore.Store, key string) (epochFile, error) {
	body, err := objectstore.Get(ctx, store, key, maxDocument)
	if err != nil {
		return epochFile{}, fmt.Errorf("get %q: %w", key, readError(err))
	}
	e, err := decodeEpoch(body)
	if err != nil {
		return e, fmt.Errorf("%q: %w", key, err)
	}
	return e, nil
}

// readError adds to what a store answers what it means: cut or altered is ErrDamaged.
func readError(err error) error {
	for _, kind := range []error{objectstore.ErrTooLarge, objectstore.ErrShort, objectstore.ErrCorrupted} {
		if errors.Is(err, kind) {
			return fmt.Errorf("%w: %w", ErrDamaged, err)
		}
	}
	return err
}

// isOfOne reports whether err is about one key file, so that another may open.
func isOfOne(err error) bool {
	for _, kind := range []error{ErrWrongIdentity, ErrDamaged, ErrNotAuthentic, ErrUnsupported, objectstore.ErrNotFound} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// Rotate makes the keys of the next epoch known to the store, signed by those of the epoch before. Again is harmless.
// ErrForeign if another key set has taken that epoch: whoever made it had the signing key of the epoch before.
func Rotate(ctx context.Context, store objectstore.Store, before, next *Keys, r Recipients) error {
	if !next.succeeds(before) {
		return fmt.Errorf("%w: keys of epoch %d do not follow those of epoch %d", ErrForeign, next.epoch, before.epoch)
	}
	f, err := ReadFormat(ctx, store)
	if err != nil {
		return err
	}
	if err := Owns(f, before); err != nil {
		return err
	}
	body, err := encodeEpoch(next, before, r)
	if err != nil {
		return err
	}
	_, err = store.Create(ctx, EpochKey(next.epoch), body)
	if err != nil && !errors.Is(err, objectstore.ErrExists) {
		return fmt.Errorf("create %q: %w", EpochKey(next.epoch), err)
	}
	return initEpoch(ctx, store, next, r)
}

// Superseded says whether an epoch follows that of k, in the store.
func Superseded(ctx context.Context, store objectstore.Store, f Format, k *Keys) (bool, error) {
	e, err := readEpoch(ctx, store, EpochKey(k.epoch+1))
	switch {
	case err == nil:
		return e.follows(f, k.epoch+1, k.SigningKey()) == nil, nil
	case isOfOne(err):
		return false, nil
	default:
		return false, err
	}
}

// Sign signs body for context.
func (k *Keys) Sign(context string, body []byte) []byte {
	return ed25519.Sign(k.signing, append([]byte(context), body...))
}
