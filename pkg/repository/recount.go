package repository

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
)

// leavesOut reports whether the parent has a volume that this backup has not: what that one reached was
// read by nobody, so it cannot be booked out.
func (b *Backup) leavesOut() bool {
	return b.parent != nil && slices.ContainsFunc(b.parent.record.Volumes, func(old commit.Volume) bool {
		return !slices.ContainsFunc(b.volumes, func(v commit.Volume) bool { return v.Name == old.Name && v.Kind == old.Kind })
	})
}

// recount makes the books anew: it stores what there is of the index, reads all of the
// new trees, and counts what they reach.
func (b *Backup) recount(ctx context.Context, dir index.Directory) error {
	if err := b.closeIndex(ctx, dir); err != nil {
		return err
	}
	b.accounts = newAccounts()
	for i := range b.volumes {
		v := &b.volumes[i]
		err := walkVolume(ctx, index.NewCursor(b.nodes, b.objects, treeOf(v)), v, func(r index.Ref) error {
			b.accounts.node(r, 1)
			return nil
		}, func(r index.Ref, l *index.Leaf) error {
			b.accounts.node(r, 1)
			b.accounts.units(l, v.Unit, 1)
			return nil
		})
		if err != nil {
			return b.tableError(fmt.Errorf("count volume %q: %w", v.Name, err))
		}
	}
	return nil
}

// parentPacks calls do for the packs of the parent, and lost for the ordinals whose
// entries cannot be read.
func (b *Backup) parentPacks(ctx context.Context, do func(index.Numbered[index.Pack]), lost func(Extent)) error {
	for _, p := range b.parent.record.Tail {
		do(index.Numbered[index.Pack]{Ordinal: p.Ordinal, Entry: p.Pack})
	}
	return eachEntry(ctx, index.WalkPacks(b.nodes, b.objects, b.parent.record.Packs), span{0, index.End}, func(e index.Numbered[index.Pack]) error {
		do(e)
		return nil
	}, lost)
}

// parentKeys does the same for the data keys.
func (b *Backup) parentKeys(ctx context.Context, do func(index.Numbered[index.DataKey]), lost func(Extent)) error {
	return eachEntry(ctx, index.WalkKeys(b.nodes, b.objects, b.parent.record.Keys), span{0, index.End}, func(e index.Numbered[index.DataKey]) error {
		do(e)
		return nil
	}, lost)
}

// span is the ordinals [from, to).
type span struct{ from, to uint64 }

// eachEntry walks the leaves of a table that begin in a span, and goes on behind what cannot
// be read.
func eachEntry[E any](ctx context.Context, w *index.Walk[E], in span, do func(index.Numbered[E]) error, lost func(Extent)) error {
	lose := func(from, to uint64, err error) error {
		if !isBroken(err) {
			return err
		}
		lost(Extent{Offset: int64(from), Length: int64(to - from)})
		return nil
	}
	w.Lost(lose)
	for at := in.from; at < in.to; at = w.Next() {
		first, err := w.Seek(ctx, at)
		if err != nil || first >= in.to {
			return err
		}
		entries, err := w.Entries(ctx)
		if err != nil {
			if err := lose(first, w.Next(), err); err != nil {
				return err
			}
		}
		for _, e := range entries {
			if err := do(e); err != nil {
				return err
			}
		}
	}
	return nil
}
