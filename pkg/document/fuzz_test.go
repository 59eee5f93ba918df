package document

import (
	"testing"

	"github.com/vmstate/vmstate/test/fuzzing"
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
	fuzzing.Stable(f, func(in []byte) (Documents, error) {
		d, err := Decode(in)
		if err == nil {
			_, err = Encode(d) // it may be larger than documents may be
		}
		return d, err
	}, Encode)
}
