package repository

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/vmstate/vmstate/pkg/repository/index"
)

// chunk is the part of a volume that one leaf covers, as it was read. Units outside
// the extents are zero.
type chunk struct {
	leaf uint64
	data []byte
	read int64 // bytes that came from the source
	// told has a bit for each unit that the storage says has changed; the others of data
	// mean nothing unless all was read for an audit.
	told uint64
	err  error
}

// reading is a chunk on its way: the parts of it that hold data are read by whoever
// is free, and ready says when and how that ended.
type reading struct {
	chunk
	parts []Extent
	ready chan error
}

// source reads a volume ahead of the one who asks, several leaves at once and given
// out in order, and only where extents say that there may be data, and changes that it
// may be another one.
type source struct {
	volume    *BlockVolume
	unit      int
	leafBytes int64
	queue     chan *reading
	jobs      chan *reading
	free      chan []byte
	stop      context.CancelFunc
}

const (
	// readAhead is how many leaves are in memory: being read, waiting, being worked on.
	readAhead = 6
	// readers is how many reads of the source are under way at once: without the page
	// cache there is no other read-ahead.
	readers = 4
)

// inOrder is a source that must be read forwards, one piece after the other.
type inOrder interface{ readInOrder() }

func newSource(ctx context.Context, v *BlockVolume, unitBytes int) *source {
	ctx, stop := context.WithCancel(ctx)
	s := &source{
		volume: v, unit: unitBytes, leafBytes: index.LeafUnits * int64(unitBytes), stop: stop,
		queue: make(chan *reading, readAhead), jobs: make(chan *reading, readAhead),
		free: make(chan []byte, readAhead),
	}
	for range readAhead {
		s.free <- nil
	}
	n := readers
	if _, ok := v.Source.(inOrder); ok {
		n = 1
	}
	for range n {
		go func() {
			for r := range s.jobs {
				r.ready <- s.fill(r)
			}
		}()
	}
	go s.run(ctx)
	return s
}

// next returns the next chunk, or io.EOF in its err behind the last.
func (s *source) next() chunk {
	r, ok := <-s.queue
	if !ok {
		return chunk{leaf: index.End, err: io.EOF}
	}
	if err := <-r.ready; err != nil {
		return chunk{leaf: index.End, err: err}
	}
	return r.chunk
}

// release gives the memory of a chunk back.
func (s *source) release(c chunk) { s.free <- c.data[:0] }

// close stops reading and waits until the volume is no longer touched.
func (s *source) close() {
	s.stop()
	for r := range s.queue {
		<-r.ready //nolint:errcheck // how it ended matters to nobody any more
	}
}

// run hands out the readings, and an error last.
func (s *source) run(ctx context.Context) {
	defer close(s.queue)
	defer close(s.jobs)
	plan := s.plan
	if c := s.volume.Changes; c != nil && !c.Audit {
		plan = s.planChanged
	}
	if err := plan(ctx); err != nil {
		last := &reading{ready: make(chan error, 1)}
		last.ready <- err
		s.queue <- last
	}
}

// plan gathers the parts of each leaf.
func (s *source) plan(ctx context.Context) error {
	told, stop := s.told()
	defer stop()
	current := &reading{}
	for part, err := range s.parts() {
		if err != nil {
			return err
		}
		leaf := uint64(part.Offset / s.leafBytes)
		if len(current.parts) > 0 && current.leaf != leaf {
			if err := s.submit(ctx, current); err != nil {
				return err
			}
			current = &reading{}
		}
		if len(current.parts) == 0 {
			if current.told, err = told(leaf); err != nil {
				return err
			}
		}
		current.leaf = leaf
		current.parts = append(current.parts, part)
	}
	if len(current.parts) > 0 {
		return s.submit(ctx, current)
	}
	return ctx.Err()
}

// told gives the units of each leaf that the storage says have changed; without an
// audit that is all of them.
func (s *source) told() (of func(leaf uint64) (uint64, error), stop func()) {
	if s.volume.Changes == nil {
		return func(uint64) (uint64, error) { return allUnits, nil }, func() {}
	}
	r := s.ranges(s.volume.Changes.Ranges, "changes")
	next, mask, err := r.leaf(0)
	return func(leaf uint64) (uint64, error) {
		if err == nil && next < leaf {
			next, mask, err = r.leaf(leaf)
		}
		if err != nil || next != leaf {
			return 0, err
		}
		return mask, nil
	}, r.stop
}

// planChanged gathers the leaves that the storage says have changed, and of those units
// what is allocated.
func (s *source) planChanged(ctx context.Context) error {
	changed := s.ranges(s.volume.Changes.Ranges, "changes")
	defer changed.stop()
	allocated := s.ranges(s.extents(), "extents")
	defer allocated.stop()
	for leaf := uint64(0); ; leaf++ {
		next, mask, err := changed.leaf(leaf)
		if err != nil || next == index.End {
			return err
		}
		leaf = next
		r := &reading{chunk: chunk{leaf: leaf, told: mask}}
		err = runs(mask, func(first, behind int) (err error) {
			start := int64(leaf) * s.leafBytes
			to := min(start+int64(behind*s.unit), s.volume.Size)
			r.parts, err = allocated.within(r.parts, start+int64(first*s.unit), to)
			return err
		})
		if err != nil {
			return err
		}
		if err := s.submit(ctx, r); err != nil {
			return err
		}
	}
}

func (s *source) ranges(list iter.Seq2[Extent, error], what string) *ranges {
	return newRanges(list, fmt.Sprintf("%q: %s", s.volume.Name, what), s.volume.Size, s.unit)
}

func (s *source) submit(ctx context.Context, r *reading) error {
	select {
	case buffer := <-s.free:
		r.data = s.sized(buffer, r.leaf)
	case <-ctx.Done():
		return ctx.Err()
	}
	r.ready = make(chan error, 1)
	s.queue <- r
	s.jobs <- r
	return nil
}

// sized returns memory for a leaf. The last one of a volume may be shorter.
func (s *source) sized(buffer []byte, leaf uint64) []byte {
	if buffer == nil {
		buffer = make([]byte, 0, s.leafBytes)
	}
	n := min(s.leafBytes, s.volume.Size-int64(leaf)*s.leafBytes)
	return buffer[:n]
}

// fill reads the parts of a leaf and zeroes what is between them.
func (s *source) fill(r *reading) error {
	start, filled := int64(r.leaf)*s.leafBytes, int64(0)
	for _, p := range r.parts {
		from := p.Offset - start
		clear(r.data[filled:from])
		filled = from + p.Length
		n, err := s.volume.Source.ReadAt(r.data[from:filled], p.Offset)
		if int64(n) != p.Length {
			return fmt.Errorf("%w %q: %d bytes at %d: %w", ErrSource, s.volume.Name, p.Length, p.Offset, orShort(err))
		}
		r.read += p.Length
	}
	clear(r.data[filled:])
	return nil
}

func orShort(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// parts yields the extents, cut at the borders of leaves.
func (s *source) parts() iter.Seq2[Extent, error] {
	return func(yield func(Extent, error) bool) {
		end := int64(0)
		for e, err := range s.extents() {
			if err != nil {
				yield(e, fmt.Errorf("%w %q: extents: %w", ErrSource, s.volume.Name, err))
				return
			}
			if e.Offset < end || e.Length < 0 || e.Offset > s.volume.Size {
				yield(e, fmt.Errorf("%w %q: extent of %d bytes at %d is out of order or behind the end",
					ErrSource, s.volume.Name, e.Length, e.Offset))
				return
			}
			end = min(e.Offset+e.Length, s.volume.Size)
			for at := e.Offset; at < end; {
				n := min(s.leafBytes-at%s.leafBytes, end-at)
				if !yield(Extent{Offset: at, Length: n}, nil) {
					return
				}
				at += n
			}
		}
	}
}

func (s *source) extents() iter.Seq2[Extent, error] {
	if s.volume.Extents != nil {
		return s.volume.Extents
	}
	return func(yield func(Extent, error) bool) { yield(Extent{Length: s.volume.Size}, nil) }
}
