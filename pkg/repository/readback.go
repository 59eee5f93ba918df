package repository

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/vmstate/vmstate/pkg/repository/index"
)

// backBytes is how much of the target is read back at once.
const backBytes = 1 << 20

// unitSpan is a run of units that follow each other in the volume, or of zeros.
type unitSpan struct {
	offset, length int64
	units          []wanted // nil for zeros
}

// verify makes the window's part of the target durable, reads it back and compares
// every unit with its content id.
func (r *restore) verify(ctx context.Context) error {
	if err := r.sync(); err != nil {
		return err
	}
	return r.readTarget(ctx, (*restoreWorker).check)
}

func (r *restore) sync() error {
	if err := r.spec.Target.Sync(); err != nil {
		return fmt.Errorf("sync the target: %w", err)
	}
	return nil
}

// readTarget gives the window's part of the target to be read, several spans at once.
func (r *restore) readTarget(ctx context.Context, do func(*restoreWorker, context.Context, unitSpan) error) error {
	jobs := len(r.window.units)
	for _, z := range r.window.zeros {
		jobs += int(z.Length/backBytes) + 1
	}
	workers, err := r.atWork(jobs)
	if err != nil || len(workers) == 0 {
		return err
	}
	spans := make(chan unitSpan)
	group, ctx := errgroup.WithContext(ctx)
	for _, w := range workers {
		group.Go(func() error {
			for s := range spans {
				if err := do(w, ctx, s); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		defer close(spans)
		return r.spans(func(s unitSpan) error {
			select {
			case spans <- s:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	return group.Wait()
}

// spans cuts the window into reads of up to backBytes.
func (r *restore) spans(do func(unitSpan) error) error {
	units := r.window.units
	slices.SortFunc(units, func(a, b wanted) int { return cmp.Compare(a.unit, b.unit) })
	size := int64(r.volume.Unit)
	for from := 0; from < len(units); {
		to := from + 1
		for to < len(units) && units[to].unit == units[to-1].unit+1 && int64(to-from+1)*size <= backBytes {
			to++
		}
		last := units[to-1].unit
		offset := int64(units[from].unit) * size
		s := unitSpan{offset, int64(last)*size + int64(r.length(last)) - offset, units[from:to]}
		if err := do(s); err != nil {
			return err
		}
		from = to
	}
	for _, z := range r.window.zeros {
		for at := z.Offset; at < z.Offset+z.Length; at += backBytes {
			if err := do(unitSpan{at, min(backBytes, z.Offset+z.Length-at), nil}); err != nil {
				return err
			}
		}
	}
	return nil
}

// held is what the target has in a span.
func (w *restoreWorker) held(s unitSpan) ([]byte, error) {
	if int64(cap(w.plain)) < s.length {
		w.plain = make([]byte, s.length)
	}
	data := w.plain[:s.length]
	if n, err := w.run.spec.Target.ReadAt(data, s.offset); int64(n) != s.length {
		return nil, fmt.Errorf("%w: read %d bytes at %d of the target: %w", ErrVerify, s.length, s.offset, orShort(err))
	}
	return data, nil
}

func (w *restoreWorker) check(ctx context.Context, s unitSpan) error {
	data, err := w.held(s)
	if err != nil {
		return err
	}
	if s.units == nil && !index.IsZero(data) {
		return fmt.Errorf("%w: the target is not zero between %d and %d", ErrVerify, s.offset, s.offset+s.length)
	}
	size := w.run.volume.Unit
	for i, u := range s.units {
		if w.hasher.ID(data[i*size:min((i+1)*size, len(data))]) != u.id {
			return w.blame(ctx, u)
		}
	}
	w.run.tell(func(p *RestoreProgress) { p.Verified += s.length })
	return nil
}
