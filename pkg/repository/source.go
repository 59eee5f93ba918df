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
	err  error
}

// source reads a volume ahead of the one who asks, leaf by leaf in order, only
// where extents say that there may be data.
type source struct {
	volume    *BlockVolume
	leafBytes int64
	chunks    chan chunk
	free      chan []byte
	stop      context.CancelFunc
}

// readAhead is how many leaves are in memory: being read, waiting, being worked on.
const readAhead = 4

func newSource(ctx context.Context, v *BlockVolume, unitBytes int) *source {
	ctx, stop := context.WithCancel(ctx)
	s := &source{
		volume: v, leafBytes: index.LeafUnits * int64(unitBytes),
		chunks: make(chan chunk, readAhead), free: make(chan []byte, readAhead), stop: stop,
	}
	for range readAhead {
		s.free <- nil
	}
	go s.run(ctx)
	return s
}

// next returns the next chunk, or io.EOF in its err behind the last.
func (s *source) next() chunk {
	c, ok := <-s.chunks
	if !ok {
		return chunk{leaf: index.End, err: io.EOF}
	}
	return c
}

// release gives the memory of a chunk back.
func (s *source) release(c chunk) { s.free <- c.data[:0] }

// close stops reading and waits until the volume is no longer touched.
func (s *source) close() {
	s.stop()
	for c := range s.chunks {
		if c.err == nil {
			s.free <- c.data
		}
	}
}

func (s *source) run(ctx context.Context) {
	defer close(s.chunks)
	if err := s.readAll(ctx); err != nil {
		s.chunks <- chunk{leaf: index.End, err: err}
	}
}

func (s *source) readAll(ctx context.Context) error {
	var current chunk
	open, filled := false, int64(0) // filled is how far the current chunk holds data or zeros
	send := func() {
		if open {
			clear(current.data[filled:])
			s.chunks <- current
		}
		open = false
	}
	for part, err := range s.parts() {
		if err != nil {
			return err
		}
		leaf := uint64(part.Offset / s.leafBytes)
		if open && current.leaf != leaf {
			send()
		}
		if !open {
			select {
			case buffer := <-s.free:
				current = chunk{leaf: leaf, data: s.sized(buffer, leaf)}
				open, filled = true, 0
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		from := part.Offset - int64(leaf)*s.leafBytes
		clear(current.data[filled:from])
		filled = from + part.Length
		n, err := s.volume.Source.ReadAt(current.data[from:from+part.Length], part.Offset)
		if int64(n) != part.Length {
			return fmt.Errorf("%w %q: %d bytes at %d: %w", ErrSource, s.volume.Name, part.Length, part.Offset, orShort(err))
		}
		current.read += part.Length
	}
	send()
	return nil
}

func orShort(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// sized returns memory for a leaf. The last one of a volume may be shorter.
func (s *source) sized(buffer []byte, leaf uint64) []byte {
	if buffer == nil {
		buffer = make([]byte, 0, s.leafBytes)
	}
	n := min(s.leafBytes, s.volume.Size-int64(leaf)*s.leafBytes)
	return buffer[:n]
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
