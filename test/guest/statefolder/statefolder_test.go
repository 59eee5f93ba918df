package statefolder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFind(t *testing.T) {
	const uuid = "5d307ca9-b3ef-428c-8861-06e72d69f223"
	tpm, vars := "swtpm/"+uuid+"/tpm2/"+TPMFile, "nvram/db_VARS.fd"
	cases := map[string]struct {
		files []string
		want  func(root string) Paths
		err   error
	}{
		"Both":     {[]string{tpm, vars, "meta/migrated"}, func(r string) Paths { return For(r, "db", uuid) }, nil},
		"NoTPM":    {[]string{vars}, func(r string) Paths { return Paths{Vars: For(r, "db", uuid).Vars} }, nil},
		"NoVars":   {[]string{tpm}, func(r string) Paths { return Paths{TPMDir: For(r, "db", uuid).TPMDir} }, nil},
		"Empty":    {nil, func(string) Paths { return Paths{} }, nil},
		"TwoVars":  {[]string{vars, "nvram/new_VARS.fd"}, func(string) Paths { return Paths{} }, ErrAmbiguous},
		"NoFolder": {nil, func(string) Paths { return Paths{} }, fs.ErrNotExist},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, f := range tc.files {
				path := filepath.Join(root, f)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			if name == "NoFolder" {
				root = filepath.Join(root, "absent")
			}
			got, err := Find(root)
			if !errors.Is(err, tc.err) {
				t.Fatalf("Find: got error %v, want %v", err, tc.err)
			}
			if diff := cmp.Diff(tc.want(root), got); diff != "" {
				t.Errorf("Find (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNamesOfPaths(t *testing.T) {
	p := For("/state", "db", "uuid-1")
	if p.VMName() != "db" || p.FirmwareUUID() != "uuid-1" {
		t.Errorf("got VM %q, UUID %q, want db, uuid-1", p.VMName(), p.FirmwareUUID())
	}
}
