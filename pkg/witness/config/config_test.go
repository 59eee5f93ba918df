package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecode(t *testing.T) {
	good := Config{
		BackupName: "b", BackupUID: "u", Attempt: 1, Mode: Running, StateDir: "/volumes/state",
		Machine: Machine{VMName: "db", FirmwareUUID: "f", PersistentTPM: true, PersistentEFI: true},
	}
	b, err := good.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(good, got); diff != "" {
		t.Errorf("Decode() mismatch (-want +got):\n%s", diff)
	}
	if _, err := Decode([]byte(`{"backupName":"b","backupUID":"u","attempt":1,"mode":"Running","fence":true,"machine":{"vmName":"db"}}`)); err != nil {
		t.Errorf("a machine without state is guarded too: %v", err)
	}
	bad := map[string]string{
		"Offline":   `{"backupName":"b","backupUID":"u","attempt":1,"mode":"Offline","fence":true,"stateDir":"/s","machine":{"vmName":"db"}}`,
		"Unknown":   `{"backupName":"b","backupUID":"u","attempt":1,"mode":"Running","stateDir":"/s","machine":{"vmName":"db"},"force":true}`,
		"NoAttempt": `{"backupName":"b","backupUID":"u","mode":"Running","stateDir":"/s","machine":{"vmName":"db"}}`,
		"NoUID":     `{"backupName":"b","attempt":1,"mode":"Running","stateDir":"/s","machine":{"vmName":"db"}}`,
		"Mode":      `{"backupName":"b","backupUID":"u","attempt":1,"mode":"Paused","stateDir":"/s","machine":{"vmName":"db"}}`,
		"NoVM":      `{"backupName":"b","backupUID":"u","attempt":1,"mode":"Running","stateDir":"/s"}`,
		"NoDir":     `{"backupName":"b","backupUID":"u","attempt":1,"mode":"Running","machine":{"vmName":"db"}}`,
		"NoUUID":    `{"backupName":"b","backupUID":"u","attempt":1,"mode":"Running","stateDir":"/s","machine":{"vmName":"db","persistentTPM":true}}`,
		"Empty":     ``,
	}
	for name, in := range bad {
		t.Run(name, func(t *testing.T) {
			if c, err := Decode([]byte(in)); err == nil {
				t.Errorf("Decode() took it: %+v", c)
			}
		})
	}
}
