package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmstate/vmstate/pkg/repository/vmgen"
)

const (
	increments = 30
	// chainShare is how much smaller the image of the chain is: thirty backups of
	// four engines take their time.
	chainShare = 4
	// hugeSize is the largest file that ext4 can have, less a MiB.
	hugeSize   = 16<<40 - 1<<20
	hugeStride = 4 << 30
	hugePiece  = 64 << 10
)

// chain is a full backup, thirty increments with 1 % of scattered change each, and a
// restore of the last one, whose data lies in all of them.
func (r *runner) chain(ctx context.Context) error {
	size := r.bench.size / chainShare
	base, err := r.bench.image(ctx, "base", size)
	if err != nil {
		return err
	}
	image := filepath.Join(r.bench.cache, "chain.img.part")
	defer os.Remove(image)
	if err := copySparse(ctx, base, image); err != nil {
		return err
	}
	if err := r.fresh(ctx); err != nil {
		return err
	}
	if err := r.backup(ctx, "", image); err != nil {
		return err
	}
	full, sum := r.bytes, cost{}
	for i := range increments {
		if err := change(image, size, seed+1+uint64(i)); err != nil {
			return err
		}
		c, err := r.engine.backup(ctx, image)
		if err != nil {
			return err
		}
		sum.cpu, sum.rss = sum.cpu+c.cpu, max(sum.rss, c.rss)
	}
	bytes, objects, err := r.place.stored()
	if err != nil {
		return err
	}
	r.add("chain", "cpu", sum.cpu, "s")
	r.add("chain", "rss", sum.rss, "MiB")
	r.add("chain", "stored", float64(bytes-full)/1e6, "MB")
	r.add("chain", "objects", float64(objects), "objects")
	r.requests("chain", r.place.traffic())
	if err := r.restoreLast(ctx, image, bytes); err != nil {
		return err
	}
	return r.place.empty()
}

// restoreLast restores the last backup of a chain that takes so many bytes.
func (r *runner) restoreLast(ctx context.Context, image string, stored int64) error {
	to := filepath.Join(r.bench.work, "restored")
	defer os.RemoveAll(to)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	c, err := r.engine.restore(ctx, to)
	if err != nil {
		return err
	}
	r.add("chain_restore", "cpu", c.cpu, "s")
	r.add("chain_restore", "rss", c.rss, "MiB")
	r.requests("chain_restore", r.place.traffic())
	if r.name == "vmstate" {
		if err := r.shares(c, stored); err != nil {
			return err
		}
	}
	return same(ctx, r.engine.restored(to), image)
}

func change(image string, size int64, seed uint64) error {
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return vmgen.Scatter(f, size, seed, percent)
}

// shares tell how well the last backup of a chain lies in the packs of all.
func (r *runner) shares(c cost, stored int64) error {
	var out told
	if err := json.Unmarshal(c.out, &out); err != nil {
		return err
	}
	r.add("chain_restore", "reads", float64(out.Requests), "requests")
	r.add("chain_restore", "fetched", float64(out.Fetched)/1e6, "MB")
	r.add("chain_restore", "share", float64(out.Fetched)/float64(stored), "of what is stored")
	return nil
}

// memory is a sparse disk of 16 TiB with a piece of data every 4 GiB: to back up, to
// back up again, and to restore in place.
func (r *runner) memory(ctx context.Context) error {
	image := filepath.Join(r.bench.work, "huge.img")
	defer os.Remove(image)
	f, err := os.Create(image)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(hugeSize); err != nil {
		return fmt.Errorf("this filesystem has no file of 16 TiB: %w", err)
	}
	for at := int64(0); at < hugeSize; at += hugeStride {
		piece := make([]byte, hugePiece)
		for i := range piece {
			piece[i] = byte(at>>32) ^ byte(i*i>>7)
		}
		if _, err := f.WriteAt(piece, at); err != nil {
			return err
		}
	}
	if err := r.fresh(ctx); err != nil {
		return err
	}
	for _, step := range []string{"memory_full", "memory_unchanged"} {
		c, err := r.engine.backup(ctx, image)
		if err != nil {
			return err
		}
		r.add(step, "cpu", c.cpu, "s")
		r.add(step, "rss", c.rss, "MiB")
	}
	to := filepath.Join(r.bench.work, "restored")
	defer os.RemoveAll(to)
	for _, step := range []string{"memory_restore", "memory_inplace"} {
		c, err := r.engine.restore(ctx, to)
		if err != nil {
			return err
		}
		r.add(step, "cpu", c.cpu, "s")
		r.add(step, "rss", c.rss, "MiB")
	}
	return r.place.empty()
}

// upload is the S3 client alone: 1 GiB of packs from memory over TLS.
func (r *runner) upload(ctx context.Context) error {
	c, err := r.engineStep(ctx, task{What: "upload"})
	if err != nil {
		return err
	}
	r.add("upload", "cpu", c.cpu, "s")
	r.add("upload", "rate", float64(uploadBytes)/1e9/c.cpu, "GB/s per core")
	return r.place.empty()
}

func (r *runner) engineStep(ctx context.Context, t task) (cost, error) {
	if err := r.fresh(ctx); err != nil {
		return cost{}, err
	}
	return r.engine.(*vmstate).step(ctx, t)
}
