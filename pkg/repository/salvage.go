package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
)

// BadRange is a part of a volume that cannot be brought back, and why.
type BadRange struct {
	Offset, Length int64
	Why            string
	// Closed says that no identity given opens it: that is no damage.
	Closed bool
}

// SalvageResult is what could be brought back of a volume, and what could not. Nothing
// was written to the bad ranges, which are in order and do not overlap.
type SalvageResult struct {
	RestoreResult
	Bad []BadRange
}

// BadBytes is the length of all bad ranges.
func (s SalvageResult) BadBytes() int64 {
	n := int64(0)
	for _, b := range s.Bad {
		n += b.Length
	}
	return n
}

// Salvage is RestoreBlock for a backup that is damaged: it writes every unit that is as
// it was backed up, and tells of all others. Errors of the store and of the target still end
// it: they say nothing about the backup.
func (r *Repository) Salvage(ctx context.Context, c *Commit, spec RestoreSpec) (SalvageResult, error) {
	out, err := r.salvage(ctx, c, spec)
	if err != nil {
		return out, fmt.Errorf("salvage volume %q: %w", spec.Volume, err)
	}
	return out, nil
}

func (r *Repository) salvage(ctx context.Context, c *Commit, spec RestoreSpec) (SalvageResult, error) {
	if spec.InPlace {
		return SalvageResult{}, fmt.Errorf("%w: what is salvaged is never mixed with what is there", ErrInvalid)
	}
	o, err := r.readCommit(ctx, c.CommitRef)
	if err != nil {
		return SalvageResult{}, err
	}
	v, err := o.volume(spec.Volume)
	if err != nil {
		return SalvageResult{}, err
	}
	if v.Kind != commit.Block {
		return SalvageResult{}, fmt.Errorf("%w: it is a set of files, of which part is of no use", ErrInvalid)
	}
	if err := checkSectors(v, spec.Target); err != nil {
		return SalvageResult{}, err
	}
	run, err := r.salvageRun(ctx, o, v, spec)
	if err == nil && len(run.bad.list) > 0 && r.lookBehind(ctx, o.header.VM) {
		spec.Fresh = false // something was written
		run, err = r.salvageRun(ctx, o, v, spec)
	}
	if err != nil {
		return SalvageResult{}, err
	}
	if err := spec.Target.Sync(); err != nil {
		return SalvageResult{}, fmt.Errorf("sync the target: %w", err)
	}
	return SalvageResult{RestoreResult: run.result(), Bad: run.bad.list}, nil
}

// salvageRun brings back what it can. A unit is compared with its id before it is written:
// there is no reading back of what has holes.
func (r *Repository) salvageRun(ctx context.Context, o *opened, v *commit.Volume, spec RestoreSpec) (*restore, error) {
	run, err := r.newRestoreOf(ctx, o, v, spec, &badRanges{})
	if err != nil {
		return nil, err
	}
	return run, run.all(ctx, 0, v.Size)
}

// badRanges gathers what cannot be brought back.
type badRanges struct {
	list []BadRange
	// settled ranges at the head of list are joined; those of a window come in any order.
	settled int
}

// settle sorts and joins what a window has added.
func (b *badRanges) settle() {
	added := b.list[b.settled:]
	slices.SortFunc(added, func(x, y BadRange) int { return cmp.Compare(x.Offset, y.Offset) })
	kept := b.list[:b.settled]
	for _, r := range added {
		if n := len(kept) - 1; n >= 0 && kept[n].Offset+kept[n].Length == r.Offset && kept[n].Why == r.Why {
			kept[n].Length += r.Length
		} else {
			kept = append(kept, r)
		}
	}
	b.list, b.settled = kept, len(kept)
}

// lose notes that [from, to) cannot be brought back, or returns err if that is neither for
// damage nor for want of an identity, or if this is no salvage.
func (r *restore) lose(from, to int64, err error) error {
	closed := errors.Is(err, ErrWrongIdentity)
	if r.bad == nil || !isBroken(err) && !closed {
		return err
	}
	from, to = max(from, r.from), min(to, r.to)
	if from >= to {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bad.list = append(r.bad.list, BadRange{Offset: from, Length: to - from, Why: err.Error(), Closed: closed})
	return nil
}

// loseUnits does the same for units.
func (r *restore) loseUnits(units []wanted, err error) error {
	for _, u := range units {
		from := int64(u.unit) * int64(r.volume.Unit)
		if err := r.lose(from, from+int64(r.length(u.unit)), err); err != nil {
			return err
		}
	}
	return nil
}

// openKeys makes the keys of a leaf's frames available. In a salvage the units of frames
// whose key is lost are taken out of the leaf.
func (r *restore) openKeys(ctx context.Context, l *index.Leaf, start int64) error {
	for i := range l.Frames {
		err := r.keys.open(ctx, &l.Frames[i])
		if err == nil {
			continue
		}
		if r.bad == nil {
			return err
		}
		unit := int64(r.volume.Unit)
		for n := range l.Units {
			if l.Units[n].Data && int(l.Units[n].Frame) == i {
				from := start + int64(n)*unit
				if err := r.lose(from, min(from+unit, r.volume.Size), err); err != nil {
					return err
				}
			}
		}
		r.locked = append(r.locked, i)
	}
	return nil
}
