package index

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Table is a tree over numbered entries, packs or keys, instead of units: leaf i
// holds the ordinals from i × the leaf's capacity. It is small, so its inner nodes
// are kept in memory; leaves are read when asked for.
type Table struct {
	nodes *Nodes
	fetch Fetcher
	// Next is the ordinal that follows the highest ever given.
	Next     uint64
	capacity uint64
	leaves   map[uint64]Ref
	inner    map[place]innerRef
}

type place struct {
	level int
	pos   uint64
}

type innerRef struct {
	ref      Ref
	children [FanOut]Ref
}

// TableRoot names a table in a commit.
type TableRoot struct {
	Next uint64
	Root Ref
}

func openTable(ctx context.Context, n *Nodes, f Fetcher, r TableRoot, capacity uint64) (*Table, error) {
	t := &Table{
		nodes: n, fetch: f, Next: r.Next, capacity: capacity,
		leaves: map[uint64]Ref{}, inner: map[place]innerRef{},
	}
	c := NewCursor(n, f, Tree{Root: r.Root, Leaves: t.leafCount(r.Next)})
	for from := uint64(0); ; {
		leaf, err := c.Seek(ctx, from)
		if err != nil {
			return nil, err
		}
		t.keepInner(c)
		if leaf == End {
			return t, nil
		}
		t.leaves[leaf] = c.Ref()
		from = leaf + 1
	}
}

func (t *Table) leafCount(next uint64) uint64 { return tableLeaves(next, t.capacity) }

// tableLeaves is how many leaves a table has for the ordinals below next.
func tableLeaves(next, capacity uint64) uint64 { return max(1, (next+capacity-1)/capacity) }

func (t *Table) keepInner(c *Cursor) {
	for _, v := range c.stack {
		t.inner[place{v.node.level, v.pos}] = innerRef{v.ref, v.node.children}
	}
}

// leafOf is the number of the leaf that holds an ordinal.
func (t *Table) leafOf(ordinal uint64) uint64 { return ordinal / t.capacity }

// read returns the contents of a leaf, nil if it has no entry.
func (t *Table) read(ctx context.Context, leaf uint64) ([]byte, error) {
	r, ok := t.leaves[leaf]
	if !ok {
		return nil, nil
	}
	sealed, err := t.fetch.Fetch(ctx, r.Location)
	if err != nil {
		return nil, err
	}
	return t.nodes.openTable(r, sealed)
}

// Leaves returns the numbers of the leaves that hold entries, in order.
func (t *Table) Leaves() []uint64 { return slices.Sorted(maps.Keys(t.leaves)) }

// Nodes yields every node of the table.
func (t *Table) Nodes() []Ref {
	out := slices.Collect(maps.Values(t.leaves))
	for _, n := range t.inner {
		out = append(out, n.ref)
	}
	return out
}

// replaced yields the nodes that a write with changes to these leaves does away
// with: the leaves themselves and every node above them.
func (t *Table) replaced(dirty map[uint64]bool) []Ref {
	var out []Ref
	seen := map[place]bool{}
	for leaf := range dirty {
		if r, ok := t.leaves[leaf]; ok {
			out = append(out, r)
		}
		pos := leaf
		for level := 1; level <= MaxDepth; level++ {
			pos /= FanOut
			at := place{level, pos}
			if n, ok := t.inner[at]; ok && !seen[at] {
				out = append(out, n.ref)
			}
			seen[at] = true
		}
	}
	return out
}

// write stores changed leaves, nil for one that became empty, and the nodes above
// them, and returns the new root.
func (t *Table) write(ctx context.Context, p Putter, changed map[uint64][]byte) (TableRoot, error) {
	level := maps.Clone(t.leaves)
	for _, leaf := range slices.Sorted(maps.Keys(changed)) {
		contents := changed[leaf]
		if contents == nil {
			delete(level, leaf)
			continue
		}
		sealed, at, err := p.PutNode(ctx, contents)
		if err != nil {
			return TableRoot{}, err
		}
		level[leaf] = Ref{Content: nodeHash(t.nodes.hashKey, contents), Sealed: sealed, Location: at}
	}
	for depth := 1; depth <= Depth(t.leafCount(t.Next)); depth++ {
		up, err := t.writeLevel(ctx, p, depth, level)
		if err != nil {
			return TableRoot{}, err
		}
		level = up
	}
	return TableRoot{Next: t.Next, Root: level[0]}, nil
}

func (t *Table) writeLevel(ctx context.Context, p Putter, depth int, below map[uint64]Ref) (map[uint64]Ref, error) {
	nodes := map[uint64]*inner{}
	for pos, r := range below {
		n := nodes[pos/FanOut]
		if n == nil {
			n = &inner{level: depth}
			nodes[pos/FanOut] = n
		}
		n.children[pos%FanOut] = r
	}
	up := map[uint64]Ref{}
	for _, pos := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[pos]
		if old, ok := t.inner[place{depth, pos}]; ok && old.children == n.children {
			up[pos] = old.ref
			continue
		}
		sealed, at, err := p.PutNode(ctx, n.encode())
		if err != nil {
			return nil, fmt.Errorf("table level %d: %w", depth, err)
		}
		up[pos] = Ref{Content: n.contentHash(t.nodes.hashKey), Sealed: sealed, Location: at}
	}
	return up, nil
}
