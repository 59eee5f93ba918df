package repository

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// Check proves that c is complete: every index node reads and is authentic, every
// pack and key file is there with the recorded size. It reads no disk data, and
// asks the store once a pack.
func (r *Repository) Check(ctx context.Context, c *Commit) error {
	o, err := r.readCommit(ctx, c.CommitRef)
	if err != nil {
		return err
	}
	ck := &checker{repo: r, opened: o, nodes: o.nodes(), objects: objects{r.store, o.header.VM}}
	if err := ck.all(ctx); err != nil {
		return fmt.Errorf("check backup %q: %w", c.Key, err)
	}
	return nil
}

type checker struct {
	repo    *Repository
	opened  *opened
	nodes   *index.Nodes
	objects objects
}

func (c *checker) all(ctx context.Context) error {
	packs, err := index.OpenPacks(ctx, c.nodes, c.objects, c.opened.record.Packs)
	if err != nil {
		return fmt.Errorf("read pack table: %w", err)
	}
	for _, p := range c.opened.record.Tail {
		if err := c.pack(ctx, p.Pack); err != nil {
			return err
		}
	}
	err = packs.All(ctx, func(_ uint64, p index.Pack) error { return c.pack(ctx, p) })
	if err != nil {
		return err
	}
	if err := c.keys(ctx); err != nil {
		return err
	}
	for i := range c.opened.record.Volumes {
		v := &c.opened.record.Volumes[i]
		if err := c.volume(ctx, v); err != nil {
			return fmt.Errorf("volume %q: %w", v.Name, err)
		}
	}
	return nil
}

func (c *checker) pack(ctx context.Context, p index.Pack) error {
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
	return table.All(ctx, func(_ uint64, k index.DataKey) error {
		return c.keyFile(ctx, layout.DataKey(c.objects.vm, k.Origin), k.Origin)
	})
}

func (c *checker) keyFile(ctx context.Context, key string, _ keys.Origin) error {
	_, err := c.repo.store.Stat(ctx, key)
	if errors.Is(err, objectstore.ErrNotFound) {
		return fmt.Errorf("data key: %w", readError(err))
	}
	return err
}

func (c *checker) volume(ctx context.Context, v *commit.Volume) error {
	leaves := leafCount(v.Size, v.Unit)
	cursor := index.NewCursor(c.nodes, c.objects, index.Tree{Root: v.Root, Leaves: leaves})
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
		if _, err := cursor.Leaf(ctx, v.Unit); err != nil {
			return err
		}
		from = leaf + 1
	}
}
