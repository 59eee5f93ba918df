package changedblocks

import (
	"fmt"
	"iter"

	"github.com/vmstate/vmstate/pkg/repository/blockfile"
)

const (
	// maxRanges bounds the memory of an answer to 16 MiB. With more, ranges that are near
	// each other become one, which reads more and never less.
	maxRanges = 1 << 20
	// firstGrain is the least distance that ranges are then apart.
	firstGrain = 64 << 10
)

// ranges are parts of a volume, in order and apart.
type ranges struct {
	list  []blockfile.Extent
	limit int
	grain int64
	end   int64 // behind the last byte that was told of
}

// all yields the ranges.
func (r *ranges) all() iter.Seq2[blockfile.Extent, error] {
	return func(yield func(blockfile.Extent, error) bool) {
		for _, e := range r.list {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// add takes a range behind all others.
func (r *ranges) add(offset, length int64) {
	r.end = offset + length
	r.join(offset, length)
	for len(r.list) > r.limit {
		r.grain = max(2*r.grain, firstGrain)
		old := r.list
		r.list = old[:0]
		for _, e := range old {
			r.join(e.Offset, e.Length)
		}
	}
}

// join appends a range, or makes the last one longer if there is no full grain between.
func (r *ranges) join(offset, length int64) {
	if n := len(r.list); n > 0 {
		last := &r.list[n-1]
		if end := last.Offset + last.Length; offset-end <= 0 || offset-end < r.grain {
			last.Length = offset + length - last.Offset
			return
		}
	}
	r.list = append(r.list, blockfile.Extent{Offset: offset, Length: length})
}

// answer gathers what the streams of one question say.
type answer struct {
	ranges
	size     int64 // of the volume as it is read
	capacity int64 // of the volume as the driver says; 0 if it has not
	streams  int
}

// message checks one message and takes its ranges. at is where the ranges of its stream
// went on from, or ended so far; first says that none came yet.
func (a *answer) message(capacity int64, blocks []block, at *place) error {
	if capacity <= 0 || a.capacity != 0 && capacity != a.capacity {
		return fmt.Errorf("%w: capacity of the volume is %d bytes, and was %d", ErrMalformed, capacity, a.capacity)
	}
	if capacity > a.size {
		return fmt.Errorf("%w: capacity of the volume is %d bytes, what is read has %d", ErrMalformed, capacity, a.size)
	}
	a.capacity = capacity
	for _, b := range blocks {
		end := b.offset + b.size
		switch {
		case b.offset < 0 || b.size <= 0 || end < b.offset || b.offset >= capacity:
			return fmt.Errorf("%w: range of %d bytes at %d in a volume of %d", ErrMalformed, b.size, b.offset, capacity)
		case end <= at.end, !at.first && b.offset < at.end:
			return fmt.Errorf("%w: range at %d comes behind one that ends at %d", ErrMalformed, b.offset, at.end)
		}
		// The first range of a stream that goes on may begin before the place asked for.
		from := max(b.offset, at.end)
		end = min(end, capacity)
		if end > from {
			a.add(from, end-from)
		}
		at.end, at.first = max(at.end, end), false
	}
	return nil
}

// place is how far a stream is.
type place struct {
	end   int64
	first bool
}

type block struct{ offset, size int64 }

// finish adds what is behind the driver's capacity: nothing is known of it.
func (a *answer) finish() iter.Seq2[blockfile.Extent, error] {
	if a.capacity < a.size {
		a.add(a.capacity, a.size-a.capacity)
	}
	return a.all()
}
