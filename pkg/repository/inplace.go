package repository

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/index"
)

// holed is a target that tells where in [from, to) it may hold anything but zeros.
type holed interface {
	Extents(from, to int64) iter.Seq2[Extent, error]
}

// keep reads the window's part of the target and takes out of the window what is right
// already: that is neither fetched nor written nor read back. It is compared by content
// id, never by fingerprint: whoever has the index key could make other bytes with the
// same fingerprint.
func (r *restore) keep(ctx context.Context) error {
	// What an earlier attempt wrote may still be in a cache; kept, it must last.
	if err := r.sync(); err != nil {
		return err
	}
	if err := r.keepHoles(); err != nil {
		return err
	}
	r.window.stale = r.window.stale[:0]
	if err := r.readTarget(ctx, (*restoreWorker).compare); err != nil {
		return err
	}
	r.window.units = slices.DeleteFunc(r.window.units, func(u wanted) bool { return u.held })
	slices.SortFunc(r.window.stale, func(a, b Extent) int { return cmp.Compare(a.Offset, b.Offset) })
	r.window.zeros = r.window.zeros[:0]
	for _, z := range r.window.stale {
		r.zero(z.Offset, z.Offset+z.Length)
	}
	return nil
}

// keepHoles leaves of the window's zeros those that the target may hold something
// else for. A read costs little more than another hole, so small holes are not told
// apart: there is an end to how many pieces become of one range.
func (r *restore) keepHoles() error {
	target, ok := r.spec.Target.(holed)
	if !ok {
		return nil
	}
	zeros := slices.Clone(r.window.zeros)
	r.window.zeros = r.window.zeros[:0]
	for _, z := range zeros {
		at, end := z.Offset, z.Offset+z.Length
		for e, err := range target.Extents(at, end) {
			if err != nil {
				return err
			}
			if e.Offset-at >= backBytes {
				r.kept(e.Offset-at, e.Offset-at)
				at = e.Offset
			}
			r.zero(at, e.Offset+e.Length)
			at = e.Offset + e.Length
		}
		r.kept(end-at, end-at)
	}
	return nil
}

// kept counts bytes that were in place, and how many of these are zero.
func (r *restore) kept(n, zero int64) {
	r.tell(func(p *RestoreProgress) {
		p.Done += n
		p.Kept += n
		p.Zero += zero
		p.Verified += n
	})
}

// compare notes what of a span is in place.
func (w *restoreWorker) compare(_ context.Context, s unitSpan) error {
	data, err := w.held(s)
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	if s.units == nil {
		if index.IsZero(data) {
			w.run.kept(s.length, s.length)
			return nil
		}
		w.run.mu.Lock()
		defer w.run.mu.Unlock()
		w.run.window.stale = append(w.run.window.stale, Extent{Offset: s.offset, Length: s.length})
		return nil
	}
	size, kept := w.run.volume.Unit, int64(0)
	for i := range s.units {
		unit := data[i*size : min((i+1)*size, len(data))]
		// A unit of zeros has no place in the index: no need to hash one.
		if s.units[i].held = !index.IsZero(unit) && w.hasher.ID(unit) == s.units[i].id; s.units[i].held {
			kept += int64(len(unit))
		}
	}
	w.run.kept(kept, 0)
	return nil
}
