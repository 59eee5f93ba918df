package index

import (
	"bytes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"hash"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// Hash is 256 bits that name a node. The zero Hash names an all-zero part.
type Hash [32]byte

// Tag is 128 bits: a content id or a fingerprint.
type Tag [16]byte

// Hasher computes ids and fingerprints of units. It is used from one goroutine.
type Hasher struct {
	gmac     cipher.AEAD
	id, hide hash.Hash
	nonce    [12]byte
	tag      [16]byte
	sum      [sha256.Size]byte
}

// NewHasher makes ids and fingerprints of one chain of backups.
func NewHasher(s *keys.Set, domain keys.ID) *Hasher {
	id, hide := s.Key(keys.PurposeContent, domain), s.Key(keys.PurposeHide, domain)
	return &Hasher{
		gmac: keys.AEAD(s.Key(keys.PurposeFingerprint, domain)),
		id:   hmac.New(sha256.New, id[:]),
		hide: hmac.New(sha256.New, hide[:]),
	}
}

// ID is the content id of a unit: HMAC-SHA-256 cut to 128 bits. It decides what a
// unit is, on restore and everywhere else but Fingerprint's one question.
func (h *Hasher) ID(unit []byte) Tag {
	h.id.Reset()
	h.id.Write(unit)
	return Tag(h.id.Sum(h.sum[:0])[:16])
}

// Fingerprint answers whether a unit is unchanged against the parent, seven times
// as fast as ID does. The GMAC itself is never kept: it is linear, so whoever has
// its key could solve an unknown unit from it.
func (h *Hasher) Fingerprint(unit []byte) Tag {
	gmac := h.gmac.Seal(h.tag[:0], h.nonce[:], nil, unit)
	h.hide.Reset()
	h.hide.Write(gmac)
	return Tag(h.hide.Sum(h.sum[:0])[:16])
}

// IsZero reports whether all of b is zero.
func IsZero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1])
}

// nodeHash is the HMAC-SHA-256 of a node's contents under the epoch's key.
func nodeHash(key [32]byte, parts ...[]byte) Hash {
	m := hmac.New(sha256.New, key[:])
	for _, p := range parts {
		m.Write(p)
	}
	return Hash(m.Sum(nil))
}
