package firmware

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"path"
	"slices"
)

// ErrBadTree is a Tree that breaks the rules of Tree.Validate: it comes from a
// damaged or hostile source and must not be written anywhere.
var ErrBadTree = errors.New("bad firmware tree")

// EntryType tells files from directories. A state volume holds nothing else that
// is kept: links, sockets and devices are listed as skipped.
type EntryType string

const (
	// TypeDirectory is a directory; its mtime is not recorded, since lock files
	// and renames move it without any change of state.
	TypeDirectory EntryType = "d"
	// TypeFile is a regular file.
	TypeFile EntryType = "f"
)

// Entry is one file or directory of a state volume.
type Entry struct {
	// Path is relative to the root of the volume, slash separated and clean.
	Path string
	Type EntryType
	// Mode holds the permission, setuid, setgid and sticky bits: 0o7777 at most.
	Mode uint32
	UID  uint32
	GID  uint32
	// ModTime is nanoseconds since 1970; 0 for a directory.
	ModTime int64
	// Xattrs holds user attributes and POSIX access lists. Security labels belong
	// to the node that mounts the volume and are never taken along.
	Xattrs map[string][]byte
	// Content is the whole file; nil for a directory.
	Content []byte
}

// Tree is the content of a state volume, sorted by path. The root itself is not
// an entry: its owner and mode belong to the volume.
type Tree struct {
	Entries []Entry
}

// Find returns the entry at p.
func (t Tree) Find(p string) (Entry, bool) {
	i, ok := slices.BinarySearchFunc(t.Entries, p, func(e Entry, p string) int { return cmp.Compare(e.Path, p) })
	if !ok {
		return Entry{}, false
	}
	return t.Entries[i], true
}

// Bytes is the sum of all file sizes.
func (t Tree) Bytes() int64 {
	var n int64
	for _, e := range t.Entries {
		n += int64(len(e.Content))
	}
	return n
}

// Files counts the regular files.
func (t Tree) Files() int {
	n := 0
	for _, e := range t.Entries {
		if e.Type == TypeFile {
			n++
		}
	}
	return n
}

// Digest identifies the tree by its canonical encoding (see the package comment).
// What is exported, imported and restored under the same names has this digest.
func (t Tree) Digest() string {
	h := sha256.New()
	putString(h, "vmstate.io/firmware-tree/v1")
	putNumber(h, uint64(len(t.Entries)))
	for _, e := range t.Entries {
		putString(h, e.Path)
		putString(h, string(e.Type))
		putNumber(h, uint64(e.Mode))
		putNumber(h, uint64(e.UID))
		putNumber(h, uint64(e.GID))
		putNumber(h, uint64(e.ModTime))
		putNumber(h, uint64(len(e.Xattrs)))
		for _, name := range slices.Sorted(maps.Keys(e.Xattrs)) {
			putString(h, name)
			putString(h, string(e.Xattrs[name]))
		}
		sum := sha256.Sum256(e.Content)
		h.Write(sum[:])
	}
	return digestText(h)
}

// Validate checks that the tree can be written as it is: clean local paths, in
// order, each below a directory of the tree, with modes and contents that fit
// their type. The error is ErrBadTree.
func (t Tree) Validate() error {
	dirs := map[string]bool{".": true}
	last := ""
	for _, e := range t.Entries {
		if err := e.validate(); err != nil {
			return fmt.Errorf("%w: %q: %w", ErrBadTree, e.Path, err)
		}
		if e.Path <= last {
			return fmt.Errorf("%w: %q stands after %q", ErrBadTree, e.Path, last)
		}
		if !dirs[path.Dir(e.Path)] {
			return fmt.Errorf("%w: %q: its parent is no directory of the tree", ErrBadTree, e.Path)
		}
		if e.Type == TypeDirectory {
			dirs[e.Path] = true
		}
		last = e.Path
	}
	return nil
}

func (e Entry) validate() error {
	switch {
	case !fs.ValidPath(e.Path) || e.Path == ".":
		return errors.New("not a clean relative path")
	case slices.Contains([]byte(e.Path), 0):
		return errors.New("path holds a zero byte")
	case e.Mode > 0o7777:
		return fmt.Errorf("mode %o is more than permissions", e.Mode)
	case e.Type == TypeDirectory && (e.Content != nil || e.ModTime != 0):
		return errors.New("a directory with content or time")
	case e.Type != TypeDirectory && e.Type != TypeFile:
		return fmt.Errorf("unknown type %q", e.Type)
	}
	return nil
}

func sortEntries(entries []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
}

func putString(h hash.Hash, s string) {
	putNumber(h, uint64(len(s)))
	h.Write([]byte(s))
}

func putNumber(h hash.Hash, n uint64) {
	h.Write(binary.AppendUvarint(nil, n))
}

func digestText(h hash.Hash) string {
	return hex.EncodeToString(h.Sum(nil))
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
