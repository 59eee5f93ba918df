package index

import "context"

// Builder makes the inner nodes above leaves that are added in order. Nodes equal
// to those of the old tree that the Cursor walks are shared with it.
type Builder struct {
	nodes *Nodes
	put   Putter
	old   *Cursor
	// Dropped is told of each inner node of the old tree that the new one has not.
	Dropped func(Ref)
	// Renew reports whether an inner node of the old tree is written anew although it has
	// not changed.
	Renew func(Ref) bool

	depth int
	open  []building // by level, from 1
	root  Ref
}

// building is the node of one level that leaves are being added to.
type building struct {
	node   inner
	pos    uint64
	active bool
	old    *visited
}

// NewBuilder makes the tree of a volume with that many leaves. old is never nil;
// an empty tree has a cursor as well.
func NewBuilder(n *Nodes, p Putter, old *Cursor, leaves uint64) *Builder {
	old.building = true
	b := &Builder{nodes: n, put: p, old: old, depth: Depth(leaves), Dropped: func(Ref) {}, Renew: func(Ref) bool { return false }}
	b.open = make([]building, b.depth+1)
	for level := range b.open {
		b.open[level].node.level = level
	}
	return b
}

// Add appends a leaf. Leaves come in order, the zero Ref not at all; the old
// cursor has been moved to leaf, or beyond.
func (b *Builder) Add(ctx context.Context, leaf uint64, r Ref) error {
	if b.depth == 0 {
		b.root = r
		return nil
	}
	if err := b.closeBelow(ctx, leaf); err != nil {
		return err
	}
	for level := b.depth; level >= 1; level-- {
		o := &b.open[level]
		if o.active {
			continue
		}
		o.active, o.pos = true, leaf/(FanOut*span(level))
		o.old = b.old.node(level, o.pos)
	}
	b.open[1].node.children[leaf%FanOut] = r
	b.Settle(leaf)
	return nil
}

// closeBelow ends the nodes that leaf does not belong to, from level 1 upwards.
func (b *Builder) closeBelow(ctx context.Context, leaf uint64) error {
	for level := 1; level <= b.depth; level++ {
		o := &b.open[level]
		if !o.active || o.pos == leaf/(FanOut*span(level)) {
			return nil
		}
		if err := b.close(ctx, level); err != nil {
			return err
		}
	}
	return nil
}

func (b *Builder) close(ctx context.Context, level int) error {
	o := &b.open[level]
	ref, err := b.refOf(ctx, o)
	if err != nil {
		return err
	}
	if level == b.depth {
		b.root = ref
	} else {
		b.open[level+1].node.children[o.pos%FanOut] = ref
	}
	o.active, o.old = false, nil
	o.node.children = [FanOut]Ref{}
	return nil
}

func (b *Builder) refOf(ctx context.Context, o *building) (Ref, error) {
	if o.old != nil && o.old.node.children == o.node.children && !b.Renew(o.old.ref) {
		o.old.shared = true
		return o.old.ref, nil
	}
	sealed, at, err := b.put.PutNode(ctx, o.node.encode())
	return Ref{Content: o.node.contentHash(b.nodes.hashKey), Sealed: sealed, Location: at}, err
}

// Settle lets go of the nodes of the old tree that end at or before leaf. Add does
// it as well; alone it is for long ranges in which nothing is added.
func (b *Builder) Settle(leaf uint64) {
	kept := b.old.left[:0]
	for _, v := range b.old.left {
		if v.end() > leaf || b.holds(v) {
			kept = append(kept, v)
			continue
		}
		if !v.shared {
			b.Dropped(v.ref)
		}
		b.old.free = append(b.old.free, v)
	}
	clear(b.old.left[len(kept):])
	b.old.left = kept
}

func (b *Builder) holds(v *visited) bool {
	return v.node.level <= b.depth && b.open[v.node.level].old == v
}

// Finish writes what is open and returns the root; zero if no leaf was added. The
// old cursor has been moved to its end.
func (b *Builder) Finish(ctx context.Context) (Ref, error) {
	for level := 1; level <= b.depth; level++ {
		if !b.open[level].active {
			break
		}
		if err := b.close(ctx, level); err != nil {
			return Ref{}, err
		}
	}
	b.Settle(End)
	return b.root, nil
}
