package tree

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/vmstate/vmstate/pkg/repository/wire"
)

const (
	version = 1
	// MaxEntries and MaxManifest bound a tree volume.
	MaxEntries  = 1 << 16
	MaxManifest = 16 << 20

	maxPath   = 4096
	maxXattrs = 256
	maxXattr  = 64 << 10
	maxName   = 255
)

// Sort puts entries in the order that Encode demands: by path.
func Sort(entries []Entry) {
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Path, b.Path) })
	for i := range entries {
		slices.SortFunc(entries[i].Xattrs, func(a, b Xattr) int { return strings.Compare(a.Name, b.Name) })
	}
}

// Check returns why entries are not a tree: paths must be relative, clean, sorted
// and unique, and lie in directories that are entries themselves, "." excepted.
func Check(entries []Entry) error {
	if len(entries) > MaxEntries {
		return fmt.Errorf("%d entries, allowed are %d", len(entries), MaxEntries)
	}
	dirs := map[string]bool{".": true}
	for i := range entries {
		e := &entries[i]
		if err := e.check(); err != nil {
			return fmt.Errorf("entry %q: %w", e.Path, err)
		}
		if i > 0 && entries[i-1].Path >= e.Path {
			return fmt.Errorf("entry %q: not behind %q in order", e.Path, entries[i-1].Path)
		}
		if !dirs[path.Dir(e.Path)] {
			return fmt.Errorf("entry %q: its directory is not an entry before it", e.Path)
		}
		if e.Type == TypeDir {
			dirs[e.Path] = true
		}
	}
	return nil
}

func (e *Entry) check() error {
	switch {
	case e.Path == "" || len(e.Path) > maxPath || path.Clean(e.Path) != e.Path || path.IsAbs(e.Path) ||
		e.Path == ".." || strings.HasPrefix(e.Path, "../") || strings.ContainsRune(e.Path, 0):
		return fmt.Errorf("path is empty, absolute, unclean or too long")
	case e.Type != TypeDir && e.Type != TypeFile && e.Type != TypeSymlink:
		return fmt.Errorf("type %d", e.Type)
	case e.Path == "." && e.Type != TypeDir:
		return fmt.Errorf("the root is no directory")
	case e.Mode > 0o7777:
		return fmt.Errorf("mode %o", e.Mode)
	case e.Size < 0 || e.Type != TypeFile && e.Size != 0:
		return fmt.Errorf("size %d", e.Size)
	case (e.Type == TypeSymlink) == (e.Target == "") || len(e.Target) > maxPath:
		return fmt.Errorf("target of %d bytes", len(e.Target))
	}
	for i := range e.Xattrs {
		x := &e.Xattrs[i]
		if x.Name == "" || len(x.Name) > maxName || len(x.Value) > maxXattr || i > 0 && e.Xattrs[i-1].Name >= x.Name {
			return fmt.Errorf("extended attribute %q is too long or out of order", x.Name)
		}
	}
	if len(e.Xattrs) > maxXattrs {
		return fmt.Errorf("%d extended attributes", len(e.Xattrs))
	}
	return nil
}

// Encode returns the manifest of a checked tree.
func Encode(entries []Entry) ([]byte, error) {
	if err := Check(entries); err != nil {
		return nil, err
	}
	b := wire.AppendInt([]byte{version}, len(entries))
	for i := range entries {
		b = appendEntry(b, &entries[i])
	}
	if len(b) > MaxManifest {
		return nil, fmt.Errorf("manifest of %d bytes, allowed are %d", len(b), MaxManifest)
	}
	return b, nil
}

func appendEntry(b []byte, e *Entry) []byte {
	b = wire.AppendString(b, e.Path)
	b = append(b, byte(e.Type))
	b = wire.AppendUvarint(b, uint64(e.Mode))
	b = wire.AppendUvarint(b, uint64(e.UID))
	b = wire.AppendUvarint(b, uint64(e.GID))
	seconds := uint64(e.ModTime.Unix())
	for shift := 56; shift >= 0; shift -= 8 {
		b = append(b, byte(seconds>>shift))
	}
	b = wire.AppendInt(b, e.ModTime.Nanosecond())
	b = wire.AppendInt(b, e.Size)
	b = wire.AppendString(b, e.Target)
	b = wire.AppendInt(b, len(e.Xattrs))
	for _, x := range e.Xattrs {
		b = wire.AppendBytes(wire.AppendString(b, x.Name), x.Value)
	}
	return b
}

// Decode reads a manifest and checks the tree.
func Decode(manifest []byte) ([]Entry, error) {
	d := wire.NewDecoder(manifest)
	if v := d.Byte(); d.Err() == nil && v != version {
		d.Fail("tree version %d", v)
	}
	var entries []Entry
	for range d.Int(MaxEntries) {
		if d.Err() != nil {
			break
		}
		entries = append(entries, takeEntry(d))
	}
	if err := d.Close(); err != nil {
		return nil, err
	}
	if err := Check(entries); err != nil {
		return nil, fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	}
	return entries, nil
}

func takeEntry(d *wire.Decoder) Entry {
	e := Entry{Path: d.String(maxPath), Type: Type(d.Byte()), Mode: uint32(d.Uvarint(0o7777))}
	e.UID, e.GID = uint32(d.Uvarint(math.MaxUint32)), uint32(d.Uvarint(math.MaxUint32))
	seconds := int64(d.Uint64())
	e.ModTime = time.Unix(seconds, int64(d.Int(999_999_999))).UTC()
	e.Size = d.Int64()
	e.Target = d.String(maxPath)
	for range d.Int(maxXattrs) {
		if d.Err() != nil {
			break
		}
		e.Xattrs = append(e.Xattrs, Xattr{Name: d.String(maxName), Value: append([]byte(nil), d.Bytes(maxXattr)...)})
	}
	return e
}

// Layout returns where each entry's contents begin in the image of a tree volume,
// -1 without contents, and the size of the image. Files follow the manifest, each
// from the next border of a unit, so that a change in one moves no other.
func Layout(entries []Entry, manifest int64, unit int64) (offsets []int64, size int64) {
	size = manifest
	for i := range entries {
		if entries[i].Size == 0 {
			offsets = append(offsets, -1)
			continue
		}
		at := (size + unit - 1) / unit * unit
		offsets = append(offsets, at)
		size = at + entries[i].Size
	}
	return offsets, size
}
