package blockfile

import (
	"errors"
	"io"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// directAlign is what memory, place and length of a direct access must be a
// multiple of: the largest logical block that devices have.
const directAlign = 4096

// openDirect opens a file or device a second time for access past the page cache,
// and tries it; nil if the filesystem has no such access.
func openDirect(path string, flags int) *os.File {
	f, err := os.OpenFile(path, flags|unix.O_DIRECT, 0)
	if err != nil {
		return nil
	}
	probe := alignedBuffer(directAlign)
	if _, err := f.ReadAt(probe, 0); err != nil && !errors.Is(err, io.EOF) {
		_ = f.Close()
		return nil
	}
	return f
}

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
