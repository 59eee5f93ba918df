package document

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/test/build"
)

func TestDecodeReadsWhatEncodeWrote(t *testing.T) {
	vm := build.VM("db", build.Disk("root"), build.TPM())
	want := Documents{
		Version: Version, VM: *vm, Expanded: *vm, VMI: build.VMI(vm),
		Identity:   Identity{FirmwareUUID: build.FirmwareUUID, MACs: map[string]string{"default": "02:00:00:00:00:01"}, PersistentTPM: true},
		References: []Reference{{Kind: "Secret", Name: "s", UsedBy: "volume init"}},
	}
	raw, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeRefuses(t *testing.T) {
	if _, err := Decode([]byte(`{"version":2}`)); !errors.Is(err, ErrVersion) {
		t.Errorf("documents of a later version: %v, want ErrVersion", err)
	}
	if _, err := Decode([]byte(`{"version":`)); err == nil || errors.Is(err, ErrVersion) {
		t.Errorf("documents that are cut: %v, want an error that is not ErrVersion", err)
	}
}

func TestEncodeRefusesWhatDoesNotFit(t *testing.T) {
	vm := build.VM("db")
	vm.Annotations = map[string]string{"big": strings.Repeat("x", MaxBytes)}
	if _, err := Encode(Documents{VM: *vm}); err == nil {
		t.Error("documents were taken that no ConfigMap can hold")
	}
}
