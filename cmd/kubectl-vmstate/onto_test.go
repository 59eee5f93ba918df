package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Two disks onto one file would leave only the second, with both reported as restored.
func TestOntoDistinct(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"one", "two"} {
		if err := os.WriteFile(path(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(path("one"), path("symbolic")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path("one"), path("hard")); err != nil {
		t.Fatal(err)
	}
	for other, refused := range map[string]bool{"two": false, "one": true, "symbolic": true, "hard": true, "absent": true} {
		err := distinct(map[string]string{"root": path("one"), "data": path(other)})
		if (err != nil) != refused {
			t.Errorf("onto %q and %q: %v", "one", other, err)
		}
	}
}

// TestOntoLargerDevice: what a larger device holds behind the disk stays, and is told.
func TestOntoLargerDevice(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("loop devices need root")
	}
	backing := filepath.Join(t.TempDir(), "backing")
	if err := os.WriteFile(backing, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", backing).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach %s: %v: %s", device, err, out)
		}
	})
	for size, want := range map[int64]string{3 << 20: "", 2 << 20: "; the device is larger than the disk, and its last 1048576 bytes keep what they held"} {
		e, err := openExisting(device, size)
		if err != nil {
			t.Fatal(err)
		}
		if got := e.rest(); got != want {
			t.Errorf("a disk of %d bytes: %q, want %q", size, got, want)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
