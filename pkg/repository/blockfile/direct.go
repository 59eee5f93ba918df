package blockfile

import (
	"iter"
	"unsafe"
)

// directAlign is what memory, place and length of a direct access must be a
// multiple of: the largest logical block that devices have.
const directAlign = 4096

// alignedBuffer returns memory that direct access can use.
func alignedBuffer(n int) []byte {
	b := make([]byte, n+directAlign)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (directAlign - 1)
	return b[skip : skip+n : skip+n]
}

func aligned(p []byte, off int64) bool {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	return len(p) > 0 && (at|uintptr(off)|uintptr(len(p)))%directAlign == 0
}

// all is one extent, for what tells nothing of its holes.
func all(from, to int64) iter.Seq2[Extent, error] {
	return func(yield func(Extent, error) bool) { yield(Extent{from, to - from}, nil) }
}
