package keys

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// ownerFile is o/<n>: who judges the sessions that carry n.
type ownerFile struct {
	Version    int      `json:"version"`
	Repository string   `json:"repository"`
	Owner      uint64   `json:"owner"`
	Claimant   string   `json:"claimant"`
	TakesOver  []uint64 `json:"takesOver,omitempty"`
	MAC        []byte   `json:"mac,omitempty"`
}

// mac proves that who claims holds the keys of the repository, of whatever epoch.
func (o ownerFile) mac(k *Keys) ([]byte, error) {
	o.MAC = nil
	body, err := encode(o)
	if err != nil {
		return nil, err
	}
	zero := ID{}
	key := Derive(k.name[:], k.repository, PurposeOwner, zero[:])
	h := hmac.New(sha256.New, key[:])
	h.Write(body)
	return h.Sum(nil), nil
}

// maxOwners bounds how many claims a repository has.
const maxOwners = 1000

func ownerName(n uint64) string { return fmt.Sprintf("o/%d", n) }

// Owners are the numbers that one claimant has: Current is for new sessions, and Judged
// are all whose writers and readers it may say are dead.
type Owners struct {
	Current uint64
	Judged  []uint64
}

// ClaimOwner claims a number for claimant, 32 hexadecimal digits that tell one cluster
// from another, or finds what it has claimed before. With takeOver it claims a further
// number that takes over the sessions of these owners: the clusters that they belong to
// are gone for good, which only a person can know.
func ClaimOwner(ctx context.Context, store objectstore.Store, k *Keys, claimant ID, takeOver []uint64) (Owners, error) {
	var own Owners
	found := false
	takeOver = slices.Compact(slices.Sorted(slices.Values(takeOver)))
	for n := uint64(0); n < maxOwners; n++ {
		there, err := readOwner(ctx, store, k, n)
		switch {
		case errors.Is(err, objectstore.ErrNotFound):
			missing := slices.DeleteFunc(slices.Clone(takeOver), func(o uint64) bool { return slices.Contains(own.Judged, o) || o >= n })
			if found && len(missing) == 0 {
				return own, nil
			}
			there, err = putOwner(ctx, store, k, ownerFile{Owner: n, Claimant: claimant.String(), TakesOver: missing})
			if err != nil {
				return Owners{}, err
			}
		case errors.Is(err, ErrNotAuthentic), errors.Is(err, ErrDamaged):
			continue // nobody's: whoever may write can put anything there
		case err != nil:
			return Owners{}, err
		}
		if there.Claimant == claimant.String() {
			found = true
			own.Current = n
			own.Judged = append(append(own.Judged, n), there.TakesOver...)
		}
	}
	return Owners{}, fmt.Errorf("%w: %d owners", ErrUnsupported, maxOwners)
}

// putOwner claims a number; if another was faster, what that one put is returned.
func putOwner(ctx context.Context, store objectstore.Store, k *Keys, o ownerFile) (ownerFile, error) {
	o.Version, o.Repository = formatVersion, k.repository.String()
	var err error
	if o.MAC, err = o.mac(k); err != nil {
		return o, err
	}
	body, err := encode(o)
	if err != nil {
		return o, err
	}
	_, err = objectstore.CreateOrSame(ctx, store, ownerName(o.Owner), body)
	if errors.Is(err, objectstore.ErrExists) {
		there, err := readOwner(ctx, store, k, o.Owner)
		if errors.Is(err, ErrNotAuthentic) || errors.Is(err, ErrDamaged) {
			return ownerFile{}, nil
		}
		return there, err
	}
	if err != nil {
		return o, fmt.Errorf("claim owner %d: %w", o.Owner, err)
	}
	return o, nil
}

func readOwner(ctx context.Context, store objectstore.Store, k *Keys, n uint64) (ownerFile, error) {
	var o ownerFile
	name := ownerName(n)
	body, err := objectstore.Get(ctx, store, name, maxDocument)
	if err != nil {
		return o, fmt.Errorf("get %q: %w", name, readError(err))
	}
	if err := decode(body, &o); err != nil {
		return o, fmt.Errorf("%q: %w", name, err)
	}
	want, err := o.mac(k)
	if err != nil {
		return o, err
	}
	if !hmac.Equal(want, o.MAC) {
		return o, fmt.Errorf("%q: %w: not claimed with the keys of this repository", name, ErrNotAuthentic)
	}
	if o.Repository != k.repository.String() || o.Owner != n {
		return o, fmt.Errorf("%q: %w: it is another claim", name, ErrNotAuthentic)
	}
	return o, nil
}
