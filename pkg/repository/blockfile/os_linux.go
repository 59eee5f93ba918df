package blockfile

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

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

// sectorSize of a block device.
func sectorSize(f *os.File) (int, error) { return unix.IoctlGetInt(int(f.Fd()), unix.BLKSSZGET) }

// inOrder says that the file will be read forwards.
func inOrder(f *os.File) { _ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_SEQUENTIAL) }

// forget drops a range from the page cache; length 0 is all that follows.
func forget(f *os.File, from, length int64) {
	_ = unix.Fadvise(int(f.Fd()), from, length, unix.FADV_DONTNEED)
}

// datasync makes what was written durable.
func datasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// makeSparse has a file keep no room for what it does not hold, which is so anyway.
func makeSparse(*os.File) error { return nil }

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

// zeroRange makes a range read as zeros: by a hole in a file, by the device's own
// means.
func zeroRange(f *os.File, device bool, off, length int64) error {
	if device {
		return ioctlRange(f, unix.BLKZEROOUT, blockRange{uint64(off), uint64(length)})
	}
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, length)
}

// blockRange is the argument of BLKZEROOUT and its like.
type blockRange struct {
	offset, length uint64
}

func ioctlRange(f *os.File, request uint, r blockRange) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), uintptr(request), uintptr(unsafe.Pointer(&r)))
	if errno != 0 {
		return errno
	}
	return nil
}
