package repository

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/index"
)

const (
	// windowUnits bounds a window: 4 GiB of data with the smaller unit, 10 MiB of
	// memory.
	windowUnits = 1 << 18
	// windowZeros bounds its ranges of zeros, which a guest can scatter: 1 MiB.
	windowZeros = 1 << 16
	// windowZeroBytes bounds the zeros of a window that must be looked for in the
	// target, and so the places where it holds something else: 1 MiB.
	windowZeroBytes = 64 << 30
	// readBytes is the largest read of frames, readGap the largest gap of foreign
	// bytes that is read along rather than split a read in two.
	readBytes = 8 << 20
	readGap   = 256 << 10
)

// window is what is brought in together.
type window struct {
	units  []wanted
	frames []index.Frame
	known  map[index.Location]uint32
	zeros  []Extent

	zeroBytes int64    // sum of zeros
	stale     []Extent // of zeros, where the target holds something else
}

// wanted is one unit of the volume and where it is.
type wanted struct {
	unit  uint64 // counts from the start of the volume
	id    index.Tag
	frame uint32
	slot  uint8
	held  bool // the target has it already
}

func (w *window) add(f *index.Frame, u wanted) {
	if w.known == nil {
		w.known = map[index.Location]uint32{}
	}
	n, ok := w.known[f.Pack]
	if !ok {
		n = uint32(len(w.frames))
		w.known[f.Pack] = n
		w.frames = append(w.frames, *f)
	}
	u.frame = n
	w.units = append(w.units, u)
}

func (w *window) reset() {
	w.units, w.frames, w.zeros = w.units[:0], w.frames[:0], w.zeros[:0]
	w.zeroBytes = 0
	clear(w.known)
}

func (w *window) full(inPlace bool) bool {
	return len(w.units) >= windowUnits || len(w.zeros) >= windowZeros ||
		inPlace && w.zeroBytes >= windowZeroBytes
}

// request is one read: frames that lie near each other in one pack, in order.
type request struct {
	index.Location
	frames []frameWork
}

// frameWork is a frame and the units wanted from it, in the order of the volume.
type frameWork struct {
	*index.Frame
	units []wanted
}

// requests groups the window into reads, in the order of packs.
func (w *window) requests() []request {
	byFrame := make([][]wanted, len(w.frames))
	slices.SortFunc(w.units, func(a, b wanted) int {
		return cmp.Or(cmp.Compare(a.frame, b.frame), cmp.Compare(a.unit, b.unit))
	})
	for from := 0; from < len(w.units); {
		to := from
		for to < len(w.units) && w.units[to].frame == w.units[from].frame {
			to++
		}
		byFrame[w.units[from].frame] = w.units[from:to]
		from = to
	}
	order := make([]int, len(w.frames))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return comparePack(w.frames[a].Pack, w.frames[b].Pack) })
	var out []request
	for _, i := range order {
		if len(byFrame[i]) == 0 {
			continue // all of it is in place
		}
		f := frameWork{&w.frames[i], byFrame[i]}
		if k := len(out) - 1; k >= 0 && out[k].takes(f.Pack) {
			out[k].Length = f.Pack.End() - out[k].Offset
			out[k].frames = append(out[k].frames, f)
		} else {
			out = append(out, request{f.Pack, []frameWork{f}})
		}
	}
	return out
}

// comparePack orders by pack and place. Ordinals are the order in which packs were
// made, so that a disk that was written in one go is read in one go.
func comparePack(a, b index.Location) int {
	return cmp.Or(
		cmp.Compare(a.Ordinal, b.Ordinal),
		bytes.Compare(a.Origin.Run[:], b.Origin.Run[:]),
		cmp.Compare(a.Origin.Attempt, b.Origin.Attempt),
		cmp.Compare(a.Number, b.Number),
		cmp.Compare(a.Offset, b.Offset))
}

func (q *request) takes(at index.Location) bool {
	return q.Origin == at.Origin && q.Number == at.Number &&
		at.Offset >= q.End() && at.Offset-q.End() <= readGap && at.End()-q.Offset <= readBytes
}
