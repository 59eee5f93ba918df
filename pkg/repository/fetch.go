package repository

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/vmstate/vmstate/pkg/repository/frame"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// restoreWorkers is how many reads are under way at once. Each has up to readBytes
// in memory.
const restoreWorkers = 8

// restoreWorker brings in one read after the other.
type restoreWorker struct {
	run     *restore
	hasher  *index.Hasher
	decoder *zstd.Decoder
	openers map[keys.Origin]*frame.Opener
	sealed  []byte
	plain   []byte
}

// atWork returns as many workers as there are jobs, restoreWorkers at most.
func (r *restore) atWork(jobs int) ([]*restoreWorker, error) {
	n := min(jobs, restoreWorkers)
	for len(r.workers) < n {
		d, err := frame.NewDecoder()
		if err != nil {
			return nil, err
		}
		r.workers = append(r.workers, &restoreWorker{
			run: r, decoder: d, openers: map[keys.Origin]*frame.Opener{},
			hasher: index.NewHasher(r.opened.epoch.Set, r.opened.record.Domain),
		})
	}
	return r.workers[:n], nil
}

// fetch brings the units of the window into the target.
func (r *restore) fetch(ctx context.Context) error {
	planned := r.window.requests()
	workers, err := r.atWork(len(planned))
	if err != nil {
		return err
	}
	requests := make(chan request)
	group, ctx := errgroup.WithContext(ctx)
	for _, w := range workers {
		group.Go(func() error {
			for q := range requests {
				if err := w.request(ctx, q); err != nil {
					return err
				}
			}
			return nil
		})
	}
	group.Go(func() error {
		defer close(requests)
		for _, q := range planned {
			select {
			case requests <- q:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	return group.Wait()
}

func (w *restoreWorker) request(ctx context.Context, q request) error {
	key := layout.DataPack(w.run.objects.vm, q.Origin, q.Number)
	if err := w.read(ctx, key, q.Location); err != nil {
		return w.unread(ctx, q, fmt.Errorf("read %d bytes at %d of %q: %w", q.Length, q.Offset, key, readError(err)))
	}
	w.run.tell(func(p *RestoreProgress) {
		p.Fetched += q.Length
		w.run.requests++
	})
	for _, f := range q.frames {
		from := f.Pack.Offset - q.Offset
		if err := w.frame(f, w.sealed[from:from+f.Pack.Length:from+f.Pack.Length]); err != nil {
			return err
		}
	}
	return nil
}

// frameError names the frame that an error is about.
func (r *restore) frameError(f *index.Frame, err error) error {
	return fmt.Errorf("frame at %d of %q: %w", f.Pack.Offset, layout.DataPack(r.objects.vm, f.Pack.Origin, f.Pack.Number), err)
}

// unread goes on behind a request that failed for damage, in a salvage: frame by frame,
// since those before a cut are still there.
func (w *restoreWorker) unread(ctx context.Context, q request, err error) error {
	if w.run.bad == nil || !isBroken(err) {
		return err
	}
	if len(q.frames) == 1 || errors.Is(err, ErrMissing) {
		for _, f := range q.frames {
			if err := w.run.loseUnits(f.units, err); err != nil {
				return err
			}
		}
		return nil
	}
	for _, f := range q.frames {
		if err := w.request(ctx, request{f.Pack, []frameWork{f}}); err != nil {
			return err
		}
	}
	return nil
}

func (w *restoreWorker) read(ctx context.Context, key string, l index.Location) error {
	body, err := w.run.repo.store.Open(ctx, key, l.Offset, l.Length)
	if err != nil {
		return err
	}
	defer body.Close()
	if int64(cap(w.sealed)) < l.Length {
		w.sealed = make([]byte, l.Length)
	}
	w.sealed = w.sealed[:l.Length]
	n, err := io.ReadFull(body, w.sealed)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it ends after %d bytes", ErrDamaged, n)
	}
	return err
}

// frame opens a frame and writes the units that are wanted from it.
func (w *restoreWorker) frame(f frameWork, sealed []byte) error {
	var err error
	if w.plain, err = w.opener(f.Frame).Open(w.plain, sealed, f.Counter, f.Raw, f.Length); err != nil {
		return w.run.loseUnits(f.units, w.run.frameError(f.Frame, err))
	}
	done := int64(0)
	for from := 0; from < len(f.units); {
		n, err := w.write(f.units[from:])
		if err != nil {
			return err
		}
		for _, u := range f.units[from : from+n] {
			done += int64(w.run.length(u.unit))
		}
		from += n
	}
	w.run.tell(func(p *RestoreProgress) {
		p.Done += done
		w.run.data += done
	})
	return nil
}

func (w *restoreWorker) opener(f *index.Frame) *frame.Opener {
	opener := w.openers[f.Key]
	if opener == nil {
		binding := frame.Binding{Repository: w.run.repo.id, VM: w.run.objects.vm, Origin: f.Key}
		opener = frame.NewOpener(w.run.keys.get(f.Key), binding, w.decoder)
		w.openers[f.Key] = opener
	}
	return opener
}

// write writes as many of the units as follow each other both in the frame and in
// the volume, and returns how many these are. Their ids are checked here only if they
// are not read back: one check is enough, and the one on what the target holds says
// more. Until it is done the target is no one's disk.
func (w *restoreWorker) write(units []wanted) (int, error) {
	size := w.run.volume.Unit
	first := units[0]
	start := int(first.slot) * size
	end, n := start, 0
	for n < len(units) && units[n].unit == first.unit+uint64(n) && int(units[n].slot) == int(first.slot)+n {
		behind := start + n*size + w.run.length(units[n].unit)
		if err := w.unit(units[n], start+n*size, behind); err != nil {
			if n > 0 {
				break // what is good before it is written first
			}
			return 1, w.run.loseUnits(units[:1], w.run.frameError(&w.run.window.frames[first.frame], err))
		}
		end = behind
		n++
	}
	at := int64(first.unit) * int64(size)
	if _, err := w.run.spec.Target.WriteAt(w.plain[start:end], at); err != nil {
		return 0, fmt.Errorf("write %d bytes at %d of the target: %w", end-start, at, err)
	}
	return n, nil
}

// unit proves that the frame holds a unit.
func (w *restoreWorker) unit(u wanted, from, to int) error {
	if to > len(w.plain) {
		return fmt.Errorf("%w: slot %d is not in it", ErrDamaged, u.slot)
	}
	if !w.run.readBack && w.hasher.ID(w.plain[from:to]) != u.id {
		return w.run.wrongUnit(u)
	}
	return nil
}

func (r *restore) wrongUnit(u wanted) error {
	return fmt.Errorf("%w: unit at %d of the volume does not have its content id",
		ErrDamaged, int64(u.unit)*int64(r.volume.Unit))
}

// blame tells why the target does not hold a unit: because the frame does not
// either, or because the target does not keep what is written to it.
func (w *restoreWorker) blame(ctx context.Context, u wanted) error {
	f := &w.run.window.frames[u.frame]
	key := layout.DataPack(w.run.objects.vm, f.Pack.Origin, f.Pack.Number)
	if err := w.read(ctx, key, f.Pack); err != nil {
		return fmt.Errorf("read %q again: %w", key, readError(err))
	}
	plain, err := w.opener(f).Open(nil, w.sealed, f.Counter, f.Raw, f.Length)
	if err != nil {
		return w.run.frameError(f, err)
	}
	from := int(u.slot) * w.run.volume.Unit
	if w.hasher.ID(plain[from:from+w.run.length(u.unit)]) != u.id {
		return w.run.frameError(f, w.run.wrongUnit(u))
	}
	return fmt.Errorf("%w: unit at %d of the target is not what was written", ErrVerify, int64(u.unit)*int64(w.run.volume.Unit))
}
