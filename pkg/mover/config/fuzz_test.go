package config

import (
	"testing"

	"github.com/vmstate/vmstate/test/fuzzing"
)

// FuzzDecode: a config that is read is the one that was written.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"store":{"endpoint":"https://s3","bucket":"b","lock":{"mode":"Governance","days":30}},"setup":{"recipients":["age1"],"keysSecretName":"k"}}`))
	f.Add([]byte(`{"keepState":{"volume":"/v","digest":"d"}} `))
	f.Add([]byte(`{"export":{"unknown":1}}`))
	fuzzing.Stable(f, Decode, Config.Encode)
}
