package image

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseDepends(t *testing.T) {
	cases := map[string]struct {
		info string
		want []string
	}{
		"Several":  {"license=GPL\x00depends=virtio_ring,virtio-pci-legacy-dev\x00name=x\x00", []string{"virtio_ring", "virtio_pci_legacy_dev"}},
		"None":     {"license=GPL\x00depends=\x00", nil},
		"NotThere": {"license=GPL\x00", nil},
	}
	for name, tc := range cases {
		if diff := cmp.Diff(tc.want, parseDepends([]byte(tc.info))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestCpio has the archive unpacked by cpio(1), which must find every entry.
func TestCpio(t *testing.T) {
	tool, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("cpio is not installed")
	}
	var c cpio
	c.add(entry{name: "d", mode: modeDir})
	c.add(entry{name: "d/odd", mode: modeProgram, data: []byte("12345")})
	c.add(entry{name: "last", mode: modeFile, data: []byte("x")})
	dir := t.TempDir()
	cmd := exec.Command(tool, "-i", "--quiet")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(c.finish())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v: %s", err, out)
	}
	got := map[string]string{}
	for _, name := range []string{"d/odd", "last"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = string(b)
	}
	if diff := cmp.Diff(map[string]string{"d/odd": "12345", "last": "x"}, got); diff != "" {
		t.Errorf("unpacked (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(filepath.Join(dir, "d/odd")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode of d/odd: %v, %v; want 0755", info.Mode(), err)
	}
}

func TestCopySparse(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	content := make([]byte, 3*sparseBlock+10)
	content[0], content[len(content)-1] = 1, 2
	if err := os.WriteFile(from, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := createSized(to, 1); err != nil {
		t.Fatal(err)
	}
	if err := copySparse(to, from, sparseBlock); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, mib)
	copy(want[sparseBlock:], content)
	got, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Error("content differs from what was copied")
	}
}
