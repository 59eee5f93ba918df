package blockfile

import (
	"errors"
	"fmt"
	"iter"
	"os"

	"golang.org/x/sys/unix"
)

// all is one extent, for what tells nothing of its holes.
func all(from, to int64) iter.Seq2[Extent, error] {
	return func(yield func(Extent, error) bool) { yield(Extent{from, to - from}, nil) }
}

// extents yields what a file has allocated in [from, to).
func extents(f *os.File, from, to int64) iter.Seq2[Extent, error] {
	return func(yield func(Extent, error) bool) {
		for at := from; at < to; {
			data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
			if errors.Is(err, unix.ENXIO) || err == nil && data >= to {
				return // only a hole is left
			}
			if errors.Is(err, unix.EINVAL) { // this filesystem does not tell
				yield(Extent{at, to - at}, nil)
				return
			}
			var hole int64
			if err == nil {
				hole, err = unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
			}
			if err != nil {
				yield(Extent{}, fmt.Errorf("look for holes in %q: %w", f.Name(), err))
				return
			}
			hole = min(hole, to)
			if hole <= data || !yield(Extent{data, hole - data}, nil) {
				return
			}
			at = hole
		}
	}
}
