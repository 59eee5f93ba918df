package dirstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

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
	if err := fill(f, body[writeDirect(fd, body):]); err != nil {
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

const (
	// directAlign is what memory, place and length of a direct write must be a
	// multiple of.
	directAlign = 4096
	// directLeast is from where on it is worth it.
	directLeast = 1 << 20
)

// writeDirect writes as much of a large body as can go past the page cache, which
// saves the copy and leaves the node's memory alone, and returns how much that was. An
// error ends it early: whoever writes the rest will meet it again.
func writeDirect(fd int, body []byte) int {
	whole := len(body) / directAlign * directAlign
	if whole < directLeast || uintptr(unsafe.Pointer(unsafe.SliceData(body)))%directAlign != 0 {
		return 0
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return 0
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_DIRECT); err != nil {
		return 0 // this file system has no direct access
	}
	done := 0
	for done < whole && done%directAlign == 0 {
		n, err := unix.Write(fd, body[done:whole])
		if err != nil {
			break
		}
		done += n
	}
	// Without this the rest, which is not aligned, would be refused.
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags)
	return done
}
