package repository

import (
	"context"
	"fmt"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// Check proves that c is complete: every index node reads and is authentic, every
// pack and key file that anything reaches is listed and is there with the recorded
// size. It reads no disk data, and asks the store once a pack.
func (r *Repository) Check(ctx context.Context, c *Commit) error {
	o, err := r.readCommit(ctx, c.CommitRef)
	if err != nil {
		return err
	}
	if err := r.newChecker(o).all(ctx); err != nil {
		return fmt.Errorf("check backup %q: %w", c.Key, err)
	}
	return nil
}

type checker struct {
	repo    *Repository
	opened  *opened
	nodes   *index.Nodes
	objects objects
	reached accounts // what the trees reach
	listed  accounts // what the tables say of it
}

func (r *Repository) newChecker(o *opened) *checker {
	return &checker{
		repo: r, opened: o, nodes: o.nodes(), objects: objects{r.store, o.header.VM},
		reached: newAccounts(), listed: newAccounts(),
	}
}

func (c *checker) all(ctx context.Context) error {
	for i := range c.opened.record.Volumes {
		v := &c.opened.record.Volumes[i]
		if err := c.volume(ctx, v); err != nil {
			return fmt.Errorf("volume %q: %w", v.Name, err)
		}
	}
	if err := c.packs(ctx); err != nil {
		return err
	}
	if err := c.keys(ctx); err != nil {
		return err
	}
	for ordinal := range c.reached.packs {
		if _, ok := c.listed.packs[ordinal]; !ok {
			return fmt.Errorf("pack table: %w: pack %d is reached and not listed", ErrDamaged, ordinal)
		}
	}
	for ordinal := range c.reached.keys {
		if _, ok := c.listed.keys[ordinal]; !ok {
			return fmt.Errorf("key table: %w: key %d is reached and not listed", ErrDamaged, ordinal)
		}
	}
	return nil
}

func (c *checker) volume(ctx context.Context, v *commit.Volume) error {
	leaves := leafCount(v.Size, v.Unit)
	cursor := index.NewCursor(c.nodes, c.objects, index.Tree{Root: v.Root, Leaves: leaves})
	cursor.Visit = func(r index.Ref) { c.reached.node(r, 1) }
	for from := uint64(0); ; {
		leaf, err := cursor.Seek(ctx, from)
		if err != nil {
			return err
		}
		if leaf == index.End {
			return nil
		}
		if leaf >= leaves {
			return fmt.Errorf("%w: index reaches behind the end of the volume", ErrDamaged)
		}
		l, err := cursor.Leaf(ctx, v.Unit)
		if err != nil {
			return err
		}
		c.reached.node(cursor.Ref(), 1)
		c.reached.units(l, v.Unit, 1)
		from = leaf + 1
	}
}

func (c *checker) packs(ctx context.Context) error {
	table, err := index.OpenPacks(ctx, c.nodes, c.objects, c.opened.record.Packs)
	if err != nil {
		return fmt.Errorf("read pack table: %w", err)
	}
	c.table(table.Nodes())
	for _, p := range c.opened.record.Tail {
		if err := c.pack(ctx, p.Ordinal, p.Pack); err != nil {
			return err
		}
	}
	return table.All(ctx, func(ordinal uint64, p index.Pack) error { return c.pack(ctx, ordinal, p) })
}

func (c *checker) table(nodes []index.Ref) {
	for _, r := range nodes {
		c.reached.node(r, 1)
	}
}

func (c *checker) pack(ctx context.Context, ordinal uint64, p index.Pack) error {
	c.listed.packs[ordinal] = p.Live
	key := layout.DataPack(c.objects.vm, p.Origin, p.Number)
	if p.Kind == index.IndexPack {
		key = layout.IndexPack(c.objects.vm, p.Origin, p.Number)
	}
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

func (c *checker) keys(ctx context.Context) error {
	table, err := index.OpenKeys(ctx, c.nodes, c.objects, c.opened.record.Keys)
	if err != nil {
		return fmt.Errorf("read key table: %w", err)
	}
	c.table(table.Nodes())
	return table.All(ctx, func(ordinal uint64, k index.DataKey) error {
		c.listed.keys[ordinal] = k.Live
		_, err := c.repo.store.Stat(ctx, layout.DataKey(c.objects.vm, k.Origin))
		if err != nil {
			return fmt.Errorf("data key: %w", readError(err))
		}
		return nil
	})
}
