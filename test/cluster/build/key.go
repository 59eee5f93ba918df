package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// key hashes everything that decides what a part's files will be: its definition, its module's pins, its sources,
// the compiler, and the keys of the parts it needs. Sixteen hexadecimal digits are kept.
func (b *Builder) key(p Part) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s/%s\n%s %q %q %v %q\n", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		p.Name, p.Tags, p.LDFlags, p.Static, p.Commands)
	sources := append([]string{filepath.Join(p.Module, "go.mod"), filepath.Join(p.Module, "go.sum")}, p.Sources...)
	for _, s := range sources {
		if err := hashTree(h, b.source, s); err != nil {
			return "", fmt.Errorf("hash %q: %w", s, err)
		}
	}
	for _, name := range p.Needs {
		needed, err := b.find(name)
		if err != nil {
			return "", err
		}
		key, err := b.key(needed)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "needs %s %s\n", name, key)
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

// hashTree adds name, a file or folder below root, to h: paths and contents, in lexical order. Tests do not count.
func hashTree(h hash.Hash, root, name string) error {
	return filepath.WalkDir(filepath.Join(root, name), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || isTest(path) {
			return err
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		info, err := in.Stat()
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%s %d\n", relative, info.Size())
		_, err = io.Copy(h, in)
		return err
	})
}

func isTest(path string) bool {
	matched, _ := filepath.Match("*_test.go", filepath.Base(path)) // the pattern is sound, so there is no error
	return matched
}
