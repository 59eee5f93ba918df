// Package blockfile reads and writes disks that are files or block devices: holes
// are found where the kernel tells of them, zeros are made without writing them, and
// the page cache of the node is left as it was. That is on Linux; elsewhere files are
// read and written plainly, and only found and made sparse where that is easy.
package blockfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"sync/atomic"
)

// Extent is a range that may hold data.
type Extent struct {
	Offset, Length int64
}

// Source is a disk to be read. It may be read by several goroutines.
type Source struct {
	file         *os.File
	direct       *os.File // nil where the filesystem has no direct access
	size         int64
	logicalBlock int
	device       bool
	dropped      atomic.Int64
}

// dropEvery is how many bytes are read before the page cache is told to forget them.
const dropEvery = 8 << 20

// Open opens a regular file or a block device for reading.
func Open(path string) (*Source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s := &Source{file: f}
	if s.size, s.logicalBlock, s.device, err = measure(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	inOrder(f)
	s.direct = openDirect(path, os.O_RDONLY)
	return s, nil
}

// measure returns the size of a file or device, and the sector size of a device.
func measure(f *os.File) (size int64, logicalBlock int, device bool, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, false, err
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return info.Size(), 0, false, nil
	case mode&fs.ModeDevice != 0 && mode&fs.ModeCharDevice == 0:
	default:
		return 0, 0, false, fmt.Errorf("%q is neither a regular file nor a block device", f.Name())
	}
	if logicalBlock, err = sectorSize(f); err != nil {
		return 0, 0, false, fmt.Errorf("sector size of %q: %w", f.Name(), err)
	}
	size, err = f.Seek(0, io.SeekEnd)
	return size, logicalBlock, true, err
}

// Size in bytes.
func (s *Source) Size() int64 { return s.size }

// LogicalBlockSize of a device in bytes, 0 for a file.
func (s *Source) LogicalBlockSize() int { return s.logicalBlock }

// ReadAt is io.ReaderAt. What is aligned is read past the page cache, which saves a
// copy and leaves the node's memory alone; the rest is dropped from it afterwards.
func (s *Source) ReadAt(p []byte, off int64) (int, error) {
	whole := len(p) / directAlign * directAlign
	if s.direct == nil || !aligned(p[:whole], off) {
		return s.buffered(p, off)
	}
	n, err := s.direct.ReadAt(p[:whole], off)
	if err != nil || n < whole || whole == len(p) {
		return n, err
	}
	rest, err := s.buffered(p[whole:], off+int64(whole))
	return whole + rest, err
}

func (s *Source) buffered(p []byte, off int64) (int, error) {
	n, err := s.file.ReadAt(p, off)
	from := s.dropped.Load()
	if end := off + int64(n); end-from >= dropEvery && s.dropped.CompareAndSwap(from, end) {
		forget(s.file, from, end-from)
	}
	return n, err
}

// Extents yields what a file has allocated. A block device tells nothing of that,
// so all of it is one extent.
func (s *Source) Extents() iter.Seq2[Extent, error] {
	if s.device {
		return all(0, s.size)
	}
	return extents(s.file, 0, s.size)
}

// Close closes the file.
func (s *Source) Close() error {
	if s.direct != nil {
		return errors.Join(s.direct.Close(), s.file.Close())
	}
	return s.file.Close()
}
