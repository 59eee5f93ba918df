package inspect

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/vmstate/vmstate/test/guest/generation"
)

const (
	testVolumeHeader = 72
	testStoreBytes   = 4096
	otherGUID        = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
	stateDeleted     = 0x3C
)

// record is a variable as the store holds it.
type record struct {
	name, guid, value string
	state             byte
}

// store writes a variable store as the firmware would; t fails on a bad GUID.
func store(t testing.TB, records ...record) []byte {
	t.Helper()
	vars := make([]byte, testVolumeHeader+testStoreBytes)
	copy(vars[volumeSignatureAt:], volumeSignature)
	binary.LittleEndian.PutUint16(vars[volumeLengthAt:], testVolumeHeader)
	copy(vars[testVolumeHeader:], authenticatedStore)
	binary.LittleEndian.PutUint32(vars[testVolumeHeader+storeSizeAt:], testStoreBytes)
	at := testVolumeHeader + storeHeaderBytes
	for i := at; i < len(vars); i++ {
		vars[i] = 0xFF // erased flash
	}
	for _, r := range records {
		name := encodeName(r.name)
		guid, err := encodeGUID(r.guid)
		if err != nil {
			t.Fatal(err)
		}
		header := make([]byte, recordHeaderBytes)
		binary.LittleEndian.PutUint16(header, recordStart)
		header[recordStateAt] = r.state
		binary.LittleEndian.PutUint32(header[recordNameSizeAt:], uint32(len(name)))
		binary.LittleEndian.PutUint32(header[recordDataSizeAt:], uint32(len(r.value)))
		copy(header[recordGUIDAt:], guid)
		for _, part := range [][]byte{header, name, []byte(r.value)} {
			at += copy(vars[at:], part)
		}
		at = testVolumeHeader + (at-testVolumeHeader+recordAlign-1)/recordAlign*recordAlign
	}
	return vars
}

func TestEFIVariable(t *testing.T) {
	ours := func(value string, state byte) record {
		return record{generation.EFIName, generation.EFIGUID, value, state}
	}
	boot := record{"Boot0000", otherGUID, "some odd length", stateAdded}
	noStore := store(t)
	copy(noStore[testVolumeHeader:], "other")
	tooLong := store(t, ours("value", stateAdded))
	binary.LittleEndian.PutUint32(tooLong[testVolumeHeader+storeHeaderBytes+recordDataSizeAt:], 1<<31)
	cases := map[string]struct {
		reason string
		vars   []byte
		want   string
		err    error
	}{
		"AmongOthers": {"records are aligned", store(t, boot, ours("new", stateAdded), boot), "new", nil},
		"Newest":      {"older values stay in the store", store(t, ours("old", stateDeleted), boot, ours("new", stateAdded)), "new", nil},
		"Replacing":   {"the older value holds until the newer one is valid", store(t, ours("old", stateReplaced), ours("new", 0x7F)), "old", nil},
		"Replaced":    {"the newer value is valid", store(t, ours("old", stateReplaced), ours("new", stateAdded)), "new", nil},
		"Deleted":     {"a deleted value is no value", store(t, ours("old", stateDeleted)), "", errNoVariable},
		"OtherVendor": {"names are per vendor", store(t, record{generation.EFIName, otherGUID, "x", stateAdded}), "", errNoVariable},
		"Blank":       {"a store without records", store(t), "", errNoVariable},
		"Empty":       {"a file without bytes", nil, "", errNotVariables},
		"NoStore":     {"a volume without variables", noStore, "", errNotVariables},
		"CutOff":      {"a file that was cut off", store(t)[:2000], "", errNotVariables},
		"TooLong":     {"a length beyond the store", tooLong, "", errNotVariables},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := efiVariable(tc.vars, generation.EFIName, generation.EFIGUID)
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s: got error %v, want %v", tc.reason, err, tc.err)
			}
			if string(got) != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}

func FuzzEFIVariable(f *testing.F) {
	f.Add(store(f))
	f.Add(store(f, record{generation.EFIName, generation.EFIGUID, "value", stateAdded}))
	f.Fuzz(func(t *testing.T, vars []byte) {
		value, err := efiVariable(vars, generation.EFIName, generation.EFIGUID)
		if err == nil && len(value) > len(vars) {
			t.Errorf("value of %d bytes from %d", len(value), len(vars))
		}
	})
}
