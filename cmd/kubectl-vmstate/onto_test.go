package main

import (
	"os"
	"path/filepath"
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
