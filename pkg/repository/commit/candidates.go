package commit

import (
	"bytes"
	"crypto/ed25519"
	"fmt"

	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/wire"
)

const (
	magicCandidates   = "VMSTCAN1"
	candidatesContext = "vmstate/v1/candidates\x00"
)

// Limits of a list of candidates.
const (
	MaxCandidates      = 100_000
	maxCandidateKey    = 256
	MaxCandidateObject = 32 << 20
)

// Candidates is what a pass of garbage collection has found to be of no use, to be
// deleted by a later pass that finds the same.
type Candidates struct {
	Repository keys.ID
	// Pass numbers the list; its key repeats it.
	Pass uint64
	// Since is when each key was first found to be of no use, in seconds since 1970.
	Keys []Candidate
}

// Candidate is one object. Its key is relative to the store.
type Candidate struct {
	Key   string
	Since int64
}

// Encode returns the signed object. Keys are sorted.
func (c *Candidates) Encode(m *keys.MaintenanceKey) []byte {
	b := append([]byte(magicCandidates), c.Repository[:]...)
	b = wire.AppendUvarint(b, c.Pass)
	b = appendList(b, c.Keys, func(b []byte, k Candidate) []byte {
		return wire.AppendInt(wire.AppendString(b, k.Key), k.Since)
	})
	return append(b, m.Sign(candidatesContext, b)...)
}

// DecodeCandidates checks that one of signers has signed the list, and reads it.
func DecodeCandidates(object []byte, signers []ed25519.PublicKey) (*Candidates, error) {
	cut := len(object) - ed25519.SignatureSize
	if cut < len(magicCandidates) || !bytes.HasPrefix(object, []byte(magicCandidates)) {
		return nil, fmt.Errorf("%w: not a list of candidates", keys.ErrDamaged)
	}
	if err := signedByOne(object, candidatesContext, signers); err != nil {
		return nil, err
	}
	c := &Candidates{}
	d := wire.NewDecoder(object[len(magicCandidates):cut])
	d.Copy(c.Repository[:])
	c.Pass = uint64(d.Int64())
	last := ""
	c.Keys = takeList(d, MaxCandidates, func(d *wire.Decoder) Candidate {
		k := Candidate{Key: d.String(maxCandidateKey), Since: d.Int64()}
		if k.Key <= last {
			d.Fail("keys out of order")
		}
		last = k.Key
		return k
	})
	if err := d.Close(); err != nil {
		return nil, fmt.Errorf("%w: list of candidates: %w", keys.ErrDamaged, err)
	}
	return c, nil
}
