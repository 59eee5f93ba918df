package repository

import (
	"context"
	"iter"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// lost is what a store has lost of one virtual machine: packs, data keys, and parts of
// one backup's key table, as ordinals.
type lost struct {
	packs    map[packName]DamagedObject
	keys     map[keys.Origin]DamagedObject
	ordinals []Extent
}

func newLost() lost {
	return lost{packs: map[packName]DamagedObject{}, keys: map[keys.Origin]DamagedObject{}}
}

// add takes a damaged object in; it is a pack or a data key.
func (l *lost) add(d DamagedObject) {
	o, err := layout.ParseRunObject(d.Key)
	switch {
	case err != nil:
	case o.Kind == layout.KindDataKey:
		l.keys[o.Origin] = d
	case o.Kind == layout.KindIndexPack:
		l.packs[packName{index.IndexPack, o.Origin, o.Number}] = d
	default:
		l.packs[packName{index.DataPack, o.Origin, o.Number}] = d
	}
}

func (l *lost) empty() bool { return len(l.packs)+len(l.keys)+len(l.ordinals) == 0 }

func (l *lost) objects() iter.Seq[DamagedObject] {
	return func(yield func(DamagedObject) bool) {
		for _, d := range l.packs {
			if !yield(d) {
				return
			}
		}
		for _, d := range l.keys {
			if !yield(d) {
				return
			}
		}
	}
}

// frame reports whether a frame cannot be read.
func (l *lost) frame(f *index.Frame) bool {
	_, pack := l.packs[packName{index.DataPack, f.Pack.Origin, f.Pack.Number}]
	_, key := l.keys[f.Key]
	return pack || key || slices.ContainsFunc(l.ordinals, func(e Extent) bool {
		return int64(f.KeyOrdinal) >= e.Offset && int64(f.KeyOrdinal) < e.Offset+e.Length
	})
}

// hurt tells which ranges of the volumes of a backup cannot be read without what is lost.
// Index nodes are looked at one by one, since they prove themselves; of data packs all
// frames are taken for lost.
func (r *Repository) hurt(ctx context.Context, o *opened, l lost) ([]VolumeDamage, error) {
	var out []VolumeDamage
	for i := range o.record.Volumes {
		v := &o.record.Volumes[i]
		h := &hurtVolume{volume: v, lost: l}
		if err := h.walk(ctx, index.NewCursor(o.nodes(), objects{r.store, o.header.VM}, treeOf(v))); err != nil {
			return nil, err
		}
		if h.ranges.bytes == 0 {
			continue
		}
		out = append(out, VolumeDamage{
			Name: v.Name, Role: v.Role, Kind: kindOfVolume(v), Bytes: h.ranges.bytes, Ranges: h.ranges.list,
		})
	}
	return out, nil
}

func kindOfVolume(v *commit.Volume) VolumeKind {
	if v.Kind == commit.Tree {
		return KindTree
	}
	return KindBlock
}

func treeOf(v *commit.Volume) index.Tree {
	return index.Tree{Root: v.Root, Leaves: leafCount(v.Size, v.Unit)}
}

// hurtVolume gathers what one volume has lost.
type hurtVolume struct {
	volume *commit.Volume
	lost   lost
	ranges lostRanges
}

func (h *hurtVolume) walk(ctx context.Context, cursor *index.Cursor) error {
	leafBytes := int64(h.volume.Unit) * index.LeafUnits
	cursor.Lost = func(from, to uint64, err error) error {
		if !isBroken(err) {
			return err
		}
		h.ranges.add(int64(from)*leafBytes, min(int64(to)*leafBytes, h.volume.Size))
		return nil
	}
	for from := uint64(0); ; {
		leaf, err := cursor.Seek(ctx, from)
		if err != nil || leaf == index.End {
			return err
		}
		start := int64(leaf) * leafBytes
		l, err := cursor.Leaf(ctx, h.volume.Unit)
		switch {
		case isBroken(err):
			h.ranges.add(start, min(start+leafBytes, h.volume.Size))
		case err != nil:
			return err
		default:
			h.leaf(l, start)
		}
		from = leaf + 1
	}
}

func (h *hurtVolume) leaf(l *index.Leaf, start int64) {
	unit := int64(h.volume.Unit)
	for i := range l.Units {
		u := &l.Units[i]
		if u.Data && h.lost.frame(&l.Frames[u.Frame]) {
			h.ranges.add(start+int64(i)*unit, min(start+int64(i+1)*unit, h.volume.Size))
		}
	}
}

// lostRanges are parts of a volume, those that follow each other joined.
type lostRanges struct {
	list  []Extent
	bytes int64
}

func (r *lostRanges) add(from, to int64) {
	if from >= to {
		return
	}
	r.bytes += to - from
	if n := len(r.list); n > 0 && r.list[n-1].Offset+r.list[n-1].Length == from {
		r.list[n-1].Length += to - from
		return
	}
	if len(r.list) < MaxRanges {
		r.list = append(r.list, Extent{Offset: from, Length: to - from})
	}
}
