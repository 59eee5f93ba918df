package keys

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// The purposes of proofs: PurposeChallenge of the index and name key, PurposeProof of an identity's text.
const (
	PurposeChallenge Purpose = "challenge"
	PurposeProof     Purpose = "root-key-proof"
)

const answerContext = "vmstate/v1/answer\x00"

// Challenge is an age file that the holder of one recipient's identity opens, and nobody else: the cluster that made
// it proves nothing by it. Its contents are the same each time, so that no answer has to be waited for.
func (k *Keys) Challenge(recipient string) ([]byte, error) {
	r, err := ParseRecipients([]string{recipient})
	if err != nil {
		return nil, err
	}
	secret := k.challenge(Fingerprint(recipient))
	return r.Wrap(secret[:])
}

func (k *Keys) challenge(fingerprint string) [32]byte {
	return Derive(k.Set().payload(), k.repository, PurposeChallenge, []byte(fingerprint))
}

// Proof is what the holder of an identity says of a repository: that this is its root key. Only the identity can make
// it, and only the identity can check it.
type Proof struct {
	// Recipient is the fingerprint of the identity's recipient.
	Recipient string
	MAC       [32]byte
	// Answer proves to the maker of the challenge that it was opened by who made the proof.
	Answer [32]byte
}

// Prove answers a challenge. ErrWrongIdentity if it is for another identity.
func Prove(challenge []byte, identity age.Identity, repository ID, rootKey []byte) (Proof, error) {
	p := Proof{Recipient: Fingerprint(RecipientOf(identity))}
	secret, err := Unwrap(challenge, []age.Identity{identity})
	if err != nil {
		return p, fmt.Errorf("open the challenge: %w", err)
	}
	if len(secret) != 32 {
		return p, fmt.Errorf("%w: the challenge holds %d bytes", ErrDamaged, len(secret))
	}
	p.MAC = proofMAC(identity, repository, rootKey)
	p.Answer = answer([32]byte(secret), p.MAC)
	return p, nil
}

func proofMAC(identity age.Identity, repository ID, rootKey []byte) [32]byte {
	zero := ID{}
	key := Derive([]byte(identityText(identity)), repository, PurposeProof, zero[:])
	h := hmac.New(sha256.New, key[:])
	h.Write(repository[:])
	h.Write(rootKey)
	return [32]byte(h.Sum(nil))
}

func answer(secret, mac [32]byte) [32]byte {
	h := hmac.New(sha256.New, secret[:])
	h.Write([]byte(answerContext))
	h.Write(mac[:])
	return [32]byte(h.Sum(nil))
}

// identityText is the secret part as keygen writes it, empty for foreign kinds.
func identityText(i age.Identity) string {
	switch i := i.(type) {
	case *age.HybridIdentity:
		return i.String()
	case *age.X25519Identity:
		return i.String()
	default:
		return ""
	}
}

// proofFile is a/proof-<recipient's fingerprint>.
type proofFile struct {
	Version    int    `json:"version"`
	Repository string `json:"repository"`
	Recipient  string `json:"recipient"`
	RootKey    []byte `json:"rootKey"`
	Proof      []byte `json:"proof"`
}

// ProofPrefix is that of all proofs.
const ProofPrefix = "a/proof-"

// ProofKey is the key of the proof by the identity of a recipient.
func ProofKey(fingerprint string) string { return ProofPrefix + fingerprint }

// StoreProof keeps a proof in the store if its answer opens the challenge for one of the recipients. What is in its
// place already stays: ErrForeign if that is another.
func StoreProof(ctx context.Context, store objectstore.Store, k *Keys, r Recipients, p Proof) error {
	known := false
	for _, f := range r.Fingerprints() {
		known = known || f == p.Recipient
	}
	want := answer(k.challenge(p.Recipient), p.MAC)
	if !known || !hmac.Equal(want[:], p.Answer[:]) {
		return fmt.Errorf("%w: the proof for %s does not answer its challenge", ErrNotAuthentic, p.Recipient)
	}
	body, err := encode(proofFile{
		Version: formatVersion, Repository: k.repository.String(), Recipient: p.Recipient, RootKey: k.root(), Proof: p.MAC[:],
	})
	if err != nil {
		return err
	}
	if _, err := objectstore.CreateOrSame(ctx, store, ProofKey(p.Recipient), body); err != nil {
		if errors.Is(err, objectstore.ErrExists) {
			err = fmt.Errorf("%w: %w", ErrForeign, err)
		}
		return fmt.Errorf("create %q: %w", ProofKey(p.Recipient), err)
	}
	return nil
}

// Proven tells which of the recipients' identities have proven the root key, by fingerprint. That a proof is there is
// all that can be seen without the identity.
func Proven(ctx context.Context, store objectstore.Store, r Recipients) ([]string, error) {
	var out []string
	for _, f := range r.Fingerprints() {
		_, err := store.Stat(ctx, ProofKey(f))
		switch {
		case err == nil:
			out = append(out, f)
		case !errors.Is(err, objectstore.ErrNotFound):
			return nil, fmt.Errorf("look for %q: %w", ProofKey(f), err)
		}
	}
	return out, nil
}

// CheckProof says whether one of the identities has proven the root key that format.json shows. A proof of another
// root key is ErrNotAuthentic: somebody has put a repository of his own in the place of the one that was proven. One
// that is altered proves nothing, and stands in nobody's way.
func CheckProof(ctx context.Context, store objectstore.Store, f Format, ids []age.Identity) (bool, error) {
	id, err := ParseID(f.Repository)
	if err != nil {
		return false, err
	}
	for _, identity := range ids {
		key := ProofKey(Fingerprint(RecipientOf(identity)))
		body, err := objectstore.Get(ctx, store, key, maxDocument)
		if errors.Is(err, objectstore.ErrNotFound) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("get %q: %w", key, err)
		}
		var p proofFile
		if decode(body, &p) != nil || p.Version != formatVersion {
			continue
		}
		of, err := ParseID(p.Repository)
		if err != nil {
			continue
		}
		mac := proofMAC(identity, of, p.RootKey)
		if !hmac.Equal(mac[:], p.Proof) {
			continue
		}
		if of != id || string(p.RootKey) != string(f.RootKey) {
			return false, fmt.Errorf("%q: %w: this identity has proven repository %s with another root key than the one that is here",
				key, ErrNotAuthentic, of)
		}
		return true, nil
	}
	return false, nil
}
