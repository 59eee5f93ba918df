package keys

import (
	"crypto/ed25519"
	"fmt"
	"strconv"
)

// The members of the Secret. Those of older epochs have the number of the epoch in their name.
const (
	secretVersion    = "version"
	secretRepository = "repository"
	secretEpoch      = "epoch"
	secretIndex      = "index.key"
	secretName       = "name.key"
	secretSigning    = "signing.key"
	secretRoot       = "root.pub"
)

// maxEpoch bounds what a Secret may claim to hold.
const maxEpoch = 1000

func secretOlder(epoch int) (index, signing string) {
	return fmt.Sprintf("index.%d.key", epoch), fmt.Sprintf("signing.%d.pub", epoch)
}

// Secret returns the keys as the data of a Kubernetes Secret.
func (k *Keys) Secret() map[string][]byte {
	data := map[string][]byte{
		secretVersion:    []byte("1"),
		secretRepository: []byte(k.repository.String()),
		secretEpoch:      []byte(strconv.FormatUint(uint64(k.epoch), 10)),
		secretIndex:      append([]byte(nil), k.index[:]...),
		secretName:       append([]byte(nil), k.name[:]...),
		secretSigning:    append([]byte(nil), k.signing.Seed()...),
	}
	if k.epoch > 1 {
		data[secretRoot] = append([]byte(nil), k.rootKey...)
	}
	for i, o := range k.older {
		index, signing := secretOlder(i + 1)
		data[index], data[signing] = append([]byte(nil), o.index[:]...), append([]byte(nil), o.signing...)
	}
	return data
}

// FromSecret reads what Secret wrote. ErrSecret names the member, never its value.
func FromSecret(data map[string][]byte) (*Keys, error) {
	if v := string(data[secretVersion]); v != "1" {
		return nil, fmt.Errorf("%w: member %q is not 1", ErrSecret, secretVersion)
	}
	id, err := ParseID(string(data[secretRepository]))
	if err != nil {
		return nil, fmt.Errorf("%w: member %q is not an id", ErrSecret, secretRepository)
	}
	epoch, err := strconv.ParseUint(string(data[secretEpoch]), 10, 32)
	if err != nil || epoch == 0 || epoch > maxEpoch {
		return nil, fmt.Errorf("%w: member %q is not a number from 1", ErrSecret, secretEpoch)
	}
	members := []string{secretIndex, secretName, secretSigning}
	if epoch > 1 {
		members = append(members, secretRoot)
	}
	for n := 1; n < int(epoch); n++ {
		index, signing := secretOlder(n)
		members = append(members, index, signing)
	}
	for _, name := range members {
		if len(data[name]) != 32 {
			return nil, fmt.Errorf("%w: member %q has %d bytes, not 32", ErrSecret, name, len(data[name]))
		}
	}
	k := &Keys{
		repository: id,
		epoch:      uint32(epoch),
		index:      [32]byte(data[secretIndex]),
		name:       [32]byte(data[secretName]),
		signing:    ed25519.NewKeyFromSeed(data[secretSigning]),
	}
	if epoch > 1 {
		k.rootKey = data[secretRoot]
	}
	for n := 1; n < int(epoch); n++ {
		index, signing := secretOlder(n)
		k.older = append(k.older, olderKeys{index: [32]byte(data[index]), signing: data[signing]})
	}
	return k, nil
}
