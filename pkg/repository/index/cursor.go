package index

import (
	"context"
	"fmt"
	"math"
)

// visited is one inner node on the way to the leaf that a Cursor is at.
type visited struct {
	ref    Ref
	pos    uint64 // counts nodes of its level from the start of the volume
	node   inner
	next   int // the first slot that was not descended into
	load   loader
	shared bool // the new tree has this node too
}

// span is how many leaves one child of a node of that level covers.
func span(level int) uint64 { return 1 << (8 * (level - 1)) }

// end is the first leaf behind those below v.
func (v *visited) end() uint64 { return (v.pos + 1) * FanOut * span(v.node.level) }

// Tree is a tree to be read: its root, and how many leaves it was made for.
type Tree struct {
	Root   Ref
	Leaves uint64
}

// Cursor walks a tree forwards. It is used from one goroutine.
type Cursor struct {
	nodes *Nodes
	fetch Fetcher
	tree  Tree
	depth int
	// Visit, if not nil, is told of each inner node as it is read.
	Visit func(Ref)
	// Lost, if not nil, is asked about a node above the leaves [from, to) that cannot be
	// read. If it returns nil, the cursor goes on behind them.
	Lost func(from, to uint64, err error) error

	started bool
	stack   []*visited // from the root down to level 1
	free    []*visited // to be used again: they are large
	// With a Builder, the nodes that are no longer on the stack are kept until it has
	// settled them; without one, nobody asks for them again.
	building bool
	left     []*visited
	at       uint64
	slot     int
}

// NewCursor walks t; a zero root is an empty tree.
func NewCursor(n *Nodes, f Fetcher, t Tree) *Cursor {
	return &Cursor{nodes: n, fetch: f, tree: t, depth: Depth(t.Leaves)}
}

// End is a leaf behind every tree.
const End = uint64(math.MaxUint64)

// Seek moves to the first leaf at or after from that is not all zero and returns
// its number, End if there is none. It never moves back.
func (c *Cursor) Seek(ctx context.Context, from uint64) (uint64, error) {
	if c.depth == 0 {
		if from > 0 || c.tree.Root.Zero() {
			return End, nil
		}
		return 0, nil
	}
	if !c.started {
		c.started = true
		if c.tree.Root.Zero() {
			return End, nil
		}
		sealed, err := c.fetch.Fetch(ctx, c.tree.Root.Location)
		if err == nil {
			err = c.push(c.tree.Root, sealed, 0)
		}
		if err := c.lost(0, c.tree.Leaves, err); err != nil {
			return 0, err
		}
	}
	for len(c.stack) > 0 {
		found, err := c.step(ctx, from)
		if err != nil || found {
			return c.at, err
		}
	}
	return End, nil
}

// step looks for the next child of the lowest node on the stack: a leaf is found,
// a node is descended into, and without either the node is left.
func (c *Cursor) step(ctx context.Context, from uint64) (found bool, err error) {
	top := c.stack[len(c.stack)-1]
	level := top.node.level
	base := top.pos * FanOut * span(level)
	slot := top.next
	if from > base {
		slot = max(slot, int(min((from-base)/span(level), FanOut)))
	}
	for slot < FanOut && top.node.children[slot].Zero() {
		slot++
	}
	if slot == FanOut {
		c.stack = c.stack[:len(c.stack)-1]
		if c.building {
			c.left = append(c.left, top)
		} else {
			c.free = append(c.free, top)
		}
		return false, nil
	}
	if level == 1 {
		c.at, c.slot = base+uint64(slot), slot
		return true, nil
	}
	top.next = slot + 1
	sealed, err := top.load.sealed(ctx, &top.node, slot)
	if err == nil {
		err = c.push(top.node.children[slot], sealed, top.pos*FanOut+uint64(slot))
	}
	start := base + uint64(slot)*span(level)
	return false, c.lost(start, min(start+span(level), c.tree.Leaves), err)
}

func (c *Cursor) lost(from, to uint64, err error) error {
	if err == nil || c.Lost == nil {
		return err
	}
	return c.Lost(from, to, err)
}

func (c *Cursor) push(r Ref, sealed []byte, pos uint64) error {
	level := c.depth - len(c.stack)
	v := c.visited()
	v.ref, v.pos, v.next, v.shared = r, pos, 0, false
	if err := c.nodes.openInner(r, sealed, level, &v.node); err != nil {
		return fmt.Errorf("level %d: %w", level, err)
	}
	v.load.plan(&v.node)
	c.stack = append(c.stack, v)
	if c.Visit != nil {
		c.Visit(r)
	}
	return nil
}

func (c *Cursor) visited() *visited {
	if n := len(c.free); n > 0 {
		v := c.free[n-1]
		c.free = c.free[:n-1]
		return v
	}
	return &visited{load: loader{fetch: c.fetch}}
}

// Ref names the leaf that Seek found.
func (c *Cursor) Ref() Ref {
	if c.depth == 0 {
		return c.tree.Root
	}
	return c.stack[len(c.stack)-1].node.children[c.slot]
}

// Parent names the inner node above the leaf that Seek found, and the first leaf behind
// those below it; a tree of one leaf has none.
func (c *Cursor) Parent() (r Ref, behind uint64, ok bool) {
	if c.depth == 0 {
		return Ref{}, 0, false
	}
	top := c.stack[len(c.stack)-1]
	return top.ref, top.end(), true
}

// Leaf reads the leaf that Seek found, once.
func (c *Cursor) Leaf(ctx context.Context, unitBytes int) (*Leaf, error) {
	sealed, err := c.sealed(ctx)
	if err != nil {
		return nil, err
	}
	return c.nodes.OpenLeaf(c.Ref(), sealed, unitBytes)
}

func (c *Cursor) sealed(ctx context.Context) ([]byte, error) {
	if c.depth == 0 {
		return c.fetch.Fetch(ctx, c.tree.Root.Location)
	}
	top := c.stack[len(c.stack)-1]
	return top.load.sealed(ctx, &top.node, c.slot)
}

// node returns the inner node of that level and position if the cursor is in it, or
// has left it and nobody has settled that.
func (c *Cursor) node(level int, pos uint64) *visited {
	for _, list := range [][]*visited{c.stack, c.left} {
		for _, v := range list {
			if v.node.level == level && v.pos == pos {
				return v
			}
		}
	}
	return nil
}
