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

// ageIntro begins every age file. An added key file is one, or a signed document around one.
const ageIntro = "age-encryption.org/"

// signerOf follows the signatures from the root key to the key that signs the first file of an epoch.
func signerOf(ctx context.Context, store objectstore.Store, f Format, epoch uint32) (ed25519.PublicKey, error) {
	if epoch == 0 {
		return nil, fmt.Errorf("%w: key epochs count from 1", ErrNotAuthentic)
	}
	signer := ed25519.PublicKey(f.RootKey)
	for n := uint32(2); n < epoch; n++ {
		e, err := readEpoch(ctx, store, EpochKey(n))
		if err == nil {
			err = inFile(EpochKey(n), e.follows(f, n, signer))
		}
		if err != nil {
			return nil, fmt.Errorf("follow the keys to epoch %d: %w", epoch, err)
		}
		signer = e.SigningKey
	}
	return signer, nil
}

// OpenEpoch opens the index keys of an epoch with an identity, if signatures lead from the root key to it. If the
// epoch's first file does not open, the files of later recipients are listed, and the first that does is as good. If
// none does, a file that is damaged or gone is told before one that is for others.
func OpenEpoch(ctx context.Context, store objectstore.Store, f Format, epoch uint32, ids []age.Identity) (*Epoch, error) {
	signer, err := signerOf(ctx, store, f, epoch)
	if err != nil {
		return nil, err
	}
	o := opening{store: store, format: f, epoch: epoch, ids: ids, signer: signer}
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
	return nil, fmt.Errorf("open index keys in %q: %w: it opens for %s", o.tried, ErrWrongIdentity, ShortList(slices.Compact(o.others)))
}

// AdoptEpoch takes index keys that somebody who could open them has handed over, if they are those that the epoch's
// first key file names.
func AdoptEpoch(ctx context.Context, store objectstore.Store, f Format, epoch uint32, payload []byte) (*Epoch, error) {
	signer, err := signerOf(ctx, store, f, epoch)
	if err != nil {
		return nil, err
	}
	key := EpochKey(epoch)
	e, err := readEpoch(ctx, store, key)
	if err != nil {
		return nil, err
	}
	if err := e.follows(f, epoch, signer); err != nil {
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
	signer ed25519.PublicKey
	first  *epochFile // the epoch's first file, once it is read and proven
	tried  []string   // keys of the files that were looked at
	others []string   // recipients of intact files
	bad    error      // of the first file that is not intact
}

// try returns nothing for a file that does not open.
func (o *opening) try(ctx context.Context, key string) (*Epoch, error) {
	o.tried = append(o.tried, key)
	opened, err := o.file(ctx, key)
	err = inFile(key, err)
	switch {
	case err == nil:
		return opened, nil
	case !isOfOne(err):
		return nil, err
	case errors.Is(err, ErrWrongIdentity):
	case o.bad == nil:
		o.bad = err
	}
	return nil, nil
}

func (o *opening) file(ctx context.Context, key string) (*Epoch, error) {
	body, err := objectstore.Get(ctx, o.store, key, maxDocument)
	if err != nil {
		return nil, readError(err)
	}
	if bytes.HasPrefix(body, []byte(ageIntro)) {
		return o.bare(body)
	}
	e, err := decodeEpoch(body)
	if err != nil {
		return nil, err
	}
	proven := e.follows(o.format, o.epoch, o.signer)
	switch {
	case proven == nil && key == EpochKey(o.epoch):
		o.first = &e
	case proven != nil && o.first != nil:
		proven = e.repeats(*o.first)
	}
	if proven != nil {
		return nil, proven
	}
	opened, err := e.open(o.format, o.ids)
	if errors.Is(err, ErrWrongIdentity) {
		o.others = append(o.others, e.Recipients...)
	}
	return opened, err
}

// bare opens a file that a holder of an identity has added: unsigned, and proven by what it holds.
func (o *opening) bare(body []byte) (*Epoch, error) {
	if o.first == nil {
		return nil, fmt.Errorf("%w: the first key file of the epoch, which tells what this one must hold, cannot be used", ErrDamaged)
	}
	plain, err := Unwrap(body, o.ids)
	if err != nil {
		return nil, err
	}
	return o.first.adopt(o.format, plain)
}

func inFile(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("open %q: %w", key, err)
}
