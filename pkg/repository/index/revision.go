package index

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Revision is the next version of a table. It is made a leaf at a time, so that its memory
// is that of the ledger and not of the entries:
//
//	Replaced   until what it tells is in the ledger as well
//	PutLeaf    for each of Leaves, with what Leaf returns
//	PutNodes   when Next is above every ordinal that is given
type Revision[E any] struct {
	*Entries[E]
	// Live tells how much more, or less, of each entry is reached than the table says. One
	// that is not reached at all leaves the table.
	Live *Ledger
	// Fresh calls add for the entries at the ordinals [from, to) that the table does not
	// have yet, with nothing reached. Ranges are asked for in order.
	Fresh func(ctx context.Context, from, to uint64, add func(Numbered[E]) error) error

	changed map[uint64]Ref
}

// NewRevision begins a new version of e.
func NewRevision[E any](e *Entries[E], live *Ledger) *Revision[E] {
	return &Revision[E]{Entries: e, Live: live, changed: map[uint64]Ref{}}
}

// Replaced yields the nodes of the old table that the new one will not keep, as the ledger
// is now. A leaf that has changed once is written.
func (r *Revision[E]) Replaced() []Ref {
	for ordinal := range r.Live.All() {
		r.changed[r.leafOf(ordinal)] = Ref{}
	}
	return r.replaced(r.changed)
}

// Leaves returns the numbers of the leaves that have changed, in order.
func (r *Revision[E]) Leaves() []uint64 { return slices.Sorted(maps.Keys(r.changed)) }

// Leaf returns the new contents of a leaf, nil if it has no entries any more.
func (r *Revision[E]) Leaf(ctx context.Context, n uint64) ([]byte, error) {
	entries, err := r.leaf(ctx, n)
	if err != nil {
		return nil, err
	}
	first := n * r.capacity
	err = r.Fresh(ctx, first, first+r.capacity, func(e Numbered[E]) error {
		have, ok := entries[e.Ordinal-first]
		if ok && !r.kind.same(&have, &e.Entry) {
			return fmt.Errorf("%w: two table entries have the ordinal %d", ErrDamaged, e.Ordinal)
		}
		if !ok {
			*r.kind.live(&e.Entry) = 0
			entries[e.Ordinal-first] = e.Entry
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for slot := range r.capacity {
		delta := r.Live.At(first + slot)
		entry, ok := entries[slot]
		if !ok && delta != 0 {
			return nil, fmt.Errorf("%w: table has no entry %d", ErrDamaged, first+slot)
		}
		live := r.kind.live(&entry)
		*live += delta
		switch {
		case *live < 0:
			return nil, fmt.Errorf("%w: table entry %d has fewer live bytes than are dropped", ErrDamaged, first+slot)
		case *live == 0:
			delete(entries, slot)
		default:
			entries[slot] = entry
		}
	}
	return r.kind.encode(entries), nil
}

// PutLeaf stores what Leaf has returned.
func (r *Revision[E]) PutLeaf(ctx context.Context, p Putter, n uint64, contents []byte) error {
	if contents == nil {
		return nil
	}
	sealed, at, err := p.PutNode(ctx, contents)
	r.changed[n] = Ref{Content: nodeHash(r.nodes.hashKey, contents), Sealed: sealed, Location: at}
	return err
}

// PutNodes stores the nodes above the leaves.
func (r *Revision[E]) PutNodes(ctx context.Context, p Putter) (TableRoot, error) {
	return r.write(ctx, p, r.changed)
}
