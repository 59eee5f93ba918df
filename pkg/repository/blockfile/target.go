package blockfile

import (
	"errors"
	"fmt"
	"iter"
	"os"
)

// Target is a disk to be written and read back. It may be used by several goroutines.
type Target struct {
	file         *os.File
	direct       *os.File // nil where the filesystem has no direct access
	size         int64
	logicalBlock int
	device       bool
	rest         int64 // bytes of a device behind size
}

// ErrTooSmall: a device or file has fewer bytes than it must take.
var ErrTooSmall = errors.New("target is too small")

// Create makes a new sparse file of size bytes, which reads as zeros. An existing
// file is an error that is fs.ErrExist.
func Create(path string, size int64) (*Target, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o660)
	if err != nil {
		return nil, err
	}
	if err := makeSparse(f); err != nil {
		return nil, errors.Join(fmt.Errorf("make %q sparse: %w", path, err), f.Close())
	}
	if err := f.Truncate(size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Target{file: f, direct: openDirect(path, os.O_RDWR), size: size}, nil
}

// OpenTarget opens an existing file or device to take size bytes. A file is grown to
// that or cut to it; of a larger device the rest is left alone. ErrTooSmall for a
// smaller device.
func OpenTarget(path string, size int64) (*Target, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	t := &Target{file: f, size: size}
	var have int64
	if have, t.logicalBlock, t.device, err = measure(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	switch {
	case t.device && have > size:
		t.rest = have - size
	case t.device && have < size:
		err = fmt.Errorf("%w: %q has %d bytes, %d are needed", ErrTooSmall, path, have, size)
	case !t.device && have != size:
		err = f.Truncate(size)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	t.direct = openDirect(path, os.O_RDWR)
	return t, nil
}

// Rest is how many bytes a device has behind what is taken of it; they are left alone.
func (t *Target) Rest() int64 { return t.rest }

// LogicalBlockSize of a device in bytes, 0 for a file.
func (t *Target) LogicalBlockSize() int { return t.logicalBlock }

// WriteAt is io.WriterAt. What is aligned goes past the page cache, which saves a
// copy and leaves the node's memory alone.
func (t *Target) WriteAt(p []byte, off int64) (int, error) {
	if t.direct != nil && aligned(p, off) {
		return t.direct.WriteAt(p, off)
	}
	return t.file.WriteAt(p, off)
}

// ReadAt is io.ReaderAt. It reads what the disk has: past the page cache, or after
// Sync has emptied that.
func (t *Target) ReadAt(p []byte, off int64) (int, error) {
	if t.direct != nil && aligned(p, off) {
		return t.direct.ReadAt(p, off)
	}
	return t.file.ReadAt(p, off)
}

// Extents yields what of [from, to) may hold anything but zeros: what a file has
// allocated there; all of it for a device, which does not tell.
func (t *Target) Extents(from, to int64) iter.Seq2[Extent, error] {
	if t.device {
		return all(from, to)
	}
	return extents(t.file, from, to)
}

// Zero makes a range read as zeros: by a hole in a file, by the device's own means
// where it has such, by writing zeros otherwise. A discard alone would prove nothing.
func (t *Target) Zero(off, length int64) error {
	if length <= 0 {
		return nil
	}
	if zeroRange(t.file, t.device, off, length) == nil {
		return nil
	}
	return t.writeZeros(off, length)
}

func (t *Target) writeZeros(off, length int64) error {
	zeros := make([]byte, min(length, 1<<20))
	for length > 0 {
		n, err := t.file.WriteAt(zeros[:min(length, int64(len(zeros)))], off)
		if err != nil {
			return err
		}
		off, length = off+int64(n), length-int64(n)
	}
	return nil
}

// Sync makes everything written durable and forgets what the page cache holds of
// it, so that reads come from the disk.
func (t *Target) Sync() error {
	if err := datasync(t.file); err != nil {
		return fmt.Errorf("sync %q: %w", t.file.Name(), err)
	}
	forget(t.file, 0, 0)
	return nil
}

// Close syncs and closes.
func (t *Target) Close() error {
	err := errors.Join(t.file.Sync(), t.file.Close())
	if t.direct != nil {
		err = errors.Join(err, t.direct.Close())
	}
	return err
}
