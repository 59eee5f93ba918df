package mover

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
)

// targetDisk is a disk to be filled: a sparse image, or a device.
type targetDisk struct {
	file *os.File
	mode config.Mode
	// fresh says that all of it reads as zeros.
	fresh bool
}

// openTarget opens d for a disk of the backup. An image is made anew, whatever an earlier try
// has left; a device must be large enough, and what it has behind size is zeroed: the
// guest will see it.
func openTarget(p Paths, d config.Disk, v repository.VolumeResult) (*targetDisk, error) {
	path, err := diskPath(p, d)
	if err != nil {
		return nil, err
	}
	if d.Mode == config.Filesystem {
		return makeImage(path, v)
	}
	size := v.Size
	f, has, _, err := openDisk(path, os.O_RDWR, d.Mode)
	if err != nil {
		return nil, err
	}
	t := &targetDisk{file: f, mode: d.Mode}
	switch {
	case has < size:
		err = fmt.Errorf("%w: %q has %d bytes, the backup needs %d", ErrVolume, path, has, size)
	case has > size:
		err = t.Zero(size, has-size)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return t, nil
}

// imagePermissions are those that KubeVirt gives an image that it makes.
const imagePermissions = 0o660

func makeImage(path string, v repository.VolumeResult) (*targetDisk, error) {
	var volume unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &volume); err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrVolume, filepath.Dir(path), err)
	}
	if has := int64(volume.Blocks) * volume.Bsize; has < v.UsedBytes {
		return nil, fmt.Errorf("%w: the claim holds %d bytes, the backup needs %d", ErrVolume, has, v.UsedBytes)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, imagePermissions)
	if err != nil {
		return nil, err
	}
	err = errors.Join(f.Chmod(imagePermissions), f.Truncate(v.Size))
	if err != nil {
		f.Close()
		return nil, err
	}
	return &targetDisk{file: f, mode: config.Filesystem, fresh: true}, nil
}

func (t *targetDisk) Close() error { return t.file.Close() }

func (t *targetDisk) WriteAt(p []byte, offset int64) (int, error) {
	return t.file.WriteAt(p, offset)
}

// ReadAt reads back from the storage where Sync has gone before: that has dropped
// what was cached.
func (t *targetDisk) ReadAt(p []byte, offset int64) (int, error) {
	return t.file.ReadAt(p, offset)
}

// Zero makes a range read as zeros by the cheapest way that proves it: a discard
// alone does not, on devices.
func (t *targetDisk) Zero(offset, length int64) error {
	if length == 0 {
		return nil
	}
	var err error
	if t.mode == config.Block {
		err = zeroOut(t.file, offset, length)
	} else {
		err = unix.Fallocate(int(t.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, offset, length)
	}
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOTTY) {
		return fmt.Errorf("zero %d bytes at %d: %w", length, offset, err)
	}
	return t.writeZeros(offset, length)
}

// zeroOut asks the kernel to zero a range of a device, by writing if need be.
func zeroOut(f *os.File, offset, length int64) error {
	r := [2]uint64{uint64(offset), uint64(length)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKZEROOUT, uintptr(unsafe.Pointer(&r)))
	if errno != 0 {
		return errno
	}
	return nil
}

func (t *targetDisk) writeZeros(offset, length int64) error {
	zeros := make([]byte, 1<<20)
	for length > 0 {
		n := min(length, int64(len(zeros)))
		if _, err := t.file.WriteAt(zeros[:n], offset); err != nil {
			return err
		}
		offset, length = offset+n, length-n
	}
	return nil
}

// Sync makes everything durable, name included, and drops it from the page cache, so
// that it is read back from the storage.
func (t *targetDisk) Sync() error {
	if err := t.file.Sync(); err != nil {
		return err
	}
	_ = unix.Fadvise(int(t.file.Fd()), 0, 0, unix.FADV_DONTNEED) // advice
	if t.mode == config.Block {
		return nil
	}
	dir, err := os.Open(filepath.Dir(t.file.Name()))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}
