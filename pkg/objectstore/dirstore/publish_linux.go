package dirstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// publish writes body and gives it the name path, or fails with fs.ErrExist if
// that name is taken. A crash leaves nothing where the file system knows files
// without a name (O_TMPFILE), else one hidden file.
func publish(path string, body []byte) error {
	fd, err := unix.Open(filepath.Dir(path), unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o666)
	if err != nil {
		return publishNamed(path, body, rename)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	if err := fill(f, body); err != nil {
		return err
	}
	// The way to name such a file without a capability: open(2), O_TMPFILE.
	proc := fmt.Sprintf("/proc/self/fd/%d", fd)
	err = unix.Linkat(unix.AT_FDCWD, proc, unix.AT_FDCWD, path, unix.AT_SYMLINK_FOLLOW)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return publishNamed(path, body, rename)
	}
	return err
}

// rename is for file systems without hard links (vfat, exfat, some shares).
func rename(from, to string) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
}
