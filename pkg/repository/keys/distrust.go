package keys

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Cut is the last backup of a virtual machine that is still to be believed, and with it the ones before.
type Cut struct {
	VM       ID
	Sequence uint64
	Digest   [32]byte
	// Earlier are the digests of the backups before it that are to be believed as well.
	Earlier [][32]byte
}

// Distrust says that of all that the signing key of an epoch has signed, only what the cuts name is to be believed.
type Distrust struct {
	Epoch uint32
	Cuts  []Cut
	// by is the epoch whose key has signed it.
	by uint32
}

// Believes says whether a commit of the distrusted epoch is to be believed.
func (d *Distrust) Believes(vm ID, digest [32]byte) bool {
	for _, c := range d.Cuts {
		if c.VM == vm && (c.Digest == digest || slices.Contains(c.Earlier, digest)) {
			return true
		}
	}
	return false
}

// distrustFile is a/distrust-<n>, n from 1.
type distrustFile struct {
	Version    int       `json:"version"`
	Repository string    `json:"repository"`
	Number     int       `json:"number"`
	Epoch      uint32    `json:"epoch"`
	Cuts       []cutFile `json:"cuts"`
	Signer     []byte    `json:"signer"`
	Signature  []byte    `json:"signature,omitempty"`
}

// cutFile holds the earlier digests one after the other.
type cutFile struct {
	VM       string `json:"vm"`
	Sequence uint64 `json:"sequence"`
	Digest   []byte `json:"digest"`
	Earlier  []byte `json:"earlier"`
}

const distrustContext = "vmstate/v1/distrust\x00"

// maxDistrust bounds a distrust in bytes: 43 for each backup that is believed.
const maxDistrust = 16 << 20

func distrustKey(n int) string { return fmt.Sprintf("a/distrust-%d", n) }

// StoreDistrust keeps a distrust in the store, signed by k, which must be of a later epoch. What is said already is not
// said again.
func StoreDistrust(ctx context.Context, store objectstore.Store, k *Keys, d Distrust) error {
	if d.Epoch == 0 || d.Epoch >= k.epoch {
		return fmt.Errorf("%w: keys of epoch %d cannot distrust epoch %d: rotate the keys first", ErrForeign, k.epoch, d.Epoch)
	}
	d.by = k.epoch
	signers := map[uint32]ed25519.PublicKey{k.epoch: k.SigningKey()}
	var said *Distrust
	for n := 1; ; n++ {
		body, err := objectstore.Get(ctx, store, distrustKey(n), maxDistrust)
		if err == nil {
			if earlier, err := decodeDistrust(body, n, k.repository, signers); err == nil && earlier.Epoch == d.Epoch {
				said = earlier
			}
			continue
		}
		if !errors.Is(err, objectstore.ErrNotFound) {
			return fmt.Errorf("get %q: %w", distrustKey(n), readError(err))
		}
		if said != nil && reflect.DeepEqual(*said, d) {
			return nil
		}
		if body, err = encodeDistrust(k, d, n); err != nil {
			return err
		}
		_, err = objectstore.CreateOrSame(ctx, store, distrustKey(n), body)
		if err != nil && !errors.Is(err, objectstore.ErrExists) {
			return fmt.Errorf("create %q: %w", distrustKey(n), err)
		}
		if err == nil {
			return nil
		}
	}
}

func encodeDistrust(k *Keys, d Distrust, n int) ([]byte, error) {
	file := distrustFile{
		Version: formatVersion, Repository: k.repository.String(), Number: n, Epoch: d.Epoch, Cuts: []cutFile{}, Signer: k.SigningKey(),
	}
	for _, c := range d.Cuts {
		f := cutFile{VM: c.VM.String(), Sequence: c.Sequence, Digest: c.Digest[:], Earlier: []byte{}}
		for _, e := range c.Earlier {
			f.Earlier = append(f.Earlier, e[:]...)
		}
		file.Cuts = append(file.Cuts, f)
	}
	unsigned, err := encode(file)
	if err != nil {
		return nil, err
	}
	file.Signature = k.Sign(distrustContext, unsigned)
	return encode(file)
}

// ReadDistrust reads what is said of the signing key of an epoch: the word of the latest epoch counts, and of several
// in one the last. Nil if nothing is said. later are the epochs that may say it, by number. What is not signed by one
// of them says nothing.
func ReadDistrust(ctx context.Context, store objectstore.Store, f Format, epoch uint32, later map[uint32]ed25519.PublicKey) (*Distrust, error) {
	id, err := ParseID(f.Repository)
	if err != nil {
		return nil, err
	}
	var out *Distrust
	for n := 1; ; n++ {
		body, err := objectstore.Get(ctx, store, distrustKey(n), maxDistrust)
		if errors.Is(err, objectstore.ErrNotFound) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("get %q: %w", distrustKey(n), readError(err))
		}
		d, err := decodeDistrust(body, n, id, later)
		if err == nil && d.Epoch == epoch && d.by > epoch && (out == nil || d.by >= out.by) {
			out = d
		}
	}
}

// decodeDistrust reads the distrust of a number. It is in the signature, so that an old one cannot be said again.
func decodeDistrust(body []byte, n int, repository ID, signers map[uint32]ed25519.PublicKey) (*Distrust, error) {
	var file distrustFile
	if err := decode(body, &file); err != nil {
		return nil, err
	}
	unsigned := file
	unsigned.Signature = nil
	if err := verify(file.Signer, distrustContext, unsigned, file.Signature); err != nil {
		return nil, err
	}
	d := &Distrust{Epoch: file.Epoch}
	for epoch, key := range signers {
		if bytes.Equal(key, file.Signer) {
			d.by = epoch
		}
	}
	if file.Version != formatVersion || file.Repository != repository.String() || file.Number != n || d.by == 0 {
		return nil, fmt.Errorf("%w: not signed by an epoch of this repository", ErrNotAuthentic)
	}
	for _, c := range file.Cuts {
		vm, err := ParseID(c.VM)
		if err != nil || len(c.Digest) != 32 || len(c.Earlier)%32 != 0 {
			return nil, fmt.Errorf("%w: malformed cut", ErrDamaged)
		}
		cut := Cut{VM: vm, Sequence: c.Sequence, Digest: [32]byte(c.Digest)}
		for e := range slices.Chunk(c.Earlier, 32) {
			cut.Earlier = append(cut.Earlier, [32]byte(e))
		}
		d.Cuts = append(d.Cuts, cut)
	}
	return d, nil
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
