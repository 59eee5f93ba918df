package repository

import (
	"fmt"
	"iter"
	"math/bits"
	"time"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
)

// Changes is what the storage says differs between a volume and what an earlier backup
// holds of it.
type Changes struct {
	// Since is that backup. Ranges serve only if it is the parent that the run stands on,
	// and the volume there is not larger and has the same sectors.
	Since CommitRef
	// Ranges come in order and do not overlap. What they leave out is taken over from
	// the parent unread; what the volume has grown by is read in any case.
	Ranges iter.Seq2[Extent, error]
	// Audit reads all of the volume, whatever Extents leave out, takes over nothing
	// unread, and counts what is not as in the parent outside Ranges.
	Audit bool
}

// Way is how a volume was read.
type Way string

// The ways, from the most to the least that was read.
const (
	// WayAudited: all of it, and compared with the ranges that the storage told of.
	WayAudited Way = "Audited"
	// WayAll: all of it, but what the kernel knows to be holes.
	WayAll Way = "All"
	// WayAllocated: what the storage says is allocated.
	WayAllocated Way = "Allocated"
	// WayChanged: what the storage says has changed since the parent.
	WayChanged Way = "Changed"
)

// Reading is how a volume was read, and what came of it.
type Reading struct {
	Way Way
	// Why less could not be read; empty if there is nothing to say.
	Why string
	// UnreadBytes were taken over from the parent on the word of the storage.
	UnreadBytes int64
	// FullySequence is the sequence of the latest backup in the chain that read all of
	// the volume; 0 if none has.
	FullySequence uint64
	// FullyAt is when that backup was taken, or the chain's first if none has; the zero time if that is not known. It
	// is in the record, so it outlives that backup.
	FullyAt time.Time
	// UntoldBytes were found by an audit to differ from the parent where the storage
	// told of no change, in whole units; the first of them is at UntoldAt.
	UntoldBytes, UntoldAt int64
}

// serves says why changes cannot serve against what the parent has of the volume; ""
// if they can.
func (b *Backup) serves(v *BlockVolume, old *commit.Volume) string {
	switch {
	case b.parent == nil:
		return "nothing is taken over from an earlier backup"
	case b.parent.ref.Key != v.Changes.Since.Key || v.Changes.Since.Digest != "" && b.parent.ref.Digest != v.Changes.Since.Digest:
		return "the changes that the storage tells of are not those since the parent"
	case !b.distrust.empty():
		return "what is damaged in the store is read and stored again"
	case old == nil:
		return "the parent does not hold this volume"
	case v.Size < old.Size:
		return fmt.Sprintf("the volume has %d bytes, and had %d in the parent", v.Size, old.Size)
	case v.LogicalBlockSize != old.LogicalBlock:
		return fmt.Sprintf("the volume has sectors of %d bytes, and had %d in the parent", v.LogicalBlockSize, old.LogicalBlock)
	default:
		return ""
	}
}

// allUnits is the mask of a leaf whose units are all meant.
const allUnits = ^uint64(0)

// ranges walks the ranges of a volume forwards, as units of its leaves.
type ranges struct {
	next      func() (Extent, error, bool)
	stop      func()
	what      string // for errors
	size      int64
	unit      int64
	at        Extent // the range that is looked at; empty behind the last
	behind    int64  // where the range before it ended
	exhausted bool
}

func newRanges(list iter.Seq2[Extent, error], what string, size int64, unit int) *ranges {
	r := &ranges{what: what, size: size, unit: int64(unit)}
	r.next, r.stop = iter.Pull2(list)
	return r
}

// advance makes the first range that ends behind from the current one.
func (r *ranges) advance(from int64) error {
	for !r.exhausted && (r.at.Length == 0 || r.at.Offset+r.at.Length <= from) {
		e, err, ok := r.next()
		if err != nil {
			return fmt.Errorf("%w %s: %w", ErrSource, r.what, err)
		}
		if !ok {
			r.at, r.exhausted = Extent{}, true
			return nil
		}
		if e.Offset < r.behind || e.Length < 0 || e.Offset > r.size {
			return fmt.Errorf("%w %s: %d bytes at %d are out of order or behind the end", ErrSource, r.what, e.Length, e.Offset)
		}
		e.Length = min(e.Length, r.size-e.Offset)
		r.at, r.behind = e, e.Offset+e.Length
	}
	return nil
}

// leaf returns the first leaf from that one on which a range touches, index.End behind
// the last, and a bit for each of its units that is touched.
func (r *ranges) leaf(from uint64) (leaf, mask uint64, err error) {
	leafBytes := r.unit * index.LeafUnits
	start := int64(from) * leafBytes
	if err := r.advance(start); err != nil || r.exhausted {
		return index.End, 0, err
	}
	leaf = max(from, uint64(r.at.Offset/leafBytes))
	start = int64(leaf) * leafBytes
	for !r.exhausted && r.at.Offset < start+leafBytes {
		first := max(r.at.Offset-start, 0) / r.unit
		last := (min(r.at.Offset+r.at.Length, start+leafBytes) - 1 - start) / r.unit
		mask |= (allUnits >> (index.LeafUnits - 1 - (last - first))) << first
		if r.at.Offset+r.at.Length >= start+leafBytes {
			break
		}
		if err := r.advance(r.at.Offset + r.at.Length); err != nil {
			return index.End, 0, err
		}
	}
	return leaf, mask, nil
}

// within appends the parts of [from, to) that ranges cover. It is called with growing ranges.
func (r *ranges) within(parts []Extent, from, to int64) ([]Extent, error) {
	for {
		if err := r.advance(from); err != nil {
			return nil, err
		}
		if r.exhausted || r.at.Offset >= to {
			return parts, nil
		}
		start, end := max(from, r.at.Offset), min(to, r.at.Offset+r.at.Length)
		parts = append(parts, Extent{Offset: start, Length: end - start})
		if from = end; from == to {
			return parts, nil
		}
	}
}

// grown adds what a volume has grown by, from the unit that was its last.
func grown(list iter.Seq2[Extent, error], was, is int64, unit int) iter.Seq2[Extent, error] {
	if is == was {
		return list
	}
	tail := was / int64(unit) * int64(unit)
	return func(yield func(Extent, error) bool) {
		for e, err := range list {
			if err != nil {
				yield(e, err)
				return
			}
			if e.Offset >= tail {
				break
			}
			e.Length = min(e.Length, tail-e.Offset)
			if !yield(e, nil) {
				return
			}
		}
		yield(Extent{Offset: tail, Length: is - tail}, nil)
	}
}

// runs calls do for each run of set bits, with the first unit and the one behind the last.
func runs(mask uint64, do func(first, behind int) error) error {
	for at := 0; mask>>at != 0; {
		at += bits.TrailingZeros64(mask >> at)
		n := bits.TrailingZeros64(^(mask >> at))
		if err := do(at, at+n); err != nil {
			return err
		}
		if at += n; at >= index.LeafUnits {
			return nil
		}
	}
	return nil
}
