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
	record, err := b.index.Close(ctx, dir)
	if err != nil {
		return err
	}
	b.packs = append(b.packs, record)
	b.pending = append(b.pending, record)
	for i := range b.packs {
		b.packs[i].Live = 0
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

// renewTables makes tables of what the books name, and shares none of the parent's nodes.
func (b *Backup) renewTables(ctx context.Context, t *tables) error {
	if b.parent == nil {
		return nil
	}
	var failed error
	set := func(err error) {
		if failed == nil {
			failed = err
		}
	}
	err := b.parentPacks(ctx, func(p index.Numbered[index.Pack]) {
		if p.Entry.Live = 0; b.accounts.packs[p.Ordinal] != 0 {
			set(t.packs.Set(ctx, p.Ordinal, p.Entry))
		}
	}, func(Extent) {})
	if err != nil {
		return err
	}
	t.packs.Next = max(t.packs.Next, b.parent.record.Packs.Next)
	err = b.parentKeys(ctx, func(k index.Numbered[index.DataKey]) {
		if k.Entry.Live = 0; b.accounts.keys[k.Ordinal] != 0 {
			set(t.keys.Set(ctx, k.Ordinal, k.Entry))
		}
	}, func(Extent) {})
	t.keys.Next = max(t.keys.Next, b.parent.record.Keys.Next)
	if err != nil {
		return err
	}
	return failed
}

// parentPacks calls do for the packs of the parent, and lost for the ordinals whose
// entries cannot be read.
func (b *Backup) parentPacks(ctx context.Context, do func(index.Numbered[index.Pack]), lost func(Extent)) error {
	for _, p := range b.parent.record.Tail {
		do(index.Numbered[index.Pack]{Ordinal: p.Ordinal, Entry: p.Pack})
	}
	return eachEntry(ctx, index.WalkPacks(b.nodes, b.objects, b.parent.record.Packs), do, lost)
}

// parentKeys does the same for the data keys.
func (b *Backup) parentKeys(ctx context.Context, do func(index.Numbered[index.DataKey]), lost func(Extent)) error {
	return eachEntry(ctx, index.WalkKeys(b.nodes, b.objects, b.parent.record.Keys), do, lost)
}

// eachEntry walks a table and goes on behind what cannot be read.
func eachEntry[E any](ctx context.Context, w *index.Walk[E], do func(index.Numbered[E]), lost func(Extent)) error {
	lose := func(from, to uint64, err error) error {
		if !isBroken(err) {
			return err
		}
		lost(Extent{Offset: int64(from), Length: int64(to - from)})
		return nil
	}
	w.Lost(lose)
	for at := uint64(0); ; at = w.Next() {
		first, err := w.Seek(ctx, at)
		if err != nil || first == index.End {
			return err
		}
		entries, err := w.Entries(ctx)
		if err != nil {
			if err := lose(first, w.Next(), err); err != nil {
				return err
			}
		}
		for _, e := range entries {
			do(e)
		}
	}
}
