package repository

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/index"
)

// distrust is what a run does not build on although its parent reaches it. What is in it
// counts as not known: units are stored again from the source, nodes are written anew.
type distrust struct {
	lost
	// places are ordinals whose entries in the parent's pack table cannot be read, and
	// with them what the new table would have to say.
	places []Extent
}

func (d *distrust) empty() bool { return d.lost.empty() && len(d.places) == 0 }

// node reports whether a node is in an index pack that is not trusted.
func (d *distrust) node(l index.Location) bool {
	_, pack := d.packs[packName{index.IndexPack, l.Origin, l.Number}]
	return pack || within(d.places, l.Ordinal)
}

// frame reports whether a frame is not trusted.
func (d *distrust) frame(f *index.Frame) bool {
	return d.lost.frame(f) || within(d.places, f.Pack.Ordinal)
}

func within(list []Extent, ordinal uint64) bool {
	return slices.ContainsFunc(list, func(e Extent) bool {
		return int64(ordinal) >= e.Offset && int64(ordinal) < e.Offset+e.Length
	})
}

// openDistrust finds which of the objects that are told as damaged the parent reaches.
// Others are no reason to do anything, so it is only the first backup after the damage
// that takes longer.
func (b *Backup) openDistrust(ctx context.Context) error {
	b.distrust.lost = newLost()
	told := newLost()
	for _, key := range b.spec.Damaged {
		if machineOf(key) == b.vm.String() {
			told.add(DamagedObject{Key: key})
		}
	}
	if b.parent == nil || told.empty() {
		return nil
	}
	err := b.parentPacks(ctx, func(p index.Numbered[index.Pack]) {
		name := packNameOf(&p.Entry)
		if d, ok := told.packs[name]; ok {
			b.distrust.packs[name] = d
		}
	}, func(e Extent) { b.distrust.places = append(b.distrust.places, e) })
	if err != nil {
		return fmt.Errorf("read parent: %w", err)
	}
	err = b.parentKeys(ctx, func(k index.Numbered[index.DataKey]) {
		if d, ok := told.keys[k.Entry.Origin]; ok {
			b.distrust.keys[k.Entry.Origin] = d
		}
	}, func(e Extent) { b.distrust.ordinals = append(b.distrust.ordinals, e) })
	if err != nil {
		return fmt.Errorf("read parent: %w", err)
	}
	b.recounts = !b.distrust.empty()
	return nil
}

// counts reports whether a frame that an index names may be built on. Of this run's own,
// only those whose pack and key an earlier attempt has recorded are.
func (b *Backup) counts(f *index.Frame) bool {
	if f.Pack.Origin.Run == b.origin.Run && f.Pack.Origin.Attempt != b.origin.Attempt {
		name := packName{index.DataPack, f.Pack.Origin, f.Pack.Number}
		if have, ok := b.resume.ordinals[f.Pack.Ordinal]; !ok || have != name {
			return false
		}
	}
	if f.Key.Run == b.origin.Run && f.Key.Attempt != b.origin.Attempt {
		if _, ok := b.resume.keys[f.Key.Attempt]; !ok {
			return false
		}
	}
	return !b.distrust.frame(f)
}

// lostOfParent notes a part of the parent's index that cannot be read. The source is read
// there as if it were new; what the part had reached cannot be booked out any more, so
// the books are made anew at the end.
func (b *Backup) lostOfParent(err error) error {
	if !isBroken(err) {
		return fmt.Errorf("read parent: %w", err)
	}
	b.recounts = true
	return nil
}
