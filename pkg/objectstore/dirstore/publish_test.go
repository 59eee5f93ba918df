package dirstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// publishNamed is what file systems without O_TMPFILE get.
func TestPublishNamed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "object")
	if err := publishNamed(path, []byte("first"), rename); err != nil {
		t.Fatal(err)
	}
	if err := publishNamed(path, []byte("second"), rename); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second publish: got %v, want fs.ErrExist", err)
	}
	if err := rename(path, path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("rename onto a taken name: got %v, want fs.ErrExist", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left in the directory: %v, %v; want one object", entries, err)
	}
	if got, err := os.ReadFile(path); string(got) != "first" || err != nil {
		t.Errorf("object holds %q, %v", got, err)
	}
}
