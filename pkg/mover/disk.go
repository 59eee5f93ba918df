package mover

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
)

// imageName is the file that KubeVirt keeps a disk in on a Filesystem volume.
const imageName = "disk.img"

// diskPath is where d is mounted: an image in a folder, or a device.
func diskPath(p Paths, d config.Disk) (string, error) {
	if d.Name == "" || filepath.Base(d.Name) != d.Name || d.Name == ".." {
		return "", fmt.Errorf("%w: volume name %q", ErrTask, d.Name)
	}
	switch d.Mode {
	case config.Filesystem:
		return filepath.Join(p.Volumes, d.Name, imageName), nil
	case config.Block:
		return filepath.Join(p.Devices, d.Name), nil
	default:
		return "", fmt.Errorf("%w: volume mode %q", ErrTask, d.Mode)
	}
}

// openDisk opens what must be an image or a device, and tells its size and, for a
// device, its logical block size.
func openDisk(path string, flags int, mode config.Mode) (f *os.File, size int64, sector int, err error) {
	f, err = os.OpenFile(path, flags, 0)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrVolume, err)
	}
	if err != nil {
		return nil, 0, 0, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, 0, err
	}
	if isDevice := info.Mode().Type() == os.ModeDevice; !isDevice && !info.Mode().IsRegular() || isDevice != (mode == config.Block) {
		return nil, 0, 0, fmt.Errorf("%w: %q is of type %q, the volume's mode is %s", ErrVolume, path, info.Mode().Type(), mode)
	}
	if mode == config.Block {
		if sector, err = unix.IoctlGetInt(int(f.Fd()), unix.BLKSSZGET); err != nil {
			return nil, 0, 0, fmt.Errorf("logical block size: %w", err)
		}
	}
	size, err = f.Seek(0, 2)
	return f, size, sector, err
}

// sourceDisk is a disk to be exported, open for reading alone.
type sourceDisk struct {
	file   *os.File
	config config.Disk
	size   int64
	sector int
	// dropped is up to where the page cache was told to forget what was read.
	dropped int64
}

func openSource(p Paths, d config.Disk) (*sourceDisk, error) {
	path, err := diskPath(p, d)
	if err != nil {
		return nil, err
	}
	f, size, sector, err := openDisk(path, os.O_RDONLY, d.Mode)
	if err != nil {
		return nil, err
	}
	if size == 0 || d.Mode == config.Block && size < d.SizeBytes {
		f.Close()
		return nil, fmt.Errorf("%w: %q has %d bytes, its claim %d", ErrVolume, path, size, d.SizeBytes)
	}
	_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_SEQUENTIAL) // advice
	return &sourceDisk{file: f, config: d, size: size, sector: sector}, nil
}

func (d *sourceDisk) Close() { d.file.Close() }

func (d *sourceDisk) volume() repository.BlockVolume {
	v := repository.BlockVolume{
		Name: d.config.Name, Role: RoleDisk, Mode: string(d.config.Mode),
		Size: d.size, LogicalBlockSize: d.sector, Source: d,
	}
	if d.config.Mode == config.Filesystem {
		v.Extents = d.extents()
	}
	return v
}

// dropEvery is how much is read before the page cache is told to forget it. What is
// read here is not needed again, and a whole disk would push out everything else.
const dropEvery = 32 << 20

func (d *sourceDisk) ReadAt(p []byte, offset int64) (int, error) {
	n, err := d.file.ReadAt(p, offset)
	if end := offset + int64(n); end-d.dropped >= dropEvery {
		_ = unix.Fadvise(int(d.file.Fd()), d.dropped, end-d.dropped, unix.FADV_DONTNEED) // advice
		d.dropped = end
	}
	return n, err
}

// extents are the ranges that the file system has blocks for.
func (d *sourceDisk) extents() iter.Seq2[repository.Extent, error] {
	return func(yield func(repository.Extent, error) bool) {
		for at := int64(0); at < d.size; {
			e, err := nextExtent(int(d.file.Fd()), at, d.size)
			if err != nil {
				yield(repository.Extent{}, err)
				return
			}
			if e.Length == 0 || !yield(e, nil) {
				return
			}
			at = e.Offset + e.Length
		}
	}
}

// nextExtent is the first range with data from at on; of no length if there is none.
func nextExtent(fd int, at, size int64) (repository.Extent, error) {
	start, err := unix.Seek(fd, at, unix.SEEK_DATA)
	if errors.Is(err, unix.ENXIO) { // nothing but a hole to the end
		return repository.Extent{}, nil
	}
	if err != nil {
		return repository.Extent{}, fmt.Errorf("find data from %d: %w", at, err)
	}
	end, err := unix.Seek(fd, start, unix.SEEK_HOLE)
	if err != nil {
		return repository.Extent{}, fmt.Errorf("find hole from %d: %w", start, err)
	}
	return repository.Extent{Offset: start, Length: min(end, size) - start}, nil
}
