package repository

import (
	"strings"
	"time"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
)

// maxWhy bounds what a record keeps of Reading.Why.
const maxWhy = 1 << 10

// settleReading decides how the volume is read, before anything of it is. old is what
// the parent has of it, nil if nothing.
func (r *volumeRun) settleReading(old *commit.Volume) {
	v := r.volume
	r.reading = commit.Reading{Volume: r.number, Way: commit.WayAll, Why: v.Why}
	if v.Changes != nil {
		r.settleChanges(old)
	}
	if v.Changes == nil && v.ExtentsTold && v.Extents != nil {
		r.reading.Way = commit.WayAllocated
	}
	switch r.reading.Way {
	case commit.WayAll, commit.WayAudited:
		r.record.LastRead = r.b.session.Sequence()
	default:
		r.reading.FullyAt = r.b.spec.Created.Unix() // of a chain's first, which has nothing to be compared with
		if old != nil {
			r.record.LastRead, r.reading.FullyAt = old.LastRead, r.b.fullyAt(old)
		}
	}
	if len(r.reading.Why) > maxWhy {
		r.reading.Why = strings.ToValidUTF8(r.reading.Why[:maxWhy], "")
	}
}

// fullyAt is when a volume of the parent was last read in full; 0 if that is not known.
func (b *Backup) fullyAt(old *commit.Volume) int64 {
	if old.LastRead == b.parent.header.Sequence {
		return b.parent.record.Created
	}
	for i, r := range b.parent.record.Readings() {
		if &b.parent.record.Volumes[i] == old {
			return r.FullyAt
		}
	}
	return 0
}

// settleChanges drops changes that cannot serve, and adds what the volume has grown by.
func (r *volumeRun) settleChanges(old *commit.Volume) {
	v, c := r.volume, *r.volume.Changes
	if c.Audit {
		v.Extents = nil
	}
	if why := r.b.serves(v, old); why != "" {
		v.Changes = nil
		r.reading.Why = why
		return
	}
	c.Ranges = grown(c.Ranges, old.Size, v.Size, r.unit)
	v.Changes = &c
	r.reading.Way = commit.WayAudited
	if !c.Audit {
		r.reading.Way = commit.WayChanged
		r.record.Used = old.Used
	}
}

// trusts says that what the storage does not tell of is taken over unread.
func (r *volumeRun) trusts() bool { return r.reading.Way == commit.WayChanged }

// audits says that all is read and compared with what the storage tells of.
func (r *volumeRun) audits() bool { return r.reading.Way == commit.WayAudited }

// keep takes a leaf of the parent over, neither the volume nor the leaf being read.
func (r *volumeRun) keep(leaf uint64) {
	w := r.newWork(leaf)
	w.taken, w.ref, w.oldRef = true, r.cursor.Ref(), r.cursor.Ref()
	r.queue = append(r.queue, w)
}

// lost notes leaves [from, to) of the parent's index that cannot be read. What is there is read from
// the source, unless that was to be taken over unread: then the run cannot go on. An audit has
// nothing to compare it with, and what the store has lost is not the driver's fault.
func (r *volumeRun) lost(from, to uint64, err error) error {
	if r.trusts() {
		return parentError(err)
	}
	if last := len(r.unknown) - 1; last >= 0 && r.unknown[last].Offset+r.unknown[last].Length == int64(from) {
		r.unknown[last].Length += int64(to - from)
	} else if r.audits() {
		r.unknown = append(r.unknown, Extent{Offset: int64(from), Length: int64(to - from)})
	}
	return r.b.lostOfParent(err)
}

// serves says that a leaf of an earlier attempt can stand for the parent's. What is not read
// is taken over from it as it is, so all of it must count.
func (r *volumeRun) serves(earlier *index.Leaf, bytes int) bool {
	if len(earlier.Units)*r.unit < bytes {
		return false
	}
	for i := range earlier.Frames {
		if r.trusts() && !r.b.counts(&earlier.Frames[i]) {
			return false
		}
	}
	return true
}

// usedOf counts the bytes of a leaf of the parent that are not zero.
func (r *volumeRun) usedOf(leaf uint64, old *index.Leaf) (used int64) {
	start := int64(leaf) * index.LeafUnits * int64(r.unit)
	for i := range old.Units {
		if old.Units[i].Data {
			used += min(int64(r.unit), r.oldSize-start-int64(i*r.unit))
		}
	}
	return used
}

// audit compares a unit that the storage told no change of with the parent's. A
// fingerprint is not enough: who holds its key can make two units that have the same.
func (r *volumeRun) audit(unit int64, data []byte, old *index.Leaf) {
	i := int(unit % index.LeafUnits)
	if within(r.unknown, uint64(unit/index.LeafUnits)) {
		return
	}
	var was index.Unit
	if old != nil && i < len(old.Units) {
		was = old.Units[i]
	}
	if zero := index.IsZero(data); zero && !was.Data || !zero && was.Data && was.ID == r.hasher.ID(data) {
		return
	}
	if r.reading.Untold == 0 {
		r.reading.UntoldAt = unit * int64(r.unit)
	}
	r.reading.Untold += int64(len(data))
}

var ways = map[commit.Way]Way{
	commit.WayAll: WayAll, commit.WayChanged: WayChanged, commit.WayAllocated: WayAllocated, commit.WayAudited: WayAudited,
}

// readingOf is how a volume was read by the backup of that sequence and time.
func readingOf(v *commit.Volume, r *commit.Reading, sequence uint64, created int64) Reading {
	out := Reading{
		Way: ways[r.Way], Why: r.Why, UnreadBytes: v.Unread, FullySequence: v.LastRead,
		UntoldBytes: r.Untold, UntoldAt: r.UntoldAt,
	}
	switch {
	case v.LastRead == sequence:
		out.FullyAt = time.Unix(created, 0).UTC()
	case r.FullyAt > 0:
		out.FullyAt = time.Unix(r.FullyAt, 0).UTC()
	}
	return out
}
