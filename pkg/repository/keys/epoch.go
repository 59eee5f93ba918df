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

// addedKey is the key of a file for recipients that came later, in the same epoch.
func addedKey(epoch uint32, r Recipients) string {
	return fmt.Sprintf("k/%d-%s.age", epoch, setFingerprint(r))
}

func setFingerprint(r Recipients) string {
	sorted, err := encode(sortedNames(r))
	if err != nil {
		panic(fmt.Sprintf("encode strings: %v", err)) // strings always encode
	}
	return Fingerprint(string(sorted))
}

func encodeEpoch(k *Keys, r Recipients) ([]byte, error) {
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
		Signer:     k.SigningKey(),
	}
	unsigned, err := encode(e)
	if err != nil {
		return nil, err
	}
	e.Signature = ed25519.Sign(k.signing, append([]byte(epochContext), unsigned...))
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

// isOf reports whether a file holds the index keys of k, by k's own signature.
func (e epochFile) isOf(k *Keys) bool {
	commitment := k.Set().commitment()
	return e.Repository == k.repository.String() && e.Epoch == k.epoch &&
		bytes.Equal(e.SigningKey, k.SigningKey()) && bytes.Equal(e.Signer, k.SigningKey()) &&
		subtle.ConstantTimeCompare(e.Commitment, commitment[:]) == 1
}

// supportedEpoch refuses key sets that rotation will make. Each is to be signed by
// the one before it, back to the root key: until that chain is followed, whoever can
// write to the store could put a key set of his own in its place.
func supportedEpoch(epoch uint32) error {
	if epoch != 1 {
		return fmt.Errorf("%w: keys of epoch %d; this program knows epoch 1 only", ErrUnsupported, epoch)
	}
	return nil
}

// open unwraps the index keys. ErrWrongIdentity names the recipients of the file.
func (e epochFile) open(f Format, want uint32, identities []age.Identity) (*Epoch, error) {
	if err := e.proves(f, want); err != nil {
		return nil, err
	}
	plain, err := Unwrap(e.Age, identities)
	if errors.Is(err, ErrWrongIdentity) {
		return nil, fmt.Errorf("%w: recipients are %s", ErrWrongIdentity, ShortList(e.Recipients))
	}
	if err != nil {
		return nil, err
	}
	return e.adopt(f, plain)
}

// proves says whether a file names the keys of an epoch with the authority of the root key.
func (e epochFile) proves(f Format, want uint32) error {
	if e.Repository != f.Repository || e.Epoch != want {
		return fmt.Errorf("%w: it is another repository's or another epoch's", ErrNotAuthentic)
	}
	if err := supportedEpoch(e.Epoch); err != nil {
		return err
	}
	if !bytes.Equal(e.Signer, f.RootKey) || !bytes.Equal(e.SigningKey, f.RootKey) {
		return fmt.Errorf("%w: not signed by the root key, or of another signing key", ErrNotAuthentic)
	}
	return nil
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
