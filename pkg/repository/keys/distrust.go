package keys

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
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

// StoreDistrust keeps a distrust in the store, signed by k, which must be of a later epoch, and returns which word of the
// store says it. What is said already is not said again. known is the latest word on that epoch that was seen; its zero
// value is none: if somebody has hidden or replaced it, the distrust is said again, behind it.
func StoreDistrust(ctx context.Context, store objectstore.Store, k *Keys, d Distrust, known Word) (Word, error) {
	if d.Epoch == 0 || d.Epoch >= k.epoch {
		return Word{}, fmt.Errorf("%w: keys of epoch %d cannot distrust epoch %d: rotate the keys first", ErrForeign, k.epoch, d.Epoch)
	}
	signers := map[uint32]ed25519.PublicKey{k.epoch: k.SigningKey()}
	var word Word
	said, shown := false, known.Number == 0
	for n := 1; ; n++ {
		body, err := readDistrust(ctx, store, n)
		if errors.Is(err, objectstore.ErrNotFound) {
			if shown && said {
				return word, nil
			}
			body, err = sayDistrust(ctx, store, k, d, n)
		}
		if err != nil {
			return Word{}, err
		}
		shown = shown || n > known.Number || n == known.Number && sha256.Sum256(body) == known.Digest
		if earlier, err := decodeDistrust(body, n, k.repository, signers); err == nil && earlier.Epoch == d.Epoch {
			mine, err := encodeDistrust(k, d, n)
			if err != nil {
				return Word{}, err
			}
			said, word = bytes.Equal(body, mine), Word{Epoch: d.Epoch, Number: n, Digest: sha256.Sum256(body)}
		}
	}
}

// sayDistrust stores a distrust under the number n, and returns what is there then: another process may have been faster.
func sayDistrust(ctx context.Context, store objectstore.Store, k *Keys, d Distrust, n int) ([]byte, error) {
	body, err := encodeDistrust(k, d, n)
	if err != nil {
		return nil, err
	}
	_, err = store.Create(ctx, distrustKey(n), body)
	if err != nil && !errors.Is(err, objectstore.ErrExists) {
		return nil, fmt.Errorf("create %q: %w", distrustKey(n), err)
	}
	return readDistrust(ctx, store, n)
}

func readDistrust(ctx context.Context, store objectstore.Store, n int) ([]byte, error) {
	body, err := objectstore.Get(ctx, store, distrustKey(n), maxDistrust)
	if err != nil {
		return nil, fmt.Errorf("get %q: %w", distrustKey(n), readError(err))
	}
	return body, nil
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

// Word names the word on an epoch that counts, among those in the store.
type Word struct {
	// Epoch that it is about.
	Epoch uint32
	// Number in the store; 0 is no word.
	Number int
	// Digest is the SHA-256 of the object.
	Digest [32]byte
}

// Said is a distrust, and which word of the store says it.
type Said struct {
	Distrust
	Word
}

// ReadDistrust reads what is said of signing keys, by the epoch that it is about: the word of the latest epoch counts, and
// of several in one the last. chain are the signing keys of all epochs. What is not signed by one of a later epoch says
// nothing. ErrSetBack if one of the known words is not there as it was.
func ReadDistrust(ctx context.Context, store objectstore.Store, f Format, chain map[uint32]ed25519.PublicKey, known []Word) (map[uint32]Said, error) {
	id, err := ParseID(f.Repository)
	if err != nil {
		return nil, err
	}
	out := map[uint32]Said{}
	for n := 1; ; n++ {
		body, err := readDistrust(ctx, store, n)
		if errors.Is(err, objectstore.ErrNotFound) {
			return out, noneBehind(n, known)
		}
		if err != nil {
			return nil, err
		}
		digest := sha256.Sum256(body)
		if slices.ContainsFunc(known, func(w Word) bool { return w.Number == n && w.Digest != digest }) {
			return nil, fmt.Errorf("%w: %q, which says what of an earlier epoch is still believed, is not the one that was there", ErrSetBack, distrustKey(n))
		}
		d, err := decodeDistrust(body, n, id, chain)
		if err == nil && d.by > d.Epoch && d.by >= out[d.Epoch].by {
			out[d.Epoch] = Said{*d, Word{Epoch: d.Epoch, Number: n, Digest: digest}}
		}
	}
}

// noneBehind is ErrSetBack if a word is known that has the number n, which is absent, or a later one.
func noneBehind(n int, known []Word) error {
	for _, w := range known {
		if w.Number >= n {
			return fmt.Errorf("%w: %q, which says what of an earlier epoch is still believed, is gone", ErrSetBack, distrustKey(n))
		}
	}
	return nil
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
