package repository

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
)

// largeVolume is the size in bytes from which a volume has the larger unit.
const largeVolume = 2 << 40

// volumeRun stores one volume: it walks the source and the parent's tree side by
// side, a leaf at a time, so its memory does not depend on the size.
type volumeRun struct {
	b       *Backup
	volume  *BlockVolume
	number  int // of the volume in the run
	unit    int
	hasher  *index.Hasher
	source  *source
	cursor  *index.Cursor
	builder *index.Builder
	queue   []*leafWork // not yet in the tree, oldest first
	spare   []*leafWork
	record  commit.Volume
	reading commit.Reading
	oldSize int64 // of the volume in the parent
	seen    int64 // where the last chunk ended
	used    int64 // bytes that were read and are not zero, in whole units
	// unknown are leaves of which an audit cannot tell what the parent held.
	unknown []Extent
}

// AddBlock stores a disk. A rerun must add the same volumes in the same order.
// ErrSource if it cannot be read, ErrParent as told there.
func (b *Backup) AddBlock(ctx context.Context, v BlockVolume) (VolumeResult, error) {
	return b.add(ctx, v, commit.Volume{Kind: commit.Block})
}

func (b *Backup) add(ctx context.Context, v BlockVolume, record commit.Volume) (VolumeResult, error) {
	if err := b.usable(); err != nil {
		return VolumeResult{}, err
	}
	if err := b.checkVolume(&v); err != nil {
		return VolumeResult{}, err
	}
	if err := b.openRenewal(ctx); err != nil {
		b.failed = fmt.Errorf("volume %q: %w", v.Name, err)
		return VolumeResult{}, b.failed
	}
	record.Name, record.Role, record.Mode = v.Name, v.Role, v.Mode
	record.Size, record.LogicalBlock = v.Size, v.LogicalBlockSize
	b.progress.Volume = v.Name
	b.progress.Total += v.Size
	run := b.newVolumeRun(ctx, &v, record)
	err := run.all(ctx)
	run.source.close()
	if err != nil {
		b.failed = fmt.Errorf("volume %q: %w", v.Name, err)
		return VolumeResult{}, b.failed
	}
	b.volumes = append(b.volumes, run.record)
	b.readings = append(b.readings, run.reading)
	result := volumeResult(&run.record)
	result.Reading = readingOf(&run.record, &run.reading, b.session.Sequence(), b.spec.Created.Unix())
	return result, nil
}

// usable refuses to go on after an error: the run's books would be wrong.
func (b *Backup) usable() error {
	switch {
	case b.failed != nil:
		return fmt.Errorf("run has failed: %w", b.failed)
	case b.found != nil, b.sealed:
		return fmt.Errorf("%w: the backup is committed already, or its commit has failed", ErrInvalid)
	default:
		return nil
	}
}

func (b *Backup) checkVolume(v *BlockVolume) error {
	if v.Name == "" || v.Size < 0 || v.LogicalBlockSize < 0 {
		return fmt.Errorf("%w: volume %q of %d bytes", ErrInvalid, v.Name, v.Size)
	}
	if len(b.volumes) == commit.MaxVolumes {
		return fmt.Errorf("%w: more than %d volumes", ErrInvalid, commit.MaxVolumes)
	}
	for i := range b.volumes {
		if b.volumes[i].Name == v.Name {
			return fmt.Errorf("%w: volume %q is added twice", ErrInvalid, v.Name)
		}
	}
	return nil
}

func (b *Backup) newVolumeRun(ctx context.Context, v *BlockVolume, record commit.Volume) *volumeRun {
	old := b.parentVolume(&record)
	record.Unit = commit.SmallUnit
	switch {
	case old != nil:
		record.Unit = old.Unit
	case v.Size > largeVolume:
		record.Unit = commit.LargeUnit
	}
	run := &volumeRun{
		b: b, volume: v, number: len(b.volumes), unit: record.Unit, record: record,
		hasher: index.NewHasher(b.epoch.Set, b.domain()),
	}
	run.settleReading(old)
	run.source = newSource(ctx, v, record.Unit)
	tree := index.Tree{}
	if old != nil {
		run.oldSize = old.Size
		tree = index.Tree{Root: old.Root, Leaves: leafCount(old.Size, old.Unit)}
	}
	run.cursor = index.NewCursor(b.nodes, b.objects, tree)
	run.builder = index.NewBuilder(b.nodes, b.index, run.cursor, leafCount(v.Size, record.Unit))
	run.cursor.Lost = run.lost
	run.builder.Dropped = func(r index.Ref) { b.accounts.node(r, -1) }
	run.builder.Renew = func(r index.Ref) bool { return b.distrust.node(r.Location) }
	b.frames.known.grow(uint64(v.Size)/uint64(record.Unit) + 1)
	return run
}

// parentVolume is the same volume in the parent, nil if there is none.
func (b *Backup) parentVolume(v *commit.Volume) *commit.Volume {
	if b.parent == nil {
		return nil
	}
	old, err := b.parent.volume(v.Name)
	if err != nil || old.Kind != v.Kind {
		return nil
	}
	return old
}

func leafCount(size int64, unit int) uint64 {
	leaf := int64(unit) * index.LeafUnits
	return uint64((size + leaf - 1) / leaf)
}

// all takes whatever comes first, a chunk of the source or a leaf of the parent,
// until both have ended.
func (r *volumeRun) all(ctx context.Context) error {
	old, err := r.cursor.Seek(ctx, 0)
	if err != nil {
		return parentError(err)
	}
	for c := r.source.next(); ; {
		if c.err != nil && !errors.Is(c.err, io.EOF) {
			return c.err
		}
		leaf := min(c.leaf, old)
		if leaf == index.End {
			return r.finish(ctx)
		}
		switch {
		case leaf == c.leaf:
			err = r.leaf(ctx, c, old == leaf)
			r.source.release(c)
			c = r.source.next()
		case r.trusts():
			r.keep(leaf)
		default:
			err = r.drop(ctx, leaf)
		}
		if err != nil {
			return err
		}
		if old == leaf {
			if old, err = r.cursor.Seek(ctx, leaf+1); err != nil {
				return parentError(err)
			}
		}
		if err := r.drain(ctx, maxQueue); err != nil {
			return err
		}
		select {
		case <-r.b.spec.Stop:
			return r.stop(ctx)
		default:
		}
	}
}

// stop makes what was sent findable for the next attempt.
func (r *volumeRun) stop(ctx context.Context) error {
	r.b.frames.submit()
	if err := r.drain(ctx, 0); err != nil {
		return err
	}
	if err := r.b.data.Close(); err != nil {
		return err
	}
	if err := r.b.checkpoint(ctx); err != nil {
		return err
	}
	return ErrStopped
}

func parentError(err error) error {
	if isBroken(err) {
		return fmt.Errorf("%w: %w", ErrParent, err)
	}
	return fmt.Errorf("read parent: %w", err)
}

// drop books out a leaf of the parent that is all zero now, or behind the end.
func (r *volumeRun) drop(ctx context.Context, leaf uint64) error {
	old, err := r.cursor.Leaf(ctx, r.unit)
	if err != nil {
		return r.lost(leaf, leaf+1, err)
	}
	r.b.accounts.units(old, r.unit, -1)
	r.b.accounts.node(r.cursor.Ref(), -1)
	r.builder.Settle(r.queueStart(leaf))
	return nil
}

// queueStart is the first leaf that is not in the new tree yet.
func (r *volumeRun) queueStart(leaf uint64) uint64 {
	if len(r.queue) > 0 {
		return r.queue[0].leaf
	}
	return leaf
}

// finish seals what is gathered and closes the tree. A frame never spans two
// volumes, so a short unit at the end of one is at the end of its frame.
func (r *volumeRun) finish(ctx context.Context) error {
	r.b.frames.submit()
	if err := r.drain(ctx, 0); err != nil {
		return err
	}
	root, err := r.builder.Finish(ctx)
	if err != nil {
		return err
	}
	r.record.Root = root
	if r.trusts() {
		r.record.Unread = r.record.Used - r.used
	}
	r.b.progress.Skipped += r.volume.Size - r.seen
	r.b.tell(0)
	return nil
}

// tell reports progress.
func (b *Backup) tell(read int64) {
	b.progress.Read += read
	b.progress.Sent = b.up.Sent() + b.index.Sent() + b.keyBytes
	b.spec.Progress(b.progress)
}
