package repository

import (
	"context"
	"errors"

	"github.com/vmstate/vmstate/pkg/repository/index"
)

// maxQueue bounds the leaves that wait for a frame to be full. When it is reached,
// the frame is sealed as it is.
const maxQueue = 1024

// leafWork is a leaf on its way into the tree. It waits for the frames of its new
// units; one that is taken over as it is waits for those before it.
type leafWork struct {
	leaf   uint64
	ref    index.Ref // of a leaf that is taken over
	taken  bool
	base   *index.Leaf // where kept units are from; nil if none is kept
	old    *index.Leaf // the parent's, to be booked out; nil if there is none
	oldRef index.Ref
	units  []unitWork
	// waits is the frame that must be placed first, plus one; 0 waits for none.
	waits uint64
}

// unitWork is one unit: zero, kept from the base, or in a frame of this run.
type unitWork struct {
	index.Unit
	kept    bool
	counter uint64
}

// leaf compares one chunk with what is known of it and queues the outcome.
func (r *volumeRun) leaf(ctx context.Context, c chunk, inParent bool) error {
	w := r.newWork(c.leaf)
	if inParent {
		old, err := r.cursor.Leaf(ctx, r.unit)
		if err != nil {
			if err := r.lost(c.leaf, c.leaf+1, err); err != nil {
				return err
			}
		} else {
			w.old, w.oldRef = old, r.cursor.Ref()
		}
	}
	w.base, w.ref = w.old, w.oldRef
	earlier, ref, err := r.b.resume.find(ctx, r.number, c.leaf, r.unit)
	switch {
	case isBroken(err): // as good as none
	case err != nil:
		return err
	case earlier != nil && r.serves(earlier, len(c.data)):
		w.base, w.ref = earlier, ref
	}
	if w.old != nil && r.trusts() {
		r.record.Used -= r.usedOf(c.leaf, w.old)
	}
	same, err := r.compare(ctx, c, w)
	if err != nil {
		return err
	}
	w.taken = same && !r.b.distrust.node(w.ref.Location)
	r.queue = append(r.queue, w)
	start := int64(c.leaf) * int64(r.unit) * index.LeafUnits
	r.b.progress.Skipped += start - r.seen + int64(len(c.data)) - c.read
	r.seen = start + int64(len(c.data))
	r.b.tell(c.read)
	return nil
}

func (r *volumeRun) newWork(leaf uint64) *leafWork {
	if n := len(r.spare); n > 0 {
		w := r.spare[n-1]
		r.spare = r.spare[:n-1]
		*w = leafWork{leaf: leaf, units: w.units[:0]}
		return w
	}
	return &leafWork{leaf: leaf, units: make([]unitWork, 0, index.LeafUnits)}
}

// compare settles each unit of a chunk. same says that all are as in the base, so
// that its node can be taken over.
func (r *volumeRun) compare(ctx context.Context, c chunk, w *leafWork) (same bool, err error) {
	same = w.base != nil && len(w.base.Units)*r.unit >= len(c.data) && len(w.base.Units) == (len(c.data)+r.unit-1)/r.unit
	for from := 0; from < len(c.data); from += r.unit {
		data := c.data[from:min(from+r.unit, len(c.data))]
		i := from / r.unit
		read := c.told>>i&1 == 1 || !r.trusts()
		if r.audits() && c.told>>i&1 == 0 {
			r.audit(int64(c.leaf)*index.LeafUnits+int64(i), data, w.old)
		}
		u, err := r.settleUnit(ctx, data, w.base, i, read)
		if err != nil {
			return false, err
		}
		if !u.kept && u.Data {
			w.waits = max(w.waits, u.counter+1)
		}
		if same {
			same = u.kept || !u.Data && !w.base.Units[i].Data
		}
		w.units = append(w.units, u)
	}
	return same, nil
}

// settleUnit takes a unit that was not read from the base, and compares one that was.
func (r *volumeRun) settleUnit(ctx context.Context, data []byte, base *index.Leaf, i int, read bool) (u unitWork, err error) {
	if read {
		u, err = r.compareUnit(ctx, data, base, i)
	} else if base != nil {
		u = unitWork{Unit: base.Units[i], kept: base.Units[i].Data}
	}
	if u.Data {
		r.record.Used += int64(len(data))
	}
	if u.Data && read {
		r.used += int64(len(data))
	}
	return u, err
}

func (r *volumeRun) compareUnit(ctx context.Context, data []byte, base *index.Leaf, i int) (unitWork, error) {
	var u unitWork
	p := &r.b.progress
	if index.IsZero(data) {
		p.Zero += int64(len(data))
		return u, nil
	}
	u.Data = true
	u.Fingerprint = r.hasher.Fingerprint(data)
	if base != nil && i < len(base.Units) && base.Units[i].Data && base.Units[i].Fingerprint == u.Fingerprint &&
		r.b.counts(&base.Frames[base.Units[i].Frame]) && r.b.renew.kept(base, &base.Units[i]) &&
		(!r.audits() || base.Units[i].ID == r.hasher.ID(data)) {
		u.Unit, u.kept = base.Units[i], true
		p.Reused += int64(len(data))
		return u, nil
	}
	u.ID = r.hasher.ID(data)
	if k, ok := r.b.frames.find(u.ID, r.unit); ok {
		u.counter, u.Slot = k.counter-1, k.slot
		p.Reused += int64(len(data))
		return u, nil
	}
	for r.b.frames.busy() {
		if err := r.placeOldest(ctx); err != nil {
			return u, err
		}
	}
	u.counter, u.Slot = r.b.frames.add(data, r.unit)
	r.b.frames.known.add(knownUnit{id: u.ID, counter: u.counter + 1, slot: u.Slot, unit: uint32(r.unit)})
	r.record.Sent += int64(len(data))
	return u, nil
}

// placeOldest puts the oldest sealed frame into the open pack, and closes that
// first if it is full.
func (r *volumeRun) placeOldest(ctx context.Context) error {
	b := r.b
	if b.data.Full() {
		if err := r.drainReady(ctx); err != nil {
			return err
		}
		if err := b.closePack(ctx); err != nil {
			return err
		}
	}
	j := b.frames.oldest()
	if j == nil {
		return errors.New("no frame is under way")
	}
	at := b.data.Add(j.sealed, j.units*r.unit)
	b.frames.placed.add(index.Frame{
		Key: b.origin, KeyOrdinal: b.keyOrdinal(), Counter: j.counter,
		Pack: at, Raw: j.raw, Length: len(j.plain),
	})
	b.frames.release(j)
	return r.drainReady(ctx)
}

// drain brings the queue down to limit leaves, sealing a frame early if need be.
func (r *volumeRun) drain(ctx context.Context, limit int) error {
	if err := r.drainReady(ctx); err != nil {
		return err
	}
	for len(r.queue) > limit {
		if r.queue[0].waits > r.b.frames.counter {
			r.b.frames.submit()
		}
		if err := r.placeOldest(ctx); err != nil {
			return err
		}
	}
	if limit == 0 {
		for len(r.b.frames.queue) > 0 {
			if err := r.placeOldest(ctx); err != nil {
				return err
			}
		}
	}
	return r.b.up.Err()
}

// drainReady puts the leaves into the tree whose frames are all placed.
func (r *volumeRun) drainReady(ctx context.Context) error {
	n := 0
	for n < len(r.queue) && r.queue[n].waits <= r.b.frames.placed.next {
		w := r.queue[n]
		if err := r.store(ctx, w); err != nil {
			return err
		}
		w.base, w.old = nil, nil
		r.spare = append(r.spare, w)
		n++
	}
	r.queue = r.queue[:copy(r.queue, r.queue[n:])]
	return r.b.checkIndex(ctx)
}

// store books a leaf and adds it to the tree.
func (r *volumeRun) store(ctx context.Context, w *leafWork) error {
	books := r.b.accounts
	if w.taken && w.ref == w.oldRef {
		return r.builder.Add(ctx, w.leaf, w.ref)
	}
	if w.old != nil {
		books.units(w.old, r.unit, -1)
		books.node(w.oldRef, -1)
	}
	if w.taken { // from an earlier attempt
		books.units(w.base, r.unit, 1)
		books.node(w.ref, 1)
		return r.builder.Add(ctx, w.leaf, w.ref)
	}
	l := r.build(w)
	if l.Empty() {
		r.builder.Settle(w.leaf)
		return nil
	}
	ref, err := r.b.nodes.PutLeaf(ctx, r.b.index, l)
	if err != nil {
		return err
	}
	books.units(l, r.unit, 1)
	r.b.index.Note(index.DirectoryLeaf{
		Volume: r.number, Leaf: w.leaf, Content: ref.Content, Offset: ref.Offset, Length: ref.Length,
	})
	return r.builder.Add(ctx, w.leaf, ref)
}

// build makes the leaf, now that every frame has its place.
func (r *volumeRun) build(w *leafWork) *index.Leaf {
	l := &index.Leaf{Units: make([]index.Unit, len(w.units))}
	at := map[index.Location]uint8{}
	for i := range w.units {
		u := &w.units[i]
		if !u.Data {
			continue
		}
		var f *index.Frame
		if u.kept {
			f = &w.base.Frames[u.Frame]
		} else {
			f = r.b.frames.placed.get(u.counter)
		}
		n, ok := at[f.Pack]
		if !ok {
			n = uint8(len(l.Frames))
			at[f.Pack] = n
			l.Frames = append(l.Frames, *f)
		}
		l.Units[i] = index.Unit{Data: true, Fingerprint: u.Fingerprint, ID: u.ID, Frame: n, Slot: u.Slot}
	}
	return l
}
