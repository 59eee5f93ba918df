package csireflink

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// extent is a part of an image that has data, and where that is on the file system's device.
type extent struct {
	offset, length, physical int64
}

// What the kernel calls FIEMAP (linux/fiemap.h).
const (
	fiemapRequest   = 0xc020660b
	fiemapSync      = 1
	extentLast      = 0x1
	extentNoPlace   = 0x2 | 0x4 // unknown, delayed
	extentUnwritten = 0x800
	extentsARequest = 512
)

type fiemapExtent struct {
	logical, physical, length uint64
	_                         [2]uint64
	flags                     uint32
	_                         [3]uint32
}

type fiemap struct {
	start, length               uint64
	flags, mapped, count, spare uint32
	extents                     [extentsARequest]fiemapExtent
}

// extentsOf lists what an image has allocated, in order, up to size. What was allocated and never written reads as
// zeros, and is left out.
func extentsOf(name string, size int64) ([]extent, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []extent
	for start := uint64(0); start < uint64(size); {
		m := &fiemap{start: start, length: uint64(size) - start, flags: fiemapSync, count: extentsARequest}
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fiemapRequest, uintptr(unsafe.Pointer(m))); errno != 0 {
			return nil, &os.PathError{Op: "fiemap", Path: name, Err: errno}
		}
		if m.mapped == 0 {
			return out, nil
		}
		for _, e := range m.extents[:m.mapped] {
			if e.flags&extentNoPlace != 0 {
				return nil, &os.PathError{Op: "fiemap", Path: name, Err: unix.EAGAIN}
			}
			start = e.logical + e.length
			if length := min(int64(start), size) - int64(e.logical); e.flags&extentUnwritten == 0 && length > 0 {
				out = append(out, extent{int64(e.logical), length, int64(e.physical)})
			}
			if e.flags&extentLast != 0 {
				return out, nil
			}
		}
	}
	return out, nil
}

// piece is a range of an image.
type piece struct {
	offset, length int64
}

func appendPiece(list []piece, offset, length int64) []piece {
	if n := len(list); n > 0 && list[n-1].offset+list[n-1].length == offset {
		list[n-1].length += length
		return list
	}
	return append(list, piece{offset, length})
}

// differing lists where two images do not share what they hold. While both exist no place on the device is used
// twice, so equal places mean equal data.
func differing(base, target []extent) []piece {
	var out []piece
	at := int64(0)
	for len(base) > 0 || len(target) > 0 {
		b, t := first(base), first(target)
		from := max(at, min(b.offset, t.offset))
		var end int64
		switch {
		case t.offset > from: // only the base has something here
			end = min(b.offset+b.length, t.offset)
			out = appendPiece(out, from, end-from)
		case b.offset > from:
			end = min(t.offset+t.length, b.offset)
			out = appendPiece(out, from, end-from)
		default:
			end = min(b.offset+b.length, t.offset+t.length)
			if b.physical+from-b.offset != t.physical+from-t.offset {
				out = appendPiece(out, from, end-from)
			}
		}
		at = end
		base, target = behind(base, at), behind(target, at)
	}
	return out
}

// first is the first extent of a list, one that is never reached if there is none.
func first(list []extent) extent {
	if len(list) == 0 {
		return extent{offset: 1 << 62}
	}
	return list[0]
}

func behind(list []extent, at int64) []extent {
	if len(list) > 0 && list[0].offset+list[0].length <= at {
		return list[1:]
	}
	return list
}
