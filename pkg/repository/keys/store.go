package keys

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"

	"filippo.io/age"

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
		return Format{}, fmt.Errorf("get %q: %w", FormatKey, damagedIfLarge(err))
	}
	return DecodeFormat(body)
}

// Init writes the key file of the epoch and then format.json, each only if it is
// not there. What is there must be of the same keys: ErrForeign otherwise.
func Init(ctx context.Context, store objectstore.Store, k *Keys, r Recipients) error {
	if err := supportedEpoch(k.epoch); err != nil {
		return err
	}
	found, err := ReadFormat(ctx, store)
	initialised := err == nil
	if err != nil && !errors.Is(err, ErrNotInitialised) {
		return err
	}
	if initialised {
		if err := Owns(found, k); err != nil {
			return err
		}
	}
	if err := initEpoch(ctx, store, k, r); err != nil {
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

// Owns returns ErrForeign unless k are keys of the repository that f describes, and
// ErrUnsupported for a later epoch.
func Owns(f Format, k *Keys) error {
	if f.Repository != k.repository.String() {
		return fmt.Errorf("%w: the store holds repository %s, the keys are for %s",
			ErrForeign, f.Repository, k.repository)
	}
	if err := supportedEpoch(k.epoch); err != nil {
		return err
	}
	if !bytes.Equal(f.RootKey, k.SigningKey()) {
		return fmt.Errorf("%w: the root signing key differs", ErrForeign)
	}
	return nil
}

func initEpoch(ctx context.Context, store objectstore.Store, k *Keys, r Recipients) error {
	key := EpochKey(k.epoch)
	body, err := encodeEpoch(k, r)
	if err != nil {
		return err
	}
	_, err = store.Create(ctx, key, body)
	if err == nil {
		return nil
	}
	if !errors.Is(err, objectstore.ErrExists) {
		return fmt.Errorf("create %q: %w", key, err)
	}
	found, err := readEpoch(ctx, store, key)
	if err != nil {
		return err
	}
	if !found.isOf(k) {
		return fmt.Errorf("%w: %q was written with other keys, which are lost or elsewhere; "+
			"use another prefix or bring its keys back", ErrForeign, key)
	}
	there, err := ParseRecipients(found.Recipients)
	if err != nil {
		return fmt.Errorf("%w: %q: %w", ErrDamaged, key, err)
	}
	if there.Equal(r) {
		return nil
	}
	key = addedKey(k.epoch, r)
	_, err = store.Create(ctx, key, body)
	if err != nil && !errors.Is(err, objectstore.ErrExists) {
		return fmt.Errorf("create %q: %w", key, err)
	}
	return nil
}

func readEpoch(ctx context.Context, store objectstore.Store, key string) (epochFile, error) {
	body, err := objectstore.Get(ctx, store, key, maxDocument)
	if err != nil {
		return epochFile{}, fmt.Errorf("get %q: %w", key, damagedIfLarge(err))
	}
	e, err := decodeEpoch(body)
	if err != nil {
		return e, fmt.Errorf("%q: %w", key, err)
	}
	return e, nil
}

func damagedIfLarge(err error) error {
	if errors.Is(err, objectstore.ErrTooLarge) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// OpenEpoch opens the index keys of an epoch with an identity. If the epoch's first
// file is for others, the files of later recipients are listed and tried.
func OpenEpoch(ctx context.Context, store objectstore.Store, f Format, epoch uint32, ids []age.Identity) (*Epoch, error) {
	if err := supportedEpoch(epoch); err != nil {
		return nil, err
	}
	first, err := readEpoch(ctx, store, EpochKey(epoch))
	if err != nil {
		return nil, err
	}
	opened, err := first.open(f, epoch, ids)
	if err == nil || !errors.Is(err, ErrWrongIdentity) {
		return opened, inFile(EpochKey(epoch), err)
	}
	recipients := slices.Clone(first.Recipients)
	for info, listErr := range store.List(ctx, fmt.Sprintf("k/%d-", epoch)) {
		if listErr != nil {
			return nil, fmt.Errorf("list key files: %w", listErr)
		}
		if !strings.HasSuffix(info.Key, ".age") {
			continue
		}
		e, readErr := readEpoch(ctx, store, info.Key)
		if readErr != nil {
			return nil, readErr
		}
		opened, openErr := e.open(f, epoch, ids)
		if !errors.Is(openErr, ErrWrongIdentity) {
			return opened, inFile(info.Key, openErr)
		}
		recipients = append(recipients, e.Recipients...)
	}
	slices.Sort(recipients)
	return nil, fmt.Errorf("open index keys: %w: it opens for %s", ErrWrongIdentity, ShortList(slices.Compact(recipients)))
}

func inFile(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("open %q: %w", key, err)
}

// Sign signs body for context.
func (k *Keys) Sign(context string, body []byte) []byte {
	return ed25519.Sign(k.signing, append([]byte(context), body...))
}
