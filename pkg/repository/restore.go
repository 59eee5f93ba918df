package repository

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
)

// RestoreBlock writes a block volume of c, reads it back and checks every unit
// against its content id. The target is useful only if it returns without error; a failed
// restore can be run again on the same target, which is then not Fresh. Errors name
// the volume and the object: ErrDamaged, ErrMissing, ErrNotAuthentic,
// ErrWrongIdentity, ErrVerify.
func (r *Repository) RestoreBlock(ctx context.Context, c *Commit, spec RestoreSpec) (RestoreResult, error) {
	var out RestoreResult
	err := r.again(ctx, c.Key, func() (err error) {
		out, err = r.restoreBlock(ctx, c, spec)
		spec.Fresh = false // for what is written after something was
		return err
	})
	if err != nil {
		return out, fmt.Errorf("restore volume %q: %w", spec.Volume, err)
	}
	return out, nil
}

func (r *Repository) restoreBlock(ctx context.Context, c *Commit, spec RestoreSpec) (RestoreResult, error) {
	o, err := r.readCommit(ctx, c.CommitRef)
	if err != nil {
		return RestoreResult{}, err
	}
	v, err := o.volume(spec.Volume)
	if err != nil {
		return RestoreResult{}, err
	}
	if v.Kind != commit.Block {
		return RestoreResult{}, fmt.Errorf("%w: it is a set of files, not a disk", ErrInvalid)
	}
	if spec.Fresh && spec.InPlace {
		return RestoreResult{}, fmt.Errorf("%w: a fresh target holds nothing to be kept in place", ErrInvalid)
	}
	if err := checkSectors(v, spec.Target); err != nil {
		return RestoreResult{}, err
	}
	run, err := r.newRestore(ctx, o, v, spec)
	if err != nil {
		return RestoreResult{}, err
	}
	run.readBack = true
	err = run.all(ctx, 0, v.Size)
	return run.result(), err
}

// checkSectors refuses a device whose sectors have another size than those of the
// device that was backed up: the guest's partition table would point elsewhere.
func checkSectors(v *commit.Volume, t WriterAt) error {
	device, ok := t.(interface{ LogicalBlockSize() int })
	if !ok || v.LogicalBlock == 0 || device.LogicalBlockSize() == 0 || device.LogicalBlockSize() == v.LogicalBlock {
		return nil
	}
	return fmt.Errorf("%w: the target has sectors of %d bytes, the volume had %d",
		ErrInvalid, device.LogicalBlockSize(), v.LogicalBlock)
}

// restore brings back a range of one volume, a window of units after the other. In
// a window, frames are read in the order of packs; its size bounds the memory.
type restore struct {
	repo     *Repository
	opened   *opened
	volume   *commit.Volume
	spec     RestoreSpec
	keys     *dataKeys
	nodes    *index.Nodes
	objects  objects
	readBack bool
	from, to int64 // the range to be restored
	// bad is what a salvage cannot bring back; nil if that is an error.
	bad *badRanges
	// gaps are parts before the next leaf whose index is lost; locked are the frames of the
	// current leaf whose keys are.
	gaps   []Extent
	locked []int

	window  window
	workers []*restoreWorker

	mu       sync.Mutex
	progress RestoreProgress
	requests int64
	data     int64
}

func (r *Repository) newRestore(ctx context.Context, o *opened, v *commit.Volume, spec RestoreSpec) (*restore, error) {
	return r.newRestoreOf(ctx, o, v, spec, nil)
}

// newRestoreOf is a restore, or with bad a salvage.
func (r *Repository) newRestoreOf(
	ctx context.Context, o *opened, v *commit.Volume, spec RestoreSpec, bad *badRanges,
) (*restore, error) {
	k, err := r.openDataKeys(ctx, o, bad != nil)
	if err != nil {
		return nil, err
	}
	if spec.Progress == nil {
		spec.Progress = func(RestoreProgress) {}
	}
	return &restore{
		repo: r, opened: o, volume: v, spec: spec, keys: k, bad: bad,
		nodes: o.nodes(), objects: objects{r.store, o.header.VM},
		progress: RestoreProgress{Volume: v.Name, Total: v.Size},
	}, nil
}

func (r *restore) result() RestoreResult {
	r.mu.Lock()
	defer r.mu.Unlock()
	return RestoreResult{
		Volume: r.volume.Name, Size: r.volume.Size, DataBytes: r.data, KeptBytes: r.progress.Kept,
		FetchedByte: r.progress.Fetched, Requests: r.requests,
	}
}

// tell changes the progress and reports it, from whichever goroutine.
func (r *restore) tell(change func(*RestoreProgress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.progress)
	r.spec.Progress(r.progress)
}

// all restores the units that begin in [from, to).
func (r *restore) all(ctx context.Context, from, to int64) error {
	tree := index.Tree{Root: r.volume.Root, Leaves: leafCount(r.volume.Size, r.volume.Unit)}
	cursor := index.NewCursor(r.nodes, r.objects, tree)
	leafBytes := int64(r.volume.Unit) * index.LeafUnits
	r.from, r.to = from, min(to, r.volume.Size)
	at, end := r.from, r.to
	cursor.Lost = func(first, behind uint64, err error) error {
		e := Extent{Offset: int64(first) * leafBytes, Length: int64(behind-first) * leafBytes}
		r.gaps = append(r.gaps, e)
		return r.lose(e.Offset, min(e.Offset+e.Length, r.volume.Size), err)
	}
	for leaf := uint64(from / leafBytes); ; leaf++ {
		found, err := cursor.Seek(ctx, leaf)
		if err != nil {
			return err
		}
		start := end
		if found != index.End {
			start = min(end, max(from, int64(found)*leafBytes))
		}
		if err := r.upTo(ctx, at, start); err != nil {
			return err
		}
		if at = start; at >= end {
			break
		}
		l, err := cursor.Leaf(ctx, r.volume.Unit)
		if err == nil {
			err = r.leaf(ctx, l, int64(found)*leafBytes)
		} else {
			err = r.lose(int64(found)*leafBytes, min(int64(found+1)*leafBytes, r.volume.Size), err)
		}
		if err != nil {
			return err
		}
		leaf, at = found, min(end, int64(found+1)*leafBytes)
	}
	return r.flush(ctx)
}

// upTo plans what is between two leaves: zeros, but for what a salvage cannot know.
func (r *restore) upTo(ctx context.Context, from, to int64) error {
	for _, e := range r.gaps {
		if err := r.hole(ctx, from, min(e.Offset, to)); err != nil {
			return err
		}
		from = max(from, min(to, e.Offset+e.Length))
	}
	r.gaps = r.gaps[:0]
	return r.hole(ctx, from, to)
}

// hole plans zeros that no leaf tells of: of a large disk, they can be most of it.
func (r *restore) hole(ctx context.Context, from, to int64) error {
	for from < to {
		end := min(to, from+windowZeroBytes)
		r.zero(from, end)
		if r.window.full(r.spec.InPlace) {
			if err := r.flush(ctx); err != nil {
				return err
			}
		}
		from = end
	}
	return nil
}

// zero plans a range of zeros; those that follow each other become one.
func (r *restore) zero(from, to int64) {
	switch last := len(r.window.zeros) - 1; {
	case from >= to:
		return
	case last >= 0 && r.window.zeros[last].Offset+r.window.zeros[last].Length == from:
		r.window.zeros[last].Length += to - from
	default:
		r.window.zeros = append(r.window.zeros, Extent{Offset: from, Length: to - from})
	}
	r.window.zeroBytes += to - from
}

// clear makes the window's zeros read as such, unless the target does so anyway.
func (r *restore) clear() error {
	for _, z := range r.window.zeros {
		if !r.spec.Fresh {
			if err := r.spec.Target.Zero(z.Offset, z.Length); err != nil {
				return fmt.Errorf("zero %d bytes at %d of the target: %w", z.Length, z.Offset, err)
			}
		}
		r.tell(func(p *RestoreProgress) { p.Done += z.Length; p.Zero += z.Length })
	}
	if r.spec.Fresh {
		r.window.zeros = r.window.zeros[:0] // nothing to read back
	}
	return nil
}

// leaf plans the units of a leaf that begins at start, those within the range.
func (r *restore) leaf(ctx context.Context, l *index.Leaf, start int64) error {
	if want := r.leafUnits(start); len(l.Units) != want {
		return fmt.Errorf("index leaf at %d: %w: %d units, not %d", start, ErrDamaged, len(l.Units), want)
	}
	r.locked = r.locked[:0]
	if err := r.openKeys(ctx, l, start); err != nil {
		return err
	}
	unit := int64(r.volume.Unit)
	for i := range l.Units {
		at := start + int64(i)*unit
		if at < r.from || at >= r.to {
			continue
		}
		u := &l.Units[i]
		if !u.Data {
			r.zero(at, min(at+unit, r.volume.Size))
			continue
		}
		if slices.Contains(r.locked, int(u.Frame)) {
			continue
		}
		r.window.add(&l.Frames[u.Frame], wanted{unit: uint64(at / unit), id: u.ID, slot: u.Slot})
	}
	if r.window.full(r.spec.InPlace) {
		return r.flush(ctx)
	}
	return nil
}

func (r *restore) leafUnits(start int64) int {
	unit := int64(r.volume.Unit)
	return int(min(index.LeafUnits, (r.volume.Size-start+unit-1)/unit))
}

// length of a unit in bytes; the last one of a volume may be short.
func (r *restore) length(unit uint64) int {
	size := int64(r.volume.Unit)
	return int(min(size, r.volume.Size-int64(unit)*size))
}

// flush brings the planned units in, and reads them back.
func (r *restore) flush(ctx context.Context) error {
	if r.spec.InPlace {
		if err := r.keep(ctx); err != nil {
			return err
		}
	}
	if err := r.clear(); err != nil {
		return err
	}
	if err := r.fetch(ctx); err != nil {
		return err
	}
	if r.readBack {
		if err := r.verify(ctx); err != nil {
			return err
		}
	}
	if r.bad != nil {
		r.bad.settle()
	}
	r.window.reset()
	return nil
}
