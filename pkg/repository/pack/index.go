package pack

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// trailerBytes end an index pack: the length of the sealed directory before them.
const trailerBytes = 4

// Index fills packs of nodes. It is used from one goroutine.
type Index struct {
	attempt *Attempt
	store   objectstore.Store
	nodes   *index.Nodes

	body    []byte
	number  uint32
	ordinal uint64
	open    bool
	total   int64
	leaves  []index.DirectoryLeaf
	sent    int64
}

// NewIndex makes index packs of one attempt.
func NewIndex(a *Attempt, s objectstore.Store, n *index.Nodes) *Index {
	return &Index{attempt: a, store: s, nodes: n}
}

// Open opens a pack if none is, so that its place in the pack table is settled.
func (x *Index) Open() {
	if !x.open {
		x.open, x.ordinal = true, x.attempt.ordinal()
	}
}

// PutNode appends a node to the open pack. It stores nothing yet.
func (x *Index) PutNode(_ context.Context, contents []byte) (index.Hash, index.Location, error) {
	x.Open()
	at := index.Location{
		Origin: x.attempt.Origin, Number: x.number, Ordinal: x.ordinal, Offset: int64(len(x.body)),
	}
	sealed, at := x.nodes.Seal(at, contents)
	if at.Length > index.MaxNode {
		return index.Hash{}, at, fmt.Errorf("index node of %d bytes is over the limit of %d", at.Length, index.MaxNode)
	}
	x.body = append(x.body, sealed...)
	x.total += at.Length
	return sha256.Sum256(sealed), at, nil
}

// Note remembers a leaf of the open pack for the directory.
func (x *Index) Note(l index.DirectoryLeaf) { x.leaves = append(x.leaves, l) }

// Buffered is the size of the open pack in bytes.
func (x *Index) Buffered() int { return len(x.body) }

// Leaves is how many leaves the open pack holds.
func (x *Index) Leaves() int { return len(x.leaves) }

// Sent counts the bytes that the store has confirmed.
func (x *Index) Sent() int64 { return x.sent }

// Close stores the open pack and returns its record, and where in it the directory is. dir
// says what the attempt has finished until here; the caller has seen to it that this is
// stored.
func (x *Index) Close(ctx context.Context, dir index.Directory) (Numbered, index.Location, error) {
	x.Open()
	a := x.attempt
	dir.Ordinal, dir.NextOrdinal, dir.Leaves = x.ordinal, *a.Ordinals, x.leaves
	at := index.Location{Origin: a.Origin, Number: x.number, Offset: int64(len(x.body))}
	sealed, at := x.nodes.Seal(at, dir.Encode())
	x.body = append(x.body, sealed...)
	x.body = binary.BigEndian.AppendUint32(x.body, uint32(at.Length))
	record := Numbered{Ordinal: x.ordinal, Pack: index.Pack{
		Kind: index.IndexPack, Origin: a.Origin, Number: x.number, Size: int64(len(x.body)),
		Tag: a.Tagger.Tag(index.IndexPack, a.Origin, x.number, x.body), Total: x.total, Live: x.total,
	}}
	key := layout.IndexPack(a.VM, a.Origin, x.number)
	info, err := objectstore.CreateOrSame(ctx, x.store, key, x.body)
	if err != nil {
		return Numbered{}, at, fmt.Errorf("store index: %w", err)
	}
	record.CRC32C, record.VersionID = info.CRC32C, info.VersionID
	x.sent += record.Size
	x.body, x.leaves, x.open, x.total = x.body[:0], nil, false, 0
	x.number++
	return record, at, nil
}

// OpenDirectory reads the directory of an index pack from the whole of it.
func OpenDirectory(n *index.Nodes, at index.Location, body []byte) (index.Directory, error) {
	cut := int64(len(body)) - trailerBytes
	if cut < 0 {
		return index.Directory{}, fmt.Errorf("%w: index pack of %d bytes", index.ErrDamaged, len(body))
	}
	at.Length = int64(binary.BigEndian.Uint32(body[cut:]))
	at.Offset = cut - at.Length
	if at.Offset < 0 {
		return index.Directory{}, fmt.Errorf("%w: index pack ends in no directory", index.ErrDamaged)
	}
	contents, err := n.Open(at, body[at.Offset:cut])
	if err != nil {
		return index.Directory{}, err
	}
	return index.DecodeDirectory(contents)
}
