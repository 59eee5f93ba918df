package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/snapshotset"
)

func TestReadConfiguration(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	got, err := readConfiguration(write("drivers:\n  - {name: csi.example.com, groupsCutTogether: true, source: vendor}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := configuration{Drivers: []snapshotset.Driver{{Name: "csi.example.com", GroupsCutTogether: true, Source: "vendor"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, err := readConfiguration(filepath.Join(t.TempDir(), "absent")); err != nil || len(got.Drivers) > 0 {
		t.Errorf("an absent file: %+v, %v; it is optional", got, err)
	}
	if _, err := readConfiguration(write("driver: []\n")); err == nil {
		t.Error("a misspelt key was passed over: what an administrator said would be ignored")
	}
}

// Two processes must never take each other's freeze for their own.
func TestProcessName(t *testing.T) {
	if a, b := processName(), processName(); a == b {
		t.Errorf("two processes are both called %q", a)
	}
}
