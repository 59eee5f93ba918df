package keys

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// MaintenanceKey signs what garbage collection says: tombstones, markers of ended runs,
// lists of candidates. No writer of backups holds it; it is kept in a Secret that only
// the maintenance Job mounts.
type MaintenanceKey struct {
	repository ID
	signing    ed25519.PrivateKey
}

// GenerateMaintenance makes a maintenance key for the repository of k. It counts once
// AddMaintenance has published it.
func GenerateMaintenance(k *Keys) (*MaintenanceKey, error) {
	_, signing, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate maintenance key: %w", err)
	}
	return &MaintenanceKey{repository: k.repository, signing: signing}, nil
}

const secretMaintenance = "maintenance.key"

// Secret returns the key as the data of a Kubernetes Secret.
func (m *MaintenanceKey) Secret() map[string][]byte {
	return map[string][]byte{
		secretVersion:     []byte("1"),
		secretRepository:  []byte(m.repository.String()),
		secretMaintenance: append([]byte(nil), m.signing.Seed()...),
	}
}

// MaintenanceFromSecret reads what Secret wrote. ErrSecret names the member, never its
// value.
func MaintenanceFromSecret(data map[string][]byte) (*MaintenanceKey, error) {
	if v := string(data[secretVersion]); v != "1" {
		return nil, fmt.Errorf("%w: member %q is not 1", ErrSecret, secretVersion)
	}
	id, err := ParseID(string(data[secretRepository]))
	if err != nil {
		return nil, fmt.Errorf("%w: member %q is not an id", ErrSecret, secretRepository)
	}
	seed := data[secretMaintenance]
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("%w: member %q has %d bytes, not %d", ErrSecret, secretMaintenance, len(seed), ed25519.SeedSize)
	}
	return &MaintenanceKey{repository: id, signing: ed25519.NewKeyFromSeed(seed)}, nil
}

// Repository names the repository that the key is for.
func (m *MaintenanceKey) Repository() ID { return m.repository }

// Public is the half that the repository shows.
func (m *MaintenanceKey) Public() ed25519.PublicKey { return m.signing.Public().(ed25519.PublicKey) }

// Sign signs body for context.
func (m *MaintenanceKey) Sign(context string, body []byte) []byte {
	return ed25519.Sign(m.signing, append([]byte(context), body...))
}

// maintenanceFile is a/maintenance-<n>.
type maintenanceFile struct {
	Version    int    `json:"version"`
	Repository string `json:"repository"`
	Key        []byte `json:"key"`
	Signature  []byte `json:"signature,omitempty"`
}

const maintenanceContext = "vmstate/v1/maintenance\x00"

// maxMaintenance bounds how many maintenance keys a repository has had.
const maxMaintenance = 1000

func maintenanceName(n int) string { return fmt.Sprintf("a/maintenance-%d", n) }

// AddMaintenance publishes a maintenance key under the next free number, signed by the
// signing key of k's epoch, and returns that number; the number that it has if it is there already. Keys
// that were published before go on to be followed: what they signed stays.
func AddMaintenance(ctx context.Context, store objectstore.Store, k *Keys, m *MaintenanceKey) (int, error) {
	f, err := ReadFormat(ctx, store)
	if err != nil {
		return 0, err
	}
	if err := Owns(f, k); err != nil {
		return 0, err
	}
	if m.repository != k.repository {
		return 0, fmt.Errorf("%w: the maintenance key is for repository %s", ErrForeign, m.repository)
	}
	file := maintenanceFile{Version: formatVersion, Repository: k.repository.String(), Key: m.Public()}
	unsigned, err := encode(file)
	if err != nil {
		return 0, err
	}
	file.Signature = k.Sign(maintenanceContext, unsigned)
	body, err := encode(file)
	if err != nil {
		return 0, err
	}
	for n := 1; n <= maxMaintenance; n++ {
		_, err := objectstore.CreateOrSame(ctx, store, maintenanceName(n), body)
		if err == nil || !errors.Is(err, objectstore.ErrExists) {
			return n, err
		}
	}
	return 0, fmt.Errorf("%w: %d maintenance keys", ErrUnsupported, maxMaintenance)
}

// MaintenanceKeys reads the maintenance keys of a repository, oldest first, by probing
// their names. One that no epoch's signing key has signed is left out: whoever may write could
// have put it there. A damaged one is an error, since it may be what an answer depends on.
func MaintenanceKeys(ctx context.Context, store objectstore.Store, f Format) ([]ed25519.PublicKey, error) {
	var out []ed25519.PublicKey
	signers := map[uint32]ed25519.PublicKey{1: f.RootKey}
	for n := 1; n <= maxMaintenance; n++ {
		body, err := objectstore.Get(ctx, store, maintenanceName(n), maxDocument)
		if errors.Is(err, objectstore.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("get %q: %w", maintenanceName(n), readError(err))
		}
		key, err := decodeMaintenance(body, f, signers)
		if errors.Is(err, ErrNotAuthentic) && len(signers) == 1 { // perhaps made after a rotation
			if signers, err = Chain(ctx, store, f); err != nil {
				return nil, fmt.Errorf("follow the signing keys: %w", err)
			}
			key, err = decodeMaintenance(body, f, signers)
		}
		if errors.Is(err, ErrNotAuthentic) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", maintenanceName(n), err)
		}
		out = append(out, key)
	}
	return out, nil
}

// decodeMaintenance reads a maintenance key that one of the epochs' signing keys has signed.
func decodeMaintenance(body []byte, f Format, signers map[uint32]ed25519.PublicKey) (ed25519.PublicKey, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if head.Version != formatVersion {
		return nil, fmt.Errorf("%w: maintenance key has version %d", ErrUnsupported, head.Version)
	}
	var m maintenanceFile
	if err := decode(body, &m); err != nil {
		return nil, err
	}
	unsigned := m
	unsigned.Signature = nil
	err := ErrNotAuthentic
	for _, signer := range signers {
		if err != nil {
			err = verify(signer, maintenanceContext, unsigned, m.Signature)
		}
	}
	if err != nil {
		return nil, err
	}
	if m.Repository != f.Repository {
		return nil, fmt.Errorf("%w: it is another repository's", ErrNotAuthentic)
	}
	if len(m.Key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%w: key has a wrong length", ErrDamaged)
	}
	return m.Key, nil
}
