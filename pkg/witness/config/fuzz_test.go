package config

import (
	"testing"

	"github.com/vmstate/vmstate/test/fuzzing"
)

// FuzzDecode: a config that is read is the one that was written.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"backupName":"b","backupUID":"u","attempt":1,"mode":"Running","stateDir":"/s","machine":{"vmName":"db"}}`))
	f.Add([]byte(`{"backupName":"b"}{`))
	fuzzing.Stable(f, Decode, Config.Encode)
}
