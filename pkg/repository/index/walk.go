package index

import (
	"context"
	"fmt"
)

// Walk reads a table forwards, a leaf at a time, so that its memory does not depend
// on how many entries the table has. It is used from one goroutine.
type Walk[E any] struct {
	cursor *Cursor
	kind   entryKind[E]
	leaf   uint64
}

// Numbered is an entry with its ordinal.
type Numbered[E any] struct {
	Ordinal uint64
	Entry   E
}

// WalkPacks walks a pack table.
func WalkPacks(n *Nodes, f Fetcher, r TableRoot) *Walk[Pack] { return walk(n, f, r, packKind()) }

// WalkKeys walks a key table.
func WalkKeys(n *Nodes, f Fetcher, r TableRoot) *Walk[DataKey] { return walk(n, f, r, keyKind()) }

func walk[E any](n *Nodes, f Fetcher, r TableRoot, k entryKind[E]) *Walk[E] {
	t := Tree{Root: r.Root, Leaves: tableLeaves(r.Next, k.capacity)}
	return &Walk[E]{cursor: NewCursor(n, f, t), kind: k}
}

// Visit has the walk tell of each inner node as it is read.
func (w *Walk[E]) Visit(do func(Ref)) { w.cursor.Visit = do }

// Lost has the walk ask about nodes above the ordinals [from, to) that cannot be read:
// with nil it goes on behind them.
func (w *Walk[E]) Lost(ask func(from, to uint64, err error) error) {
	w.cursor.Lost = func(from, to uint64, err error) error {
		return ask(from*w.kind.capacity, to*w.kind.capacity, err)
	}
}

// Seek moves to the first leaf that holds an entry at or behind an ordinal, and
// returns the first ordinal of that leaf, End if there is none. It never moves back.
func (w *Walk[E]) Seek(ctx context.Context, ordinal uint64) (uint64, error) {
	leaf, err := w.cursor.Seek(ctx, ordinal/w.kind.capacity)
	if err != nil || leaf == End {
		return End, err
	}
	w.leaf = leaf
	return leaf * w.kind.capacity, nil
}

// Next is the first ordinal behind the leaf that Seek found.
func (w *Walk[E]) Next() uint64 { return (w.leaf + 1) * w.kind.capacity }

// Ref names the leaf that Seek found.
func (w *Walk[E]) Ref() Ref { return w.cursor.Ref() }

// Entries reads the leaf that Seek found, once, and returns its entries in order.
func (w *Walk[E]) Entries(ctx context.Context) ([]Numbered[E], error) {
	sealed, err := w.cursor.sealed(ctx)
	if err != nil {
		return nil, err
	}
	contents, err := w.cursor.nodes.openTable(w.Ref(), sealed)
	if err != nil {
		return nil, err
	}
	entries, err := w.kind.decode(contents)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	out := make([]Numbered[E], 0, len(entries))
	for slot := range w.kind.capacity {
		if e, ok := entries[slot]; ok {
			out = append(out, Numbered[E]{w.leaf*w.kind.capacity + slot, e})
		}
	}
	return out, nil
}
