package kubevirt

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/test/guest/pace"
)

func TestVM(t *testing.T) {
	step, err := pace.Parse("3s-10s")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]Options{
		"testdata/plain.yaml": {Name: "db", Namespace: "prod"},
		"testdata/full.yaml": {Name: "db", Namespace: "prod", Claim: "root", Step: step, Network: true,
			FirmwareUUID: "5d307ca9-b3ef-428c-8861-06e72d69f223"},
	}
	for golden, o := range cases {
		got, err := VM(o)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", golden, diff)
		}
	}
}

func TestVMRefusesBadNames(t *testing.T) {
	for _, o := range []Options{
		{Name: "", Namespace: "prod"},
		{Name: "db\nspec: {}", Namespace: "prod"},
		{Name: "db", Namespace: "Prod"},
		{Name: "db", Namespace: "prod", Claim: "a: b"},
	} {
		if _, err := VM(o); !errors.Is(err, ErrName) {
			t.Errorf("VM(%+v): got error %v, want ErrName", o, err)
		}
	}
	if _, err := VM(Options{Name: "db", Namespace: "prod", FirmwareUUID: "x"}); err == nil {
		t.Error("a malformed firmware UUID was taken")
	}
}
