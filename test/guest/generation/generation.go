// Package generation holds what the guest and its host-side tools agree on: the
// generation number, how each of the three places carries it, and the rule that
// tells a true moment from a set that was put together.
//
//	disk  file vault.bin on the ext4 partition DATA (vault.go)
//	TPM   NV counter NVCounter, identity in NV index NVIdentity
//	EFI   variable EFIName, identity and number, 16 bytes
package generation

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

const (
	// EFIName and EFIGUID name the EFI variable. The name is short because every
	// rewrite costs the variable store a whole new record.
	EFIName = "VmstateGen"
	EFIGUID = "5c7bb1a4-2f0d-4d5b-8f0a-6f2f9d1c7e53"

	// NVCounter and NVIdentity are TPM NV indexes in the owner's range.
	NVCounter  = 0x01800101
	NVIdentity = 0x01800102

	// DataPartition is the GPT name of the ext4 partition with the vault.
	DataPartition = "DATA"

	// IdentityBytes is the length of the random identity made on first boot.
	IdentityBytes = 8

	efiBytes = IdentityBytes + 8
)

// ErrMalformed is returned for bytes that are there but are no generation.
var ErrMalformed = errors.New("malformed generation")

// Mark is the generation as one place holds it. Identity tells guests apart: the
// same number in two guests is not the same state. Hex, 16 digits.
type Mark struct {
	Identity   string `json:"identity"`
	Generation uint64 `json:"generation"`
}

// Next is the mark that the next step writes.
func (m Mark) Next() Mark { return Mark{Identity: m.Identity, Generation: m.Generation + 1} }

// EncodeEFI returns the value of the EFI variable, without attributes.
func (m Mark) EncodeEFI() ([]byte, error) {
	id, err := hex.DecodeString(m.Identity)
	if err != nil || len(id) != IdentityBytes {
		return nil, fmt.Errorf("identity %q: %w", m.Identity, ErrMalformed)
	}
	return binary.BigEndian.AppendUint64(id, m.Generation), nil
}

// DecodeEFI is the inverse of EncodeEFI.
func DecodeEFI(b []byte) (Mark, error) {
	if len(b) != efiBytes {
		return Mark{}, fmt.Errorf("EFI variable of %d bytes: %w", len(b), ErrMalformed)
	}
	return Mark{
		Identity:   hex.EncodeToString(b[:IdentityBytes]),
		Generation: binary.BigEndian.Uint64(b[IdentityBytes:]),
	}, nil
}
