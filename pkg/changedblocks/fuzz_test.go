package changedblocks

import (
	"encoding/binary"
	"testing"
)

// FuzzMessages: whatever a driver streams, an answer that is taken has its ranges in order, apart and within the
// volume, and leaves out no byte that was told of, nor one that the driver knows nothing of.
func FuzzMessages(f *testing.F) {
	pairs := func(list ...int64) (b []byte) {
		for _, n := range list {
			b = binary.BigEndian.AppendUint64(b, uint64(n))
		}
		return b
	}
	f.Add(int64(1000), int64(900), int64(0), pairs(0, 10, 20, 5, 800, 200))
	f.Add(int64(1000), int64(1000), int64(15), pairs(10, 10, 20, 5))
	f.Add(int64(1<<40), int64(1<<40), int64(0), pairs(0, 1, 1<<20, 1, 1<<30, 1<<20, 1<<39, 7))
	f.Fuzz(func(t *testing.T, size, capacity, from int64, stream []byte) {
		if size < 0 || from < 0 || from > size {
			return // what is asked is right
		}
		var blocks []block
		for ; len(stream) >= 16; stream = stream[16:] {
			blocks = append(blocks, block{int64(binary.BigEndian.Uint64(stream)), int64(binary.BigEndian.Uint64(stream[8:]))})
		}
		a := &answer{ranges: ranges{limit: 3}, size: size}
		if a.message(capacity, blocks, &place{end: from, first: true}) != nil {
			return
		}
		end := int64(-1)
		covered := func(offset int64) bool { return offset >= size }
		for e := range a.finish() {
			if e.Offset <= end || e.Length <= 0 || e.Offset+e.Length > size {
				t.Errorf("range of %d at %d, behind one that ends at %d, in %d", e.Length, e.Offset, end, size)
			}
			end = e.Offset + e.Length
			covered = within(covered, e.Offset, end)
		}
		for _, b := range append(blocks, block{capacity, 1}) {
			if first := max(b.offset, from); !covered(first) && first < b.offset+b.size && first < capacity {
				t.Errorf("byte %d is left out", first)
			}
		}
		if !covered(capacity) {
			t.Errorf("what is behind the driver's %d bytes is left out", capacity)
		}
	})
}

// within says what before did, and yes from begin up to end.
func within(before func(int64) bool, begin, end int64) func(int64) bool {
	return func(offset int64) bool { return before(offset) || begin <= offset && offset < end }
}
