package index

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Table is a tree over numbered entries, packs or keys, instead of units: leaf i
// holds the ordinals from i × the leaf's capacity. Its inner nodes are kept in memory,
// 130 bytes a leaf; leaves are read when asked for.
type Table struct {
	nodes *Nodes
	fetch Fetcher
	// Next is the ordinal that follows the highest ever given.
	Next     uint64
	capacity uint64
	root     Ref
	depth    int
	inner    map[place]*innerRef
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
	leaves := tableLeaves(r.Next, capacity)
	t := &Table{
		nodes: n, fetch: f, Next: r.Next, capacity: capacity,
		root: r.Root, depth: Depth(leaves), inner: map[place]*innerRef{},
	}
	c := NewCursor(n, f, Tree{Root: r.Root, Leaves: leaves})
	c.Visit = func(r Ref) {
		v := c.stack[len(c.stack)-1]
		t.inner[place{v.node.level, v.pos}] = &innerRef{r, v.node.children}
	}
	for from := uint64(0); ; {
		leaf, err := c.Seek(ctx, from)
		if err != nil {
			return nil, err
		}
		if leaf == End {
			return t, nil
		}
		from = leaf + 1
	}
}

// tableLeaves is how many leaves a table has for the ordinals below next.
func tableLeaves(next, capacity uint64) uint64 { return max(1, (next+capacity-1)/capacity) }

// leafOf is the number of the leaf that holds an ordinal.
func (t *Table) leafOf(ordinal uint64) uint64 { return ordinal / t.capacity }

// ref names a leaf, zero if it has no entry.
func (t *Table) ref(leaf uint64) Ref {
	if t.depth == 0 && leaf == 0 {
		return t.root
	}
	if n := t.inner[place{1, leaf / FanOut}]; n != nil {
		return n.children[leaf%FanOut]
	}
	return Ref{}
}

// read returns the contents of a leaf, nil if it has no entry.
func (t *Table) read(ctx context.Context, leaf uint64) ([]byte, error) {
	r := t.ref(leaf)
	if r.Zero() {
		return nil, nil
	}
	sealed, err := t.fetch.Fetch(ctx, r.Location)
	if err != nil {
		return nil, err
	}
	return t.nodes.openTable(r, sealed)
}

// Leaves returns the numbers of the leaves that hold entries, in order.
func (t *Table) Leaves() (out []uint64) {
	if t.depth == 0 && !t.root.Zero() {
		return []uint64{0}
	}
	for at, n := range t.inner {
		for i := range n.children {
			if at.level == 1 && !n.children[i].Zero() {
				out = append(out, at.pos*FanOut+uint64(i))
			}
		}
	}
	slices.Sort(out)
	return out
}

// Nodes yields every node of the table.
func (t *Table) Nodes() (out []Ref) {
	for _, leaf := range t.Leaves() {
		out = append(out, t.ref(leaf))
	}
	for _, n := range t.inner {
		out = append(out, n.ref)
	}
	return out
}

// replaced yields the nodes that a write with changes to these leaves does away
// with: the leaves themselves and every node above them.
func (t *Table) replaced(changed map[uint64]Ref) (out []Ref) {
	seen := map[place]bool{}
	for leaf := range changed {
		if r := t.ref(leaf); !r.Zero() {
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

// write stores the nodes above leaves that have changed, the zero Ref for one that became
// empty, and returns the new root. Those above no changed leaf stay.
func (t *Table) write(ctx context.Context, p Putter, changed map[uint64]Ref) (TableRoot, error) {
	below, root := changed, t.root
	for level := 1; level <= Depth(tableLeaves(t.Next, t.capacity)); level++ {
		if _, ok := below[0]; !ok && level > t.depth {
			below[0] = root // the table has become higher than it was
		}
		up, err := t.writeLevel(ctx, p, level, below)
		if err != nil {
			return TableRoot{}, err
		}
		below = up
		if level > t.depth {
			root = below[0]
		}
	}
	if r, ok := below[0]; ok {
		root = r
	}
	return TableRoot{Next: t.Next, Root: root}, nil
}

func (t *Table) writeLevel(ctx context.Context, p Putter, level int, below map[uint64]Ref) (map[uint64]Ref, error) {
	nodes := map[uint64]*inner{}
	for pos, r := range below {
		n := nodes[pos/FanOut]
		if n == nil {
			n = &inner{level: level}
			if old := t.inner[place{level, pos / FanOut}]; old != nil {
				n.children = old.children
			}
			nodes[pos/FanOut] = n
		}
		n.children[pos%FanOut] = r
	}
	up := map[uint64]Ref{}
	for _, pos := range slices.Sorted(maps.Keys(nodes)) {
		n := nodes[pos]
		if n.empty() {
			up[pos] = Ref{}
			continue
		}
		sealed, at, err := p.PutNode(ctx, n.encode())
		if err != nil {
			return nil, fmt.Errorf("table level %d: %w", level, err)
		}
		up[pos] = Ref{Content: n.contentHash(t.nodes.hashKey), Sealed: sealed, Location: at}
	}
	return up, nil
}
