package firmware

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrTPMState is a file that is not a whole TPM state of swtpm.
var ErrTPMState = errors.New("not a whole TPM state")

// TPMFacts is what a state file tells about itself without a key.
type TPMFacts struct {
	// Directory is the name below swtpm/, the firmware UUID.
	Directory string `json:"directory"`
	SizeBytes int64  `json:"sizeBytes"`
	// Encrypted says that swtpm was given a key for its state: a restore needs it too.
	Encrypted bool `json:"encrypted,omitempty"`
}

// The file starts with swtpm's header, numbers big endian: version (1 byte),
// lowest version that may read it (1), header length (2), flags (2), length of
// the whole file (4). Then come fields of tag (2), length (4) and that many bytes
// up to the end. Source: swtpm's public swtpm_nvstore.c and tlv.h; checked
// against files of swtpm 0.7.1.
const (
	tpmHeaderBytes  = 10
	tpmFieldBytes   = 6
	tpmNewestFormat = 2
	tpmTagData      = 1 // clear text, starts with libtpms' own header
	tpmTagEncrypted = 2
	tpmTagSealed    = 6 // encrypted, with its initialisation vector in a field of its own

	// tpmPermanentMagic is libtpms' mark of a permanent state, after 2 bytes of version.
	tpmPermanentMagic = 0xab364723
)

// parseTPMState checks that b is a permanent state, no byte more or less than its
// headers say. The error is ErrTPMState.
func parseTPMState(b []byte) (TPMFacts, error) {
	facts := TPMFacts{SizeBytes: int64(len(b))}
	switch {
	case len(b) == 0:
		return facts, fmt.Errorf("%w: empty", ErrTPMState)
	case len(b) < tpmHeaderBytes:
		return facts, fmt.Errorf("%w: %d bytes, less than its header", ErrTPMState, len(b))
	}
	header, total := int(binary.BigEndian.Uint16(b[2:])), int64(binary.BigEndian.Uint32(b[6:]))
	switch {
	case b[1] > tpmNewestFormat || b[0] < tpmNewestFormat || header < tpmHeaderBytes:
		return facts, fmt.Errorf("%w: header of an unknown version %d/%d", ErrTPMState, b[0], b[1])
	case total != int64(len(b)):
		return facts, fmt.Errorf("%w: %d bytes where its header says %d", ErrTPMState, len(b), total)
	case header > len(b):
		return facts, fmt.Errorf("%w: header length %d", ErrTPMState, header)
	}
	return tpmFields(facts, b[header:])
}

func tpmFields(facts TPMFacts, rest []byte) (TPMFacts, error) {
	found := false
	for len(rest) > 0 {
		if len(rest) < tpmFieldBytes {
			return facts, fmt.Errorf("%w: %d bytes behind the last field", ErrTPMState, len(rest))
		}
		tag, length := binary.BigEndian.Uint16(rest), int64(binary.BigEndian.Uint32(rest[2:]))
		rest = rest[tpmFieldBytes:]
		if length > int64(len(rest)) {
			return facts, fmt.Errorf("%w: field %d has %d bytes of %d", ErrTPMState, tag, len(rest), length)
		}
		switch tag {
		case tpmTagData:
			found = true
			if length < 8 || binary.BigEndian.Uint32(rest[2:]) != tpmPermanentMagic {
				return facts, fmt.Errorf("%w: its content is no permanent state", ErrTPMState)
			}
		case tpmTagEncrypted, tpmTagSealed:
			found, facts.Encrypted = true, true
		}
		rest = rest[length:]
	}
	if !found {
		return facts, fmt.Errorf("%w: no state inside", ErrTPMState)
	}
	return facts, nil
}
