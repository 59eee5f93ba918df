package index

import (
	"context"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// ErrDamaged: a node is there and is not the one that its parent names.
var ErrDamaged = keys.ErrDamaged

// sealOverhead is what sealing adds to a node's contents.
const sealOverhead = 16

// Nodes seals and opens the nodes of one virtual machine. It is used from one
// goroutine.
type Nodes struct {
	set     *keys.Set
	vm      keys.ID
	hashKey [32]byte
	aeads   map[keys.Origin]cipher.AEAD
}

// NewNodes seals and opens with the index keys of one epoch.
func NewNodes(s *keys.Set, vm keys.ID) *Nodes {
	return &Nodes{
		set:     s,
		vm:      vm,
		hashKey: s.Key(keys.PurposeNodeHash, keys.ID{}),
		aeads:   map[keys.Origin]cipher.AEAD{},
	}
}

// maxAEADs bounds the cache of expanded keys: one an attempt that a tree reaches.
const maxAEADs = 1024

func (n *Nodes) aead(o keys.Origin) cipher.AEAD {
	a, ok := n.aeads[o]
	if !ok {
		if len(n.aeads) >= maxAEADs {
			clear(n.aeads)
		}
		a = keys.AEAD(n.set.RunKey(keys.PurposeNode, n.vm, o))
		n.aeads[o] = a
	}
	return a
}

func (n *Nodes) binding(l Location) (nonce, aad []byte) {
	nonce = binary.BigEndian.AppendUint32(make([]byte, 0, 12), l.Number)
	nonce = binary.BigEndian.AppendUint64(nonce, uint64(l.Offset))
	aad = append(make([]byte, 0, 34), n.set.Repository[:]...)
	aad = append(aad, l.Origin.Run[:]...)
	return nonce, binary.BigEndian.AppendUint16(aad, l.Origin.Attempt)
}

// Seal seals contents for the place at: an index pack's number and offset are its
// nonce, so a place is written once. It returns the sealed bytes and where they are.
func (n *Nodes) Seal(at Location, contents []byte) ([]byte, Location) {
	at.Length = int64(len(contents) + sealOverhead)
	nonce, aad := n.binding(at)
	return n.aead(at.Origin).Seal(nil, nonce, contents, aad), at
}

// Open opens what Seal sealed at that place, without a hash to compare.
func (n *Nodes) Open(at Location, sealed []byte) ([]byte, error) {
	if int64(len(sealed)) != at.Length || at.Length > MaxNode {
		return nil, n.damaged(at, fmt.Sprintf("%d bytes, not %d", len(sealed), at.Length))
	}
	nonce, aad := n.binding(at)
	contents, err := n.aead(at.Origin).Open(nil, nonce, sealed, aad)
	if err != nil {
		return nil, n.damaged(at, "seal does not match")
	}
	return contents, nil
}

func (n *Nodes) open(r Ref, sealed []byte) ([]byte, error) {
	if Hash(sha256.Sum256(sealed)) != r.Sealed {
		return nil, n.damaged(r.Location, "bytes do not have the hash that its parent names")
	}
	return n.Open(r.Location, sealed)
}

func (n *Nodes) damaged(l Location, what any) error {
	return fmt.Errorf("index node at %d of %q: %w: %v", l.Offset, layout.IndexPack(n.vm, l.Origin, l.Number), ErrDamaged, what)
}

// OpenLeaf opens the leaf of a volume that r names.
func (n *Nodes) OpenLeaf(r Ref, sealed []byte, unitBytes int) (*Leaf, error) {
	contents, err := n.open(r, sealed)
	if err != nil {
		return nil, err
	}
	l, err := DecodeLeaf(contents, unitBytes)
	if err != nil {
		return nil, n.damaged(r.Location, err)
	}
	if l.contentHash(n.hashKey) != r.Content {
		return nil, n.damaged(r.Location, "contents are not those that its parent names")
	}
	return l, nil
}

// openInner opens the inner node that r names into node.
func (n *Nodes) openInner(r Ref, sealed []byte, level int, node *inner) error {
	contents, err := n.open(r, sealed)
	if err != nil {
		return err
	}
	if err := node.decode(contents, level); err != nil {
		return n.damaged(r.Location, err)
	}
	if node.contentHash(n.hashKey) != r.Content {
		return n.damaged(r.Location, "contents are not those that its parent names")
	}
	return nil
}

// openTable opens a leaf of a table; its contents are hashed as they are.
func (n *Nodes) openTable(r Ref, sealed []byte) ([]byte, error) {
	contents, err := n.open(r, sealed)
	if err != nil {
		return nil, err
	}
	if nodeHash(n.hashKey, contents) != r.Content {
		return nil, n.damaged(r.Location, "contents are not those that its parent names")
	}
	return contents, nil
}

// Fetcher reads ranges of index packs.
type Fetcher interface {
	Fetch(ctx context.Context, l Location) ([]byte, error)
}

// Putter appends contents to the current index pack, sealed, and says where.
type Putter interface {
	PutNode(ctx context.Context, contents []byte) (sealed Hash, at Location, err error)
}

// PutLeaf stores a leaf that is not empty.
func (n *Nodes) PutLeaf(ctx context.Context, p Putter, l *Leaf) (Ref, error) {
	sealed, at, err := p.PutNode(ctx, l.Encode())
	return Ref{Content: l.contentHash(n.hashKey), Sealed: sealed, Location: at}, err
}
