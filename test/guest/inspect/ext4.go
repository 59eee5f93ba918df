package inspect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vmstate/vmstate/test/guest/tool"
)

// ext4 is a private copy of an ext4 file system, its journal replayed as a mount
// would have done it.
type ext4 string

// copyVolume copies the file system in path, a file or a block device, to out.
func copyVolume(ctx context.Context, out, path string) (ext4, error) {
	if err := tool.Run(tool.Command(ctx, "cp", "--sparse=always", path, out)); err != nil {
		return "", err
	}
	return checkVolume(ctx, out)
}

// checkVolume replays the journal of the file system in path.
func checkVolume(ctx context.Context, path string) (ext4, error) {
	const corrected, correctedReboot = 1, 2
	if err := tool.Run(tool.Command(ctx, "e2fsck", "-fy", path), corrected, correctedReboot); err != nil {
		return "", err
	}
	return ext4(path), nil
}

// read returns a file of the root folder; fs.ErrNotExist if it is not there.
func (e ext4) read(ctx context.Context, name string) ([]byte, error) {
	out := filepath.Join(filepath.Dir(string(e)), "read-"+name)
	if err := e.dump(ctx, name, out); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

// dump copies a file to out; fs.ErrNotExist if it is not there. debugfs itself ends
// well in both cases.
func (e ext4) dump(ctx context.Context, name, out string) error {
	if err := e.debugfs(ctx, fmt.Sprintf("dump %s %s", name, out)); err != nil {
		return err
	}
	if _, err := os.Stat(out); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return nil
}

// dumpTree copies a folder, where there is one, into the folder root.
func (e ext4) dumpTree(ctx context.Context, name, root string) error {
	return e.debugfs(ctx, fmt.Sprintf("rdump %s %s", name, root))
}

func (e ext4) debugfs(ctx context.Context, request string) error {
	return tool.Run(tool.Command(ctx, "debugfs", "-R", request, string(e)))
}
