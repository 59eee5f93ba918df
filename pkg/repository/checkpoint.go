package repository

import (
	"context"
	"time"

	"github.com/vmstate/vmstate/pkg/repository/index"
)

const (
	// checkpointPacks, checkpointBytes and checkpointLeaves are when the index so
	// far is stored, besides BackupSpec.CheckpointEvery.
	checkpointPacks  = 64
	checkpointBytes  = 12 << 20
	checkpointLeaves = 1 << 14
)

// closePack sends the full pack off, and the index with it when that is due. At
// this point every leaf in the index is of packs that are closed.
func (b *Backup) closePack(ctx context.Context) error {
	if err := b.data.Close(); err != nil {
		return err
	}
	b.recorded++
	if b.recorded >= checkpointPacks || time.Since(b.flushed) >= b.spec.CheckpointEvery {
		return b.checkpoint(ctx)
	}
	return nil
}

// checkIndex stores the index when it grows too large, whatever the packs are at.
func (b *Backup) checkIndex(ctx context.Context) error {
	if b.index.Buffered() < checkpointBytes && b.index.Leaves() < checkpointLeaves {
		return nil
	}
	if err := b.data.Close(); err != nil {
		return err
	}
	return b.checkpoint(ctx)
}

// checkpoint waits for the packs that the index reaches and then stores the index.
// From here on a later attempt takes all of it over.
func (b *Backup) checkpoint(ctx context.Context) error {
	if b.index.Leaves() == 0 {
		return nil
	}
	dir, err := b.directory()
	if err != nil {
		return err
	}
	if err := b.closeIndex(ctx, dir); err != nil {
		return err
	}
	b.flushed, b.recorded = time.Now(), 0
	return nil
}

// closeIndex stores the index pack that dir ends.
func (b *Backup) closeIndex(ctx context.Context, dir index.Directory) error {
	record, at, err := b.index.Close(ctx, dir)
	if err != nil {
		return err
	}
	b.stored.listedAt(at)
	b.stored.add(record)
	b.accounts.packs.Add(record.Ordinal, record.Live)
	return nil
}

// directory lists what was stored since the last one, the last index pack included.
func (b *Backup) directory() (index.Directory, error) {
	if err := b.up.Wait(); err != nil {
		return index.Directory{}, err
	}
	b.stored.add(b.data.Take()...)
	return index.Directory{
		Commitment: b.commitment, KeyVersion: b.keyVersion, Full: b.parent == nil, Packs: b.stored.list(),
	}, nil
}
