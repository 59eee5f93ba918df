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
		return Format{}, fmt.Errorf("get %q: %w", FormatKey, readError(err))
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
	there, err := ownEpoch(ctx, store, key, k)
	if err != nil || there.Equal(r) {
		return err
	}
	return addEpoch(ctx, store, k, r, body)
}

// addEpoch stores a file for recipients who came later. One that is there must be
// just that: exports would go to recipients who can never open the index key.
func addEpoch(ctx context.Context, store objectstore.Store, k *Keys, r Recipients, body []byte) error {
	key := addedKey(k.epoch, r)
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

// OpenEpoch opens the index keys of an epoch with an identity. If the epoch's first
// file does not open, the files of later recipients are listed, and the first that does
// is as good. If none does, a file that is damaged or gone is told before one that
// is for others.
func OpenEpoch(ctx context.Context, store objectstore.Store, f Format, epoch uint32, ids []age.Identity) (*Epoch, error) {
	if err := supportedEpoch(epoch); err != nil {
		return nil, err
	}
	o := opening{store: store, format: f, epoch: epoch, ids: ids}
	opened, err := o.try(ctx, EpochKey(epoch))
	if opened != nil || err != nil {
		return opened, err
	}
	for info, err := range store.List(ctx, fmt.Sprintf("k/%d-", epoch)) {
		if err != nil {
			return nil, fmt.Errorf("list key files: %w", err)
		}
		if !strings.HasSuffix(info.Key, ".age") {
			continue
		}
		if opened, err := o.try(ctx, info.Key); opened != nil || err != nil {
			return opened, err
		}
	}
	if o.bad != nil {
		return nil, o.bad
	}
	slices.Sort(o.others)
	return nil, fmt.Errorf("open index keys: %w: it opens for %s", ErrWrongIdentity, ShortList(slices.Compact(o.others)))
}

// AdoptEpoch takes index keys that somebody who could open them has handed over, if they are
// those that the epoch's first key file names.
func AdoptEpoch(ctx context.Context, store objectstore.Store, f Format, epoch uint32, payload []byte) (*Epoch, error) {
	key := EpochKey(epoch)
	e, err := readEpoch(ctx, store, key)
	if err != nil {
		return nil, err
	}
	if err := e.proves(f, epoch); err != nil {
		return nil, inFile(key, err)
	}
	opened, err := e.adopt(f, payload)
	return opened, inFile(key, err)
}

// opening is the search for a key file that opens.
type opening struct {
	store  objectstore.Store
	format Format
	epoch  uint32
	ids    []age.Identity
	others []string // recipients of intact files
	bad    error    // of the first file that is not intact
}

// try returns nothing for a file that does not open.
func (o *opening) try(ctx context.Context, key string) (*Epoch, error) {
	e, err := readEpoch(ctx, o.store, key)
	var opened *Epoch
	if err == nil {
		opened, err = e.open(o.format, o.epoch, o.ids)
		err = inFile(key, err)
	}
	switch {
	case err == nil:
		return opened, nil
	case !isOfOne(err):
		return nil, err
	case errors.Is(err, ErrWrongIdentity):
		o.others = append(o.others, e.Recipients...)
	case o.bad == nil:
		o.bad = err
	}
	return nil, nil
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
