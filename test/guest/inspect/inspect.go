// Package inspect reads a guest's generations from its volumes, without booting and
// within a second. It works on private copies only; what it is given is opened
// for reading.
//
// A disk is a raw image, a block device, or an ext4 volume with disk.img at its
// root. A state is a folder, or an ext4 volume (image file or block device), laid
// out as package statefolder says.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vmstate/vmstate/test/guest/generation"
	"github.com/vmstate/vmstate/test/guest/statefolder"
)

// diskFile is KubeVirt's name of a disk image on a file system volume.
const diskFile = "disk.img"

// Packages returns the Debian packages that Read needs.
func Packages() []string { return []string{"e2fsprogs", "swtpm"} }

// Read returns what the three places hold; a nil place holds nothing.
func Read(ctx context.Context, disk, state string) (generation.Reading, error) {
	work, err := os.MkdirTemp("", "vmstate-inspect-")
	if err != nil {
		return generation.Reading{}, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	var r generation.Reading
	if r.Disk, err = readDisk(ctx, work, disk); err != nil {
		return r, fmt.Errorf("disk %s: %w", disk, err)
	}
	paths, err := statePaths(ctx, work, state)
	if err != nil {
		return r, fmt.Errorf("state %s: %w", state, err)
	}
	if paths.TPMDir != "" {
		if r.TPM, err = readTPM(ctx, work, filepath.Join(paths.TPMDir, statefolder.TPMFile)); err != nil {
			return r, fmt.Errorf("TPM state %s: %w", paths.TPMDir, err)
		}
	}
	if paths.Vars != "" {
		if r.EFI, err = readVars(paths.Vars); err != nil {
			return r, fmt.Errorf("EFI variables %s: %w", paths.Vars, err)
		}
	}
	return r, nil
}

// statePaths finds the state in a folder, or in a volume's files copied to work.
func statePaths(ctx context.Context, work, state string) (statefolder.Paths, error) {
	info, err := os.Stat(state)
	if err != nil {
		return statefolder.Paths{}, err
	}
	if info.IsDir() {
		return statefolder.Find(state)
	}
	volume, err := copyVolume(ctx, filepath.Join(work, "state.ext4"), state)
	if err != nil {
		return statefolder.Paths{}, err
	}
	root := filepath.Join(work, "state")
	if err := os.Mkdir(root, 0o700); err != nil {
		return statefolder.Paths{}, err
	}
	for _, dir := range []string{"swtpm", "nvram"} {
		if err := volume.dumpTree(ctx, dir, root); err != nil {
			return statefolder.Paths{}, err
		}
	}
	return statefolder.Find(root)
}

func readVars(path string) (*generation.Mark, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	value, err := efiVariable(b, generation.EFIName, generation.EFIGUID)
	if errors.Is(err, errNoVariable) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := generation.DecodeEFI(value)
	return &m, err
}
