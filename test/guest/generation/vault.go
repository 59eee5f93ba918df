package generation

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/hex"
	"errors"
	"fmt"
)

const (
	// VaultFile is the disk's copy of the generation; SealedPublic and
	// SealedPrivate beside it are the vault's key as the TPM sealed it.
	VaultFile     = "vault.bin"
	SealedPublic  = "sealed.pub"
	SealedPrivate = "sealed.priv"

	// KeyBytes is the length of the vault's key (AES-256).
	KeyBytes = 32

	headerFormat = "vmstate-generation %d %s\n"
	vaultText    = "This opens with the key that the guest's own TPM unseals.\n"
)

// ErrVault is returned for a vault that its key does not open.
var ErrVault = errors.New("vault does not open")

// SealVault returns the vault of m: one readable line, then AES-256-GCM under key.
// The line lets the host read the generation without the key; it is authenticated,
// so the guest trusts it no more than the rest.
func SealVault(key []byte, m Mark) ([]byte, error) {
	aead, err := vaultCipher(key)
	if err != nil {
		return nil, err
	}
	head := fmt.Appendf(nil, headerFormat, m.Generation, m.Identity)
	return append(head, aead.Seal(nil, nil, []byte(vaultText), head)...), nil
}

// OpenVault decrypts a vault and returns its mark. ErrVault if key is not its key
// or a byte was changed.
func OpenVault(key, vault []byte) (Mark, error) {
	m, err := ReadVaultHeader(vault)
	if err != nil {
		return Mark{}, err
	}
	aead, err := vaultCipher(key)
	if err != nil {
		return Mark{}, err
	}
	cut := bytes.IndexByte(vault, '\n') + 1
	if _, err := aead.Open(nil, nil, vault[cut:], vault[:cut]); err != nil {
		return Mark{}, fmt.Errorf("generation %d: %w", m.Generation, ErrVault)
	}
	return m, nil
}

// ReadVaultHeader returns the mark of the readable line, unauthenticated.
func ReadVaultHeader(vault []byte) (Mark, error) {
	line, _, ok := bytes.Cut(vault, []byte("\n"))
	var m Mark
	if _, err := fmt.Sscanf(string(line)+"\n", headerFormat, &m.Generation, &m.Identity); !ok || err != nil {
		return Mark{}, fmt.Errorf("vault of %d bytes: %w", len(vault), ErrMalformed)
	}
	if id, err := hex.DecodeString(m.Identity); err != nil || len(id) != IdentityBytes {
		return Mark{}, fmt.Errorf("vault identity %q: %w", m.Identity, ErrMalformed)
	}
	return m, nil
}

func vaultCipher(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("vault key: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}
