package config

import (
	"bytes"
	"testing"
)

// FuzzDecode: a config that is read is the one that was written.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"store":{"endpoint":"https://s3","bucket":"b","lock":{"mode":"Governance","days":30}},"setup":{"recipients":["age1"],"keysSecretName":"k"}}`))
	f.Add([]byte(`{"keepState":{"volume":"/v","digest":"d"}} `))
	f.Add([]byte(`{"export":{"unknown":1}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		c, err := Decode(in)
		if err != nil {
			return
		}
		once, err := c.Encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(once)
		if err != nil {
			t.Fatalf("%s does not decode: %v", once, err)
		}
		if twice, err := again.Encode(); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s becomes %s, %v", once, twice, err)
		}
	})
}
