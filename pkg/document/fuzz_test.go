package document

import (
	"bytes"
	"testing"
)

// FuzzDecode: documents that are read are written as they were, however often.
func FuzzDecode(f *testing.F) {
	good, err := Encode(Documents{Identity: Identity{FirmwareUUID: "u", MACs: map[string]string{"default": "02:00:00:00:00:01"}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1,"vmi":{}}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		d, err := Decode(in)
		if err != nil {
			return
		}
		once, err := Encode(d)
		if err != nil {
			return // larger than documents may be
		}
		again, err := Decode(once)
		if err != nil {
			t.Fatalf("%s does not decode: %v", once, err)
		}
		if twice, err := Encode(again); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s becomes %s, %v", once, twice, err)
		}
	})
}
