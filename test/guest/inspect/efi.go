package inspect

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
)

// Layout of OVMF's variable store, as EDK II defines it (MdePkg PiFirmwareVolume.h,
// MdeModulePkg VariableFormat.h): a firmware volume header, a store header, then
// records, each aligned to 4 bytes, up to the first that does not begin with
// recordStart. A value is never changed: a newer record follows, and bits of the
// older one's state are cleared.
const (
	volumeSignatureAt = 40
	volumeLengthAt    = 48 // uint16: length of the volume header
	volumeSignature   = "_FVH"

	storeHeaderBytes  = 28
	storeSizeAt       = 16 // uint32, with the header
	recordAlign       = 4
	recordStart       = 0x55AA
	recordHeaderBytes = 60
	recordStateAt     = 2
	recordNameSizeAt  = 36
	recordDataSizeAt  = 40
	recordGUIDAt      = 44

	stateAdded    = 0x3F // valid
	stateReplaced = 0x3E // valid until its successor is added
)

// authenticatedStore is gEfiAuthenticatedVariableGuid, as stored.
const authenticatedStore = "\x78\x2c\xf3\xaa\x7b\x94\x9a\x43\xa1\x80\x2e\x14\x4e\xc3\x77\x92"

var (
	errNoVariable   = errors.New("no such EFI variable")
	errNotVariables = errors.New("not an OVMF variable store")
)

// efiVariable returns the value of one variable from the bytes of a *_VARS.fd.
// errNoVariable if the store does not have it.
func efiVariable(vars []byte, name, guid string) ([]byte, error) {
	records, err := variableRecords(vars)
	if err != nil {
		return nil, err
	}
	wantGUID, err := encodeGUID(guid)
	if err != nil {
		return nil, err
	}
	wantName := encodeName(name)
	var replaced []byte
	for len(records) >= recordHeaderBytes && binary.LittleEndian.Uint16(records) == recordStart {
		nameEnd := recordHeaderBytes + uint64(binary.LittleEndian.Uint32(records[recordNameSizeAt:]))
		end := nameEnd + uint64(binary.LittleEndian.Uint32(records[recordDataSizeAt:]))
		if end > uint64(len(records)) {
			return nil, fmt.Errorf("record of %d bytes passes the end: %w", end, errNotVariables)
		}
		if bytes.Equal(records[recordGUIDAt:recordHeaderBytes], wantGUID) && bytes.Equal(records[recordHeaderBytes:nameEnd], wantName) {
			switch records[recordStateAt] {
			case stateAdded:
				return records[nameEnd:end], nil
			case stateReplaced:
				replaced = records[nameEnd:end]
			}
		}
		records = records[min(uint64(len(records)), (end+recordAlign-1)/recordAlign*recordAlign):]
	}
	if replaced == nil {
		return nil, fmt.Errorf("%s-%s: %w", name, guid, errNoVariable)
	}
	return replaced, nil
}

// variableRecords checks both headers and returns the records behind them.
func variableRecords(vars []byte) ([]byte, error) {
	if len(vars) < volumeLengthAt+2 || string(vars[volumeSignatureAt:volumeSignatureAt+4]) != volumeSignature {
		return nil, fmt.Errorf("%d bytes without volume header: %w", len(vars), errNotVariables)
	}
	at := int(binary.LittleEndian.Uint16(vars[volumeLengthAt:]))
	if len(vars) < at+storeHeaderBytes || string(vars[at:at+len(authenticatedStore)]) != authenticatedStore {
		return nil, fmt.Errorf("no authenticated store at %d: %w", at, errNotVariables)
	}
	size := int(binary.LittleEndian.Uint32(vars[at+storeSizeAt:]))
	if size < storeHeaderBytes || size > len(vars)-at {
		return nil, fmt.Errorf("store of %d bytes at %d of %d: %w", size, at, len(vars), errNotVariables)
	}
	return vars[at+storeHeaderBytes : at+size], nil
}

// encodeName returns UTF-16LE with a closing NUL.
func encodeName(name string) []byte {
	var b []byte
	for _, u := range append(utf16.Encode([]rune(name)), 0) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return b
}

// encodeGUID returns a GUID as stored: its first three fields little-endian.
func encodeGUID(guid string) ([]byte, error) {
	b, err := hex.DecodeString(strings.ReplaceAll(guid, "-", ""))
	if err != nil || len(b) != 16 {
		return nil, fmt.Errorf("GUID %q is malformed", guid)
	}
	for _, field := range [][]byte{b[0:4], b[4:6], b[6:8]} {
		for i, j := 0, len(field)-1; i < j; i, j = i+1, j-1 {
			field[i], field[j] = field[j], field[i]
		}
	}
	return b, nil
}
