package index

import (
	"fmt"

	"github.com/vmstate/vmstate/pkg/repository/wire"
)

// FanOut is how many children an inner node has at most.
const FanOut = 256

// MaxDepth bounds the inner levels of a tree: 2^40 leaves.
const MaxDepth = 5

// MaxNode bounds the sealed size of any node in bytes.
const MaxNode = 1 << 20

// Depth is the number of inner levels above the given number of leaves.
func Depth(leaves uint64) int {
	depth := 0
	for n := uint64(1); n < leaves; n *= FanOut {
		depth++
	}
	return depth
}

// inner is one inner node; level 1 has leaves as its children.
type inner struct {
	level    int
	children [FanOut]Ref
}

func (n *inner) empty() bool {
	for i := range n.children {
		if !n.children[i].Zero() {
			return false
		}
	}
	return true
}

func (n *inner) encode() []byte {
	var table origins
	bits := make([]byte, FanOut/8)
	var body []byte
	for i := range n.children {
		c := &n.children[i]
		if c.Zero() {
			continue
		}
		bits[i/8] |= 1 << (i % 8)
		body = append(body, c.Content[:]...)
		body = append(body, c.Sealed[:]...)
		body = table.appendLocation(body, c.Location)
	}
	out := append(make([]byte, 0, 64+len(table.list)*18+len(body)), typeInner, byte(n.level))
	out = append(out, bits...)
	out = table.append(out)
	return append(out, body...)
}

// decode reads what encode wrote into n, whose memory is used again.
func (n *inner) decode(contents []byte, level int) error {
	*n = inner{level: level}
	d := wire.NewDecoder(contents)
	if d.Byte() != typeInner || int(d.Byte()) != level {
		d.Fail("not an inner node of level %d", level)
	}
	bits := d.Fixed(FanOut / 8)
	table := decodeOrigins(d)
	for i := range FanOut {
		if d.Err() != nil {
			break
		}
		if bits[i/8]&(1<<(i%8)) == 0 {
			continue
		}
		c := &n.children[i]
		d.Copy(c.Content[:])
		d.Copy(c.Sealed[:])
		c.Location = table.takeLocation(d)
		if d.Err() == nil && (c.Length == 0 || c.Length > MaxNode) {
			d.Fail("node of %d bytes", c.Length)
		}
	}
	table.close(d)
	if err := d.Close(); err != nil {
		return fmt.Errorf("index node: %w", err)
	}
	if n.empty() {
		return fmt.Errorf("index node: %w: no children", wire.ErrMalformed)
	}
	return nil
}

func (n *inner) contentHash(key [32]byte) Hash {
	hashes := make([]byte, 0, 2+FanOut*32)
	hashes = append(hashes, typeInner, byte(n.level))
	for i := range n.children {
		hashes = append(hashes, n.children[i].Content[:]...)
	}
	return nodeHash(key, hashes)
}
