package mover

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/blockfile"
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

// checkKind makes sure that path is what the volume's mode promises: the two are
// neither read nor filled in the same way.
func checkKind(path string, mode config.Mode) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrVolume, err)
	}
	if err != nil {
		return err
	}
	if device := info.Mode().Type() == fs.ModeDevice; device != (mode == config.Block) || !device && !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %q is of type %q, the volume's mode is %s", ErrVolume, path, info.Mode().Type(), mode)
	}
	return nil
}

// sourceDisk is a disk to be exported, open for reading alone.
type sourceDisk struct {
	*blockfile.Source
	config config.Disk
}

func openSource(p Paths, d config.Disk) (*sourceDisk, error) {
	path, err := diskPath(p, d)
	if err != nil {
		return nil, err
	}
	if err := checkKind(path, d.Mode); err != nil {
		return nil, err
	}
	source, err := blockfile.Open(path)
	if err != nil {
		return nil, err
	}
	if size := source.Size(); size == 0 || d.Mode == config.Block && size < d.SizeBytes {
		source.Close()
		return nil, fmt.Errorf("%w: %q has %d bytes, its claim %d", ErrVolume, path, size, d.SizeBytes)
	}
	return &sourceDisk{source, d}, nil
}

func (d *sourceDisk) volume() repository.BlockVolume {
	return repository.BlockVolume{
		Name: d.config.Name, Role: RoleDisk, Mode: string(d.config.Mode),
		Size: d.Size(), LogicalBlockSize: d.LogicalBlockSize(), Source: d, Extents: d.Extents(),
	}
}

// targetDisk is a disk to be filled: a sparse image, or a device.
type targetDisk struct {
	*blockfile.Target
	// fresh says that all of it reads as zeros; otherwise it is restored in place.
	fresh bool
}

// openTarget opens d for a disk of the backup. What an earlier try has left is kept
// and compared, so that it is not fetched again. A device must be large enough, and what
// it has behind the disk is zeroed: the guest will see it.
func openTarget(p Paths, d config.Disk, v repository.VolumeResult) (*targetDisk, error) {
	path, err := diskPath(p, d)
	if err != nil {
		return nil, err
	}
	if d.Mode == config.Filesystem {
		return makeImage(path, v)
	}
	if err := checkKind(path, d.Mode); err != nil {
		return nil, err
	}
	return openDevice(path, v.Size)
}

func openDevice(path string, size int64) (*targetDisk, error) {
	whole, err := blockfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer whole.Close()
	target, err := blockfile.OpenTarget(path, size)
	if errors.Is(err, blockfile.ErrTooSmall) {
		return nil, fmt.Errorf("%w: %w", ErrVolume, err)
	}
	if err != nil {
		return nil, err
	}
	if err := target.Zero(size, whole.Size()-size); err != nil {
		target.Close()
		return nil, fmt.Errorf("zero what %q has behind %d bytes: %w", path, size, err)
	}
	return &targetDisk{Target: target}, nil
}

// imagePermissions are those that KubeVirt gives an image that it makes.
const imagePermissions = 0o660

func makeImage(path string, v repository.VolumeResult) (*targetDisk, error) {
	dir := filepath.Dir(path)
	var volume unix.Statfs_t
	if err := unix.Statfs(dir, &volume); err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrVolume, dir, err)
	}
	if has := int64(volume.Blocks) * volume.Bsize; has < v.UsedBytes {
		return nil, fmt.Errorf("%w: the claim holds %d bytes, the backup needs %d", ErrVolume, has, v.UsedBytes)
	}
	begun, err := isBegun(path, v.Size)
	if err != nil {
		return nil, err
	}
	open := blockfile.Create
	if begun {
		open = blockfile.OpenTarget
	}
	target, err := open(path, v.Size)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chmod(path, imagePermissions), syncDir(dir)); err != nil {
		target.Close()
		return nil, err
	}
	return &targetDisk{Target: target, fresh: !begun}, nil
}

// isBegun tells whether path is an image of that size, as an earlier try leaves it.
// Anything else there is removed.
func isBegun(path string, size int64) (bool, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || info.Mode().IsRegular() && info.Size() == size {
		return err == nil, err
	}
	return false, os.Remove(path)
}

// syncDir makes the names in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
