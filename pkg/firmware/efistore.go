package firmware

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"unicode/utf16"

	"github.com/google/uuid"
)

// ErrVariableStore is a file that is not a whole EFI variable store.
var ErrVariableStore = errors.New("not a whole EFI variable store")

// The layouts below are those of the UEFI Platform Initialization specification
// (firmware volume header) and of edk2's public headers VariableFormat.h and
// SystemNvDataGuid.h (variables, fault tolerant write); numbers are little endian.
// Checked against OVMF 2022.11 before and after a boot.
const (
	volumeHeaderBytes   = 56 // up to the block map
	storeHeaderBytes    = 28
	variableHeaderBytes = 60
	workHeaderBytes     = 32
	workAlignment       = 4096

	variableStart  = 0x55aa
	stateAdded     = 0x3f
	stateReplacing = 0x3e // added; its successor is being written
	stateErased    = 0xff
	storeFormatted = 0x5a
	storeHealthy   = 0xfe
)

var (
	guidNVData        = uuid.MustParse("fff12b8d-7696-4c8b-a985-2747075b4f50")
	guidAuthenticated = uuid.MustParse("aaf32c78-947b-439a-a180-2e144ec37792")
	guidWorkingBlock  = uuid.MustParse("9e58292b-7c68-497d-a0ce-6500fd9f1b95")
)

// Variable is one EFI variable that is in force.
type Variable struct {
	Name       string
	Vendor     uuid.UUID
	Attributes uint32
	Data       []byte
}

// WorkArea is the state of the block with which the firmware finishes a rewrite
// of the store that a power cut broke off.
type WorkArea string

const (
	WorkAreaValid   WorkArea = "Valid"
	WorkAreaAbsent  WorkArea = "Absent"
	WorkAreaInvalid WorkArea = "Invalid"
)

// VariableStore is a parsed EFI variable store.
type VariableStore struct {
	Variables []Variable
	// FreeBytes is what is left to write before the firmware must clean up, which
	// OVMF does at boot only.
	FreeBytes int64
	WorkArea  WorkArea
}

// ParseVariableStore reads a raw variable store as OVMF and AAVMF keep it in a
// flash file. It is as strict as the firmware or stricter: a store that it takes,
// the firmware takes. The error is ErrVariableStore.
func ParseVariableStore(b []byte) (VariableStore, error) {
	volume, header, err := firmwareVolume(b)
	if err != nil {
		return VariableStore{}, fmt.Errorf("%w: %w", ErrVariableStore, err)
	}
	area := volume[header:]
	size, err := storeSize(area)
	if err != nil {
		return VariableStore{}, fmt.Errorf("%w: %w", ErrVariableStore, err)
	}
	s, err := variables(area[storeHeaderBytes:size])
	if err != nil {
		return VariableStore{}, fmt.Errorf("%w: %w", ErrVariableStore, err)
	}
	s.WorkArea = workArea(volume, header+size)
	return s, nil
}

// firmwareVolume returns the volume at the start of b and the length of its header.
func firmwareVolume(b []byte) ([]byte, int, error) {
	if len(b) < volumeHeaderBytes {
		return nil, 0, fmt.Errorf("%d bytes are too few", len(b))
	}
	length, header := binary.LittleEndian.Uint64(b[32:]), int(binary.LittleEndian.Uint16(b[48:]))
	switch {
	case bytes.HasPrefix(b, []byte("QFI\xfb")):
		return nil, 0, errors.New("a qcow2 image, where a raw one is expected")
	case string(b[40:44]) != "_FVH":
		return nil, 0, errors.New("no firmware volume header")
	case guidAt(b[16:]) != guidNVData:
		return nil, 0, errors.New("a firmware volume of another kind")
	case length > uint64(len(b)):
		return nil, 0, fmt.Errorf("%d bytes where the header says %d", len(b), length)
	case header < volumeHeaderBytes || header%2 != 0 || uint64(header) > length:
		return nil, 0, fmt.Errorf("firmware volume header length %d", header)
	}
	var sum uint16
	for i := 0; i < header; i += 2 {
		sum += binary.LittleEndian.Uint16(b[i:])
	}
	if sum != 0 {
		return nil, 0, errors.New("firmware volume header has a wrong checksum")
	}
	return b[:length], header, nil
}

func storeSize(area []byte) (int, error) {
	if len(area) < storeHeaderBytes {
		return 0, errors.New("no room for a variable store")
	}
	size := int64(binary.LittleEndian.Uint32(area[16:]))
	switch {
	case guidAt(area) != guidAuthenticated:
		return 0, fmt.Errorf("variables of unknown format %s", guidAt(area))
	case area[20] != storeFormatted || area[21] != storeHealthy:
		return 0, fmt.Errorf("variable store is marked as not usable (format %#x, state %#x)", area[20], area[21])
	case size < storeHeaderBytes || size > int64(len(area)):
		return 0, fmt.Errorf("variable store of %d bytes in a volume with %d", size, len(area))
	}
	return int(size), nil
}

// variables walks the records; what follows the last one must be erased flash.
func variables(area []byte) (VariableStore, error) {
	var s VariableStore
	var replaced []Variable
	at := 0
	for at+2 <= len(area) && binary.LittleEndian.Uint16(area[at:]) == variableStart {
		v, state, next, err := variableAt(area, at)
		if err != nil {
			return VariableStore{}, fmt.Errorf("variable at offset %d: %w", at, err)
		}
		switch state {
		case stateAdded:
			s.Variables = append(s.Variables, v)
		case stateReplacing:
			replaced = append(replaced, v)
		}
		at = min(next, len(area))
	}
	for i, b := range area[at:] {
		if b != 0xff {
			return VariableStore{}, fmt.Errorf("free space at offset %d holds data", at+i)
		}
	}
	s.FreeBytes = int64(len(area) - at)
	for _, v := range replaced { // in force until its successor is complete
		if !s.has(v.Name, v.Vendor) {
			s.Variables = append(s.Variables, v)
		}
	}
	return s, nil
}

func variableAt(area []byte, at int) (v Variable, state byte, next int, err error) {
	if at+variableHeaderBytes > len(area) {
		return v, 0, 0, errors.New("header is cut")
	}
	h := area[at:]
	state = h[2]
	v.Attributes = binary.LittleEndian.Uint32(h[4:])
	name, data := int64(binary.LittleEndian.Uint32(h[36:])), int64(binary.LittleEndian.Uint32(h[40:]))
	// A power cut between header and sizes leaves erased fields: no name, no data.
	const erased = 0xffffffff
	if state == stateErased || v.Attributes == erased || name == erased || data == erased {
		return v, stateErased, aligned(at + variableHeaderBytes), nil
	}
	body := h[variableHeaderBytes:]
	if name+data > int64(len(body)) {
		return v, 0, 0, fmt.Errorf("%d bytes of name and %d of data do not fit", name, data)
	}
	v.Vendor = guidAt(h[44:])
	if v.Name, err = text(body[:name]); err != nil && (state == stateAdded || state == stateReplacing) {
		return v, 0, 0, err
	}
	v.Data = bytes.Clone(body[name : name+data])
	return v, state, aligned(at + variableHeaderBytes + int(name+data)), nil
}

// text decodes a name: UCS-2 with one zero at the end.
func text(b []byte) (string, error) {
	if len(b) < 2 || len(b)%2 != 0 || b[len(b)-1] != 0 || b[len(b)-2] != 0 {
		return "", errors.New("name without an end")
	}
	units := make([]uint16, len(b)/2-1)
	for i := range units {
		units[i] = binary.LittleEndian.Uint16(b[2*i:])
		if units[i] == 0 {
			return "", errors.New("name with a zero inside")
		}
	}
	return string(utf16.Decode(units)), nil
}

func (s VariableStore) has(name string, vendor uuid.UUID) bool {
	_, ok := s.Get(name, vendor)
	return ok
}

// Get returns the data of a variable in force.
func (s VariableStore) Get(name string, vendor uuid.UUID) ([]byte, bool) {
	for _, v := range s.Variables {
		if v.Name == name && v.Vendor == vendor {
			return v.Data, true
		}
	}
	return nil, false
}

// workArea looks for the working block behind the variables; it starts a flash
// block. Its checksum is taken with itself and the state byte erased.
func workArea(volume []byte, from int) WorkArea {
	for at := (from + workAlignment - 1) &^ (workAlignment - 1); at+workHeaderBytes <= len(volume); at += workAlignment {
		h := volume[at : at+workHeaderBytes]
		if guidAt(h) != guidWorkingBlock {
			continue
		}
		plain := bytes.Clone(h)
		copy(plain[16:21], []byte{0xff, 0xff, 0xff, 0xff, 0xff})
		const validNotInvalid = 0b10 // two bits, cleared when set
		if crc32.ChecksumIEEE(plain) != binary.LittleEndian.Uint32(h[16:]) || h[20]&0b11 != validNotInvalid {
			return WorkAreaInvalid
		}
		return WorkAreaValid
	}
	return WorkAreaAbsent
}

func aligned(n int) int { return (n + 3) &^ 3 }

// guidAt reads an EFI GUID: its first three fields are little endian.
func guidAt(b []byte) uuid.UUID {
	return uuid.UUID{b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]}
}
