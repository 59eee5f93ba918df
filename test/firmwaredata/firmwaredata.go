// Package firmwaredata holds real firmware state for tests; README.md says where it
// comes from.
package firmwaredata

import (
	"embed"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
)

//go:embed *.zst *.permall
var files embed.FS

// File returns a file of this folder, decompressed if its name says so.
func File(t testing.TB, name string) []byte {
	t.Helper()
	b, err := files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Ext(name) != ".zst" {
		return b
	}
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if b, err = z.DecodeAll(b, nil); err != nil {
		t.Fatal(err)
	}
	return b
}
