package repository

import (
	"cmp"
	"context"
	"fmt"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// Check proves that c is complete: every index node reads and is authentic, every
// pack and key file that anything reaches is listed under its ordinal and is there, packs
// with the recorded size. It reads no disk data, and asks the store once a pack.
func (r *Repository) Check(ctx context.Context, c *Commit) error {
	err := r.again(ctx, c.Key, func() error {
		o, err := r.readCommit(ctx, c.CommitRef)
		if err != nil {
			return err
		}
		return r.newChecker(o).all(ctx)
	})
	if err != nil {
		return fmt.Errorf("check backup %q: %w", c.Key, err)
	}
	return nil
}

type checker struct {
	repo    *Repository
	opened  *opened
	nodes   *index.Nodes
	objects objects
	packs   *index.Entries[index.Pack]
	keys    *index.Entries[index.DataKey]
	reached accounts // what the trees and the tables reach and no table was seen to list
	// packNames and keyNames are what has each ordinal, for all that reaches or lists it:
	// a number for an origin, and that of a pack.
	packNames, keyNames *index.Ledger
	origins             map[keys.Origin]int64
}

func (r *Repository) newChecker(o *opened) *checker {
	return &checker{
		repo: r, opened: o, nodes: o.nodes(), objects: objects{r.store, o.header.VM},
		reached: newAccounts(), packNames: index.NewLedger(), keyNames: index.NewLedger(), origins: map[keys.Origin]int64{},
	}
}

func (c *checker) all(ctx context.Context) error {
	if err := c.count(ctx); err != nil {
		return err
	}
	return c.compare(ctx)
}

// count finds what the trees and the tables reach.
func (c *checker) count(ctx context.Context) (err error) {
	for i := range c.opened.record.Volumes {
		v := &c.opened.record.Volumes[i]
		if err := c.volume(ctx, v); err != nil {
			return fmt.Errorf("volume %q: %w", v.Name, err)
		}
	}
	if c.packs, err = index.OpenPacks(ctx, c.nodes, c.objects, c.opened.record.Packs); err != nil {
		return fmt.Errorf("read pack table: %w", err)
	}
	if c.keys, err = index.OpenKeys(ctx, c.nodes, c.objects, c.opened.record.Keys); err != nil {
		return fmt.Errorf("read key table: %w", err)
	}
	return c.table(append(c.packs.Nodes(), c.keys.Nodes()...))
}

// compare looks for all that the tables list, and for what they do not.
func (c *checker) compare(ctx context.Context) error {
	for _, p := range c.opened.record.Tail {
		if err := c.pack(ctx, p.Ordinal, p.Pack); err != nil {
			return err
		}
	}
	if err := c.packs.All(ctx, func(ordinal uint64, p index.Pack) error { return c.pack(ctx, ordinal, p) }); err != nil {
		return err
	}
	if err := c.keys.All(ctx, func(ordinal uint64, k index.DataKey) error { return c.key(ctx, ordinal, k) }); err != nil {
		return err
	}
	for ordinal := range c.reached.packs.All() {
		return fmt.Errorf("pack table: %w: pack %d is reached and not listed", ErrDamaged, ordinal)
	}
	for ordinal := range c.reached.keys.All() {
		return fmt.Errorf("key table: %w: key %d is reached and not listed", ErrDamaged, ordinal)
	}
	return nil
}

func (c *checker) volume(ctx context.Context, v *commit.Volume) error {
	cursor := index.NewCursor(c.nodes, c.objects, treeOf(v))
	return walkVolume(ctx, cursor, v, c.node, func(r index.Ref, l *index.Leaf) error {
		c.reached.units(l, v.Unit, 1)
		return cmp.Or(c.node(r), c.frames(l))
	})
}

// walkVolume calls node for every inner node of a volume and leaf for every leaf.
func walkVolume(
	ctx context.Context, cursor *index.Cursor, v *commit.Volume, node func(index.Ref) error, leaf func(index.Ref, *index.Leaf) error,
) error {
	leaves := leafCount(v.Size, v.Unit)
	var failed error
	cursor.Visit = func(r index.Ref) { failed = cmp.Or(failed, node(r)) }
	for from := uint64(0); ; {
		at, err := cursor.Seek(ctx, from)
		if err = cmp.Or(err, failed); err != nil || at == index.End {
			return err
		}
		if at >= leaves {
			return fmt.Errorf("%w: index reaches behind the end of the volume", ErrDamaged)
		}
		l, err := cursor.Leaf(ctx, v.Unit)
		if err != nil {
			return err
		}
		if err := leaf(cursor.Ref(), l); err != nil {
			return err
		}
		from = at + 1
	}
}

func (c *checker) table(nodes []index.Ref) error {
	for _, r := range nodes {
		if err := c.node(r); err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) node(r index.Ref) error {
	c.reached.node(r, 1)
	return c.isPack(r.Ordinal, packName{index.IndexPack, r.Origin, r.Number})
}

func (c *checker) frames(l *index.Leaf) error {
	for i := range l.Frames {
		f := &l.Frames[i]
		err := cmp.Or(
			c.isPack(f.Pack.Ordinal, packName{index.DataPack, f.Pack.Origin, f.Pack.Number}),
			c.isKey(f.KeyOrdinal, f.Key))
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *checker) isPack(ordinal uint64, n packName) error {
	return same(c.packNames, "pack", ordinal, c.origin(n.origin)<<33|int64(n.kind)<<32|int64(n.number))
}

func (c *checker) isKey(ordinal uint64, o keys.Origin) error {
	return same(c.keyNames, "key", ordinal, c.origin(o))
}

// origin numbers the origins, from 1.
func (c *checker) origin(o keys.Origin) int64 {
	n, ok := c.origins[o]
	if !ok {
		n = int64(len(c.origins)) + 1
		c.origins[o] = n
	}
	return n
}

// same refuses an ordinal that is one thing here and was another elsewhere.
func same(names *index.Ledger, what string, ordinal uint64, name int64) error {
	if have := names.At(ordinal); have != 0 && have != name {
		return fmt.Errorf("%w: %s %d is two different ones", ErrDamaged, what, ordinal)
	}
	names.Set(ordinal, name)
	return nil
}

func (c *checker) pack(ctx context.Context, ordinal uint64, p index.Pack) error {
	c.reached.packs.Set(ordinal, 0)
	if err := c.isPack(ordinal, packNameOf(&p)); err != nil {
		return err
	}
	key := packNameOf(&p).key(c.objects.vm)
	info, err := c.repo.store.Stat(ctx, key)
	switch {
	case err != nil:
		return fmt.Errorf("pack %q: %w", key, readError(err))
	case info.Size != p.Size:
		return fmt.Errorf("pack %q: %w: it has %d bytes, not %d", key, ErrDamaged, info.Size, p.Size)
	default:
		return nil
	}
}

func (c *checker) key(ctx context.Context, ordinal uint64, k index.DataKey) error {
	c.reached.keys.Set(ordinal, 0)
	if err := c.isKey(ordinal, k.Origin); err != nil {
		return err
	}
	_, err := c.repo.store.Stat(ctx, layout.DataKey(c.objects.vm, k.Origin))
	if err != nil {
		return fmt.Errorf("data key: %w", readError(err))
	}
	return nil
}
