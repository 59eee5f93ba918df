package keys

import (
	"bytes"
	"crypto/ed25519"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"

	"filippo.io/age"
)

// Epoch is one opened epoch: its index key with the name key, and the key that signs
// its commits.
type Epoch struct {
	*Set
	SigningKey ed25519.PublicKey
}

// EpochKey is the key of the first file of an epoch.
func EpochKey(epoch uint32) string { return fmt.Sprintf("k/%d.age", epoch) }

// AddedEpochKey is the key of a file for recipients that came later, in the same epoch.
func AddedEpochKey(epoch uint32, r Recipients) string {
	return fmt.Sprintf("k/%d-%s.age", epoch, SetFingerprint(r))
}

// SetFingerprint names a set of recipients, whatever their order.
func SetFingerprint(r Recipients) string {
	sorted, err := encode(sortedNames(r))
	if err != nil {
		panic(fmt.Sprintf("encode strings: %v", err)) // strings always encode
	}
	return Fingerprint(string(sorted))
}

// encodeEpoch is a key file of k, signed by by: the keys of the epoch before for the first file, k for others.
func encodeEpoch(k, by *Keys, r Recipients) ([]byte, error) {
	file, err := r.Wrap(k.Set().payload())
	if err != nil {
		return nil, err
	}
	commitment := k.Set().commitment()
	e := epochFile{
		Version:    formatVersion,
		Repository: k.repository.String(),
		Epoch:      k.epoch,
		Recipients: r.Strings(),
		SigningKey: k.SigningKey(),
		Commitment: commitment[:],
		Age:        file,
		Signer:     by.SigningKey(),
	}
	unsigned, err := encode(e)
	if err != nil {
		return nil, err
	}
	e.Signature = ed25519.Sign(by.signing, append([]byte(epochContext), unsigned...))
	return encode(e)
}

// decodeEpoch reads an epoch file and checks its signature, not yet who signed.
func decodeEpoch(body []byte) (epochFile, error) {
	var e epochFile
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return e, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if head.Version != formatVersion {
		return e, fmt.Errorf("%w: key file has version %d", ErrUnsupported, head.Version)
	}
	if err := decode(body, &e); err != nil {
		return e, err
	}
	unsigned := e
	unsigned.Signature = nil
	if err := verify(e.Signer, epochContext, unsigned, e.Signature); err != nil {
		return e, err
	}
	if len(e.SigningKey) != ed25519.PublicKeySize || len(e.Commitment) != 32 {
		return e, fmt.Errorf("%w: key or commitment has a wrong length", ErrDamaged)
	}
	return e, nil
}

// isOf reports whether a file holds the index keys of k, by the signature of k or of the epoch before.
func (e epochFile) isOf(k *Keys) bool {
	commitment := k.Set().commitment()
	return e.Repository == k.repository.String() && e.Epoch == k.epoch &&
		bytes.Equal(e.SigningKey, k.SigningKey()) && (bytes.Equal(e.Signer, k.SigningKey()) || bytes.Equal(e.Signer, k.before())) &&
		subtle.ConstantTimeCompare(e.Commitment, commitment[:]) == 1
}

// follows says whether a file is the first of its epoch: signed by the key of the epoch before.
func (e epochFile) follows(f Format, epoch uint32, before ed25519.PublicKey) error {
	if e.Repository != f.Repository || e.Epoch != epoch {
		return fmt.Errorf("%w: it is another repository's or another epoch's", ErrNotAuthentic)
	}
	if !bytes.Equal(e.Signer, before) || epoch == 1 && !bytes.Equal(e.SigningKey, f.RootKey) {
		return fmt.Errorf("%w: not signed by the key of the epoch before, or of another root key", ErrNotAuthentic)
	}
	return nil
}

// repeats says whether a file is another one of the epoch that first begins, signed in that epoch.
func (e epochFile) repeats(first epochFile) error {
	if e.Repository != first.Repository || e.Epoch != first.Epoch || !bytes.Equal(e.SigningKey, first.SigningKey) ||
		!bytes.Equal(e.Signer, first.SigningKey) || !bytes.Equal(e.Commitment, first.Commitment) {
		return fmt.Errorf("%w: it is not of the epoch that its name says", ErrNotAuthentic)
	}
	return nil
}

// open unwraps the index keys. ErrWrongIdentity names the recipients of the file.
func (e epochFile) open(f Format, identities []age.Identity) (*Epoch, error) {
	plain, err := Unwrap(e.Age, identities)
	if errors.Is(err, ErrWrongIdentity) {
		return nil, fmt.Errorf("%w: recipients are %s", ErrWrongIdentity, ShortList(e.Recipients))
	}
	if err != nil {
		return nil, err
	}
	return e.adopt(f, plain)
}

// adopt takes what somebody says the file holds, if it is what the file names.
func (e epochFile) adopt(f Format, payload []byte) (*Epoch, error) {
	id, err := ParseID(f.Repository)
	if err != nil {
		return nil, err
	}
	if len(payload) != PayloadBytes {
		return nil, fmt.Errorf("%w: index and name key have %d bytes", ErrDamaged, len(payload))
	}
	s := &Set{Repository: id, Epoch: e.Epoch, index: [32]byte(payload[:32]), name: [32]byte(payload[32:])}
	commitment := s.commitment()
	if subtle.ConstantTimeCompare(commitment[:], e.Commitment) != 1 {
		return nil, fmt.Errorf("%w: index and name key are not those that the key file names", ErrNotAuthentic)
	}
	return &Epoch{Set: s, SigningKey: e.SigningKey}, nil
}
