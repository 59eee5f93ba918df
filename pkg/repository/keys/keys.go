// Package keys makes, keeps and finds the keys of a repository: who may read,
// who may write, and what the store says about both.
package keys

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
)

// ID is 128 bits that name a repository, a virtual machine or a run.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ParseID reads what String wrote.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return id, fmt.Errorf("id %q has %d letters, not %d", s, len(s), 2*len(id))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil || id.String() != s {
		return ID{}, fmt.Errorf("id %q is not lower-case hexadecimal", s)
	}
	return id, nil
}

// Keys is what a writer holds: the index key of one epoch, the name key, which stays
// the same in every epoch so that chains of backups go on, and the signing key.
// It opens no disk contents. Kept in a Secret of the cluster.
type Keys struct {
	repository ID
	epoch      uint32
	index      [32]byte
	name       [32]byte
	signing    ed25519.PrivateKey
}

// Generate makes the keys of a new repository, epoch 1.
func Generate() (*Keys, error) {
	k := &Keys{epoch: 1}
	rand.Read(k.repository[:])
	rand.Read(k.index[:])
	rand.Read(k.name[:])
	_, signing, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate signing key: %w", err)
	}
	k.signing = signing
	return k, nil
}

// Repository names the repository that these keys are for.
func (k *Keys) Repository() ID { return k.repository }

// Epoch counts index key sets, from 1.
func (k *Keys) Epoch() uint32 { return k.epoch }

// SigningKey is the public half of the signing key; for epoch 1 the root key.
func (k *Keys) SigningKey() ed25519.PublicKey { return k.signing.Public().(ed25519.PublicKey) }

// The members of the Secret.
const (
	secretVersion    = "version"
	secretRepository = "repository"
	secretEpoch      = "epoch"
	secretIndex      = "index.key"
	secretName       = "name.key"
	secretSigning    = "signing.key"
)

// Secret returns the keys as the data of a Kubernetes Secret.
func (k *Keys) Secret() map[string][]byte {
	return map[string][]byte{
		secretVersion:    []byte("1"),
		secretRepository: []byte(k.repository.String()),
		secretEpoch:      []byte(strconv.FormatUint(uint64(k.epoch), 10)),
		secretIndex:      append([]byte(nil), k.index[:]...),
		secretName:       append([]byte(nil), k.name[:]...),
		secretSigning:    append([]byte(nil), k.signing.Seed()...),
	}
}

// FromSecret reads what Secret wrote. ErrSecret names the member, never its value;
// ErrUnsupported for keys of a later epoch.
func FromSecret(data map[string][]byte) (*Keys, error) {
	if v := string(data[secretVersion]); v != "1" {
		return nil, fmt.Errorf("%w: member %q is not 1", ErrSecret, secretVersion)
	}
	id, err := ParseID(string(data[secretRepository]))
	if err != nil {
		return nil, fmt.Errorf("%w: member %q is not an id", ErrSecret, secretRepository)
	}
	epoch, err := strconv.ParseUint(string(data[secretEpoch]), 10, 32)
	if err != nil || epoch == 0 {
		return nil, fmt.Errorf("%w: member %q is not a number from 1", ErrSecret, secretEpoch)
	}
	if err := supportedEpoch(uint32(epoch)); err != nil {
		return nil, err
	}
	for _, name := range []string{secretIndex, secretName, secretSigning} {
		if len(data[name]) != 32 {
			return nil, fmt.Errorf("%w: member %q has %d bytes, not 32", ErrSecret, name, len(data[name]))
		}
	}
	return &Keys{
		repository: id,
		epoch:      uint32(epoch),
		index:      [32]byte(data[secretIndex]),
		name:       [32]byte(data[secretName]),
		signing:    ed25519.NewKeyFromSeed(data[secretSigning]),
	}, nil
}
