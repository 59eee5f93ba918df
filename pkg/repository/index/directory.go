package index

import (
	"fmt"
	"math"

	"github.com/vmstate/vmstate/pkg/repository/wire"
)

// Directory ends an index pack: what its attempt has finished since the index pack
// before, so that a later attempt need not send it again.
type Directory struct {
	// Commitment is that of the attempt's data key.
	Commitment [32]byte
	// KeyVersion is the version id of that key's age file, empty if it is not known.
	KeyVersion string
	// Full says that the attempt took nothing over from a parent.
	Full bool
	// Ordinal is of the pack that the directory ends; NextOrdinal the first that
	// was free then.
	Ordinal, NextOrdinal uint64
	Packs                []DirectoryPack
	Leaves               []DirectoryLeaf
}

// DirectoryPack is a pack that is stored.
type DirectoryPack struct {
	Ordinal uint64
	Pack
}

// Append encodes the pack as a directory does.
func (p DirectoryPack) Append(b []byte) []byte {
	return AppendPack(wire.AppendUvarint(b, p.Ordinal), p.Pack)
}

// TakeDirectoryPack reads what Append wrote.
func TakeDirectoryPack(d *wire.Decoder) DirectoryPack {
	return DirectoryPack{Ordinal: d.Uvarint(maxOrdinal), Pack: TakePack(d)}
}

// DirectoryLeaf is a leaf in the pack that the directory ends. Volumes count in
// the order in which they were added.
type DirectoryLeaf struct {
	Volume         int
	Leaf           uint64
	Content        Hash
	Offset, Length int64
}

const (
	maxDirectoryPacks  = 1 << 16
	maxDirectoryLeaves = 1 << 20
	maxVolumes         = 256
)

// Encode returns the node's contents.
func (dir *Directory) Encode() []byte {
	b := append([]byte{typeDirectory}, dir.Commitment[:]...)
	b = wire.AppendString(b, dir.KeyVersion)
	b = wire.AppendBool(b, dir.Full)
	b = wire.AppendUvarint(b, dir.Ordinal)
	b = wire.AppendUvarint(b, dir.NextOrdinal)
	b = wire.AppendInt(b, len(dir.Packs))
	for _, p := range dir.Packs {
		b = p.Append(b)
	}
	b = wire.AppendInt(b, len(dir.Leaves))
	for _, l := range dir.Leaves {
		b = wire.AppendInt(b, l.Volume)
		b = wire.AppendUvarint(b, l.Leaf)
		b = append(b, l.Content[:]...)
		b = wire.AppendInt(b, l.Offset)
		b = wire.AppendInt(b, l.Length)
	}
	return b
}

// DecodeDirectory reads what Encode wrote.
func DecodeDirectory(contents []byte) (Directory, error) {
	var dir Directory
	d := wire.NewDecoder(contents)
	if d.Byte() != typeDirectory {
		d.Fail("not a directory")
	}
	d.Copy(dir.Commitment[:])
	dir.KeyVersion = d.String(maxVersionID)
	dir.Full = d.Bool()
	dir.Ordinal, dir.NextOrdinal = d.Uvarint(maxOrdinal), d.Uvarint(maxOrdinal)
	for range d.Int(maxDirectoryPacks) {
		if d.Err() != nil {
			break
		}
		dir.Packs = append(dir.Packs, TakeDirectoryPack(d))
	}
	for range d.Int(maxDirectoryLeaves) {
		if d.Err() != nil {
			break
		}
		l := DirectoryLeaf{Volume: d.Int(maxVolumes), Leaf: d.Uvarint(math.MaxInt64)}
		d.Copy(l.Content[:])
		l.Offset, l.Length = int64(d.Uvarint(maxOffset)), int64(d.Uvarint(maxOffset))
		dir.Leaves = append(dir.Leaves, l)
	}
	if err := d.Close(); err != nil {
		return Directory{}, fmt.Errorf("%w: directory: %w", ErrDamaged, err)
	}
	return dir, nil
}
