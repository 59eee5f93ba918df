package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// renewal names the packs whose contents are sent again, by ordinal. Scattered change
// leaves packs behind of which a chain reaches little: nothing can be taken out of them
// without the data keys, which nobody here has, so the next backup that reads them sends what
// it needs of them from the disk, and when the backups before it go, the packs go whole.
//
// A pack that an earlier backup still needs most of is not renewed: that backup keeps it, and
// the copy would come to it. What a chain reaches of a pack only shrinks, so of all backups that
// stay the oldest that lists it reaches most.
type renewal map[uint64]bool

const (
	// maxLooks bounds the earlier backups whose tables one backup reads for this. What could not be
	// decided by then is left for later: the oldest are looked at first, and they go first.
	maxLooks = 8
	// maxPassed bounds those that it finds to be removed. They are in no list of its own, so that the
	// next backup does not look for them again.
	maxPassed = 128
	// maxThin bounds the packs that one backup considers: 3 MiB of memory, and up to 256 GiB sent again.
	maxThin = 1 << 14
)

// thin reports whether less than half of a data pack is reached.
func thin(p *index.Pack) bool { return p.Kind == index.DataPack && p.Live < p.Total-p.Live }

// openRenewal reads the parent's pack table, once, before the first volume. Of what cannot
// be read of it nothing is renewed; others see to that.
func (b *Backup) openRenewal(ctx context.Context) error {
	if b.renew != nil || b.parent == nil {
		return nil
	}
	b.renew, b.removed = renewal{}, map[keys.ID]bool{}
	found := map[uint64]index.Pack{}
	err := b.parentPacks(ctx, func(p index.Numbered[index.Pack]) {
		if thin(&p.Entry) && len(found) < maxThin {
			found[p.Ordinal] = p.Entry
		}
	}, func(Extent) {})
	if err != nil {
		return fmt.Errorf("read parent: %w", err)
	}
	if len(found) == 0 {
		return nil
	}
	made, err := b.madeAt(ctx)
	if err != nil {
		return fmt.Errorf("read parent: %w", err)
	}
	maps.DeleteFunc(found, func(_ uint64, p index.Pack) bool { return made[p.Origin.Run] == 0 })
	looks, passed := 0, 0
	for _, l := range b.parent.record.Live { // the oldest first
		of := slices.Sorted(maps.Keys(found))
		of = slices.DeleteFunc(of, func(o uint64) bool { return made[found[o].Origin.Run] > l.Sequence || b.renew[o] })
		if len(of) == 0 {
			continue
		}
		if looks == maxLooks || passed == maxPassed {
			return nil
		}
		stays, err := b.keptBy(ctx, l, of, found)
		if err != nil {
			return fmt.Errorf("look what earlier backups need: %w", err)
		}
		if stays {
			looks++
		} else {
			passed++
		}
	}
	for o := range found { // no other backup has it
		b.renew[o] = true
	}
	return nil
}

// madeAt is the sequence of the backup that each run became, as the parent's key table says.
func (b *Backup) madeAt(ctx context.Context) (map[keys.ID]uint64, error) {
	made := map[keys.ID]uint64{}
	err := b.parentKeys(ctx, func(k index.Numbered[index.DataKey]) { made[k.Entry.Origin.Run] = k.Entry.Sequence }, func(Extent) {})
	return made, err
}

// keptBy takes the packs out of found, of those at these ordinals, of which an earlier backup reaches
// half or more, and notes the others that it lists: they are to be renewed. One that does not stay, since it is
// removed or about to be, or that cannot be read, keeps nothing.
func (b *Backup) keptBy(ctx context.Context, l commit.Link, ordinals []uint64, found map[uint64]index.Pack) (stays bool, err error) {
	o, err := b.repo.readSigned(ctx, refOf(b.vm, l))
	switch {
	case errors.Is(err, ErrAborted):
		b.removed[l.Run] = true
		return false, nil
	case err != nil && isOfOne(err):
		return false, nil
	case err != nil:
		return false, err
	}
	_, going, err := b.repo.tombstone(ctx, layout.CommitName{VM: b.vm, Sequence: l.Sequence, Run: l.Run})
	if err != nil || going {
		return false, err
	}
	own := func(ordinal uint64) bool { return found[ordinal].Origin.Run == l.Run }
	if others := slices.DeleteFunc(slices.Clone(ordinals), own); len(others) > 0 {
		err = b.keptByTable(ctx, o, others, found)
	}
	maps.DeleteFunc(found, func(ordinal uint64, _ index.Pack) bool { return own(ordinal) }) // the backup that made it has all of it
	return true, err
}

// keptByTable goes by what the pack table of a backup says. One that cannot be read says nothing.
func (b *Backup) keptByTable(ctx context.Context, o *opened, ordinals []uint64, found map[uint64]index.Pack) error {
	table, err := index.OpenPacks(ctx, o.nodes(), b.objects, o.record.Packs)
	for _, ordinal := range ordinals {
		if err != nil {
			break
		}
		var have index.Pack
		var ok bool
		have, ok, err = table.Get(ctx, ordinal)
		switch mine := found[ordinal]; {
		case err != nil || !ok || packNameOf(&have) != packNameOf(&mine):
		case thin(&have):
			b.renew[ordinal] = true
		default:
			delete(found, ordinal)
		}
	}
	if isBroken(err) {
		return nil
	}
	return err
}

// kept reports whether a unit of the base can be taken over.
func (r renewal) kept(base *index.Leaf, u *index.Unit) bool {
	return len(r) == 0 || !r[base.Frames[u.Frame].Pack.Ordinal]
}
