package firmware

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var (
	// ErrNotEmpty is a target folder that holds something.
	ErrNotEmpty = errors.New("target folder is not empty")
	// ErrOwner is a file that may not be given its recorded owner or mode.
	ErrOwner = errors.New("recorded owner or mode cannot be set")
	// ErrDiffers is a written tree that reads back as another one.
	ErrDiffers = errors.New("written state reads back differently")
)

// Owners says what becomes of the recorded numeric owners.
type Owners string

const (
	// OwnersKeep gives every file its recorded owner, or fails with ErrOwner.
	OwnersKeep Owners = "Keep"
	// OwnersCaller leaves the files to whoever runs us, for a person's folder.
	OwnersCaller Owners = "Caller"
)

// Existing says what becomes of files that are already in the target.
type Existing string

const (
	// ExistingRefuse fails with ErrNotEmpty; lost+found does not count.
	ExistingRefuse Existing = "Refuse"
	// ExistingRemove clears the target first: for a volume that is ours alone, when
	// a restore starts again.
	ExistingRemove Existing = "Remove"
)

// WriteOptions are the choices of Write; the zero value is the strictest.
type WriteOptions struct {
	Owners   Owners   // default OwnersKeep
	Existing Existing // default ExistingRefuse
}

// Write puts t below the existing folder root, with modes, times, attributes and
// owners, and returns when all of it is on stable storage. It follows no link.
// Errors: ErrBadTree, ErrNotEmpty, ErrOwner, or the file system's with the path.
func Write(root string, t Tree, o WriteOptions) error {
	if err := t.Validate(); err != nil {
		return err
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return fmt.Errorf("open target folder: %w", err)
	}
	defer dir.Close()
	if err := clearTarget(dir, o.Existing); err != nil {
		return err
	}
	for _, e := range t.Entries {
		if err := writeEntry(dir, e, o.Owners); err != nil {
			return fmt.Errorf("write %q: %w", e.Path, err)
		}
	}
	// Directories last: a recorded mode may forbid writing into them.
	for i := len(t.Entries) - 1; i >= 0; i-- {
		if e := t.Entries[i]; e.Type == TypeDirectory {
			if err := finish(dir, e, o.Owners); err != nil {
				return fmt.Errorf("write %q: %w", e.Path, err)
			}
		}
	}
	return syncVolume(dir)
}

func clearTarget(dir *os.Root, existing Existing) error {
	f, err := dir.Open(".")
	if err != nil {
		return fmt.Errorf("list target folder: %w", err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list target folder: %w", err)
	}
	for _, name := range names {
		if name == "lost+found" {
			continue
		}
		if existing != ExistingRemove {
			return fmt.Errorf("%w: it holds %q", ErrNotEmpty, name)
		}
		if err := dir.RemoveAll(name); err != nil {
			return fmt.Errorf("clear target folder: %w", err)
		}
	}
	return nil
}

func writeEntry(dir *os.Root, e Entry, owners Owners) error {
	if e.Type == TypeDirectory {
		return dir.Mkdir(e.Path, 0o700)
	}
	f, err := dir.OpenFile(e.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(e.Content); err != nil {
		return err
	}
	if err := describe(f, e, owners); err != nil {
		return err
	}
	mtime := time.Unix(0, e.ModTime)
	if err := dir.Chtimes(e.Path, mtime, mtime); err != nil {
		return err
	}
	return f.Sync()
}

func finish(dir *os.Root, e Entry, owners Owners) error {
	f, err := dir.Open(e.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := describe(f, e, owners); err != nil {
		return err
	}
	return f.Sync()
}

// describe sets owner, mode and attributes. The mode comes after the owner, since
// chown clears setuid bits; it is read back, since the kernel drops setgid
// without an error where the group is not ours.
func describe(f *os.File, e Entry, owners Owners) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	st := info.Sys().(*syscall.Stat_t)
	if owners != OwnersCaller && (st.Uid != e.UID || st.Gid != e.GID) {
		if err := f.Chown(int(e.UID), int(e.GID)); err != nil {
			return fmt.Errorf("%w: owner %d:%d instead of %d:%d needs that user or root: %w", ErrOwner, e.UID, e.GID, st.Uid, st.Gid, err)
		}
	}
	if err := writeXattrs(f, e.Xattrs); err != nil {
		return err
	}
	if err := unix.Fchmod(int(f.Fd()), e.Mode); err != nil {
		return fmt.Errorf("%w: mode %04o: %w", ErrOwner, e.Mode, err)
	}
	if info, err = f.Stat(); err != nil {
		return err
	}
	got := info.Sys().(*syscall.Stat_t).Mode & 0o7777
	if owners != OwnersCaller && got != e.Mode {
		return fmt.Errorf("%w: mode %04o became %04o", ErrOwner, e.Mode, got)
	}
	return nil
}

func syncVolume(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return fmt.Errorf("sync target folder: %w", err)
	}
	defer f.Close()
	if err := errors.Join(f.Sync(), unix.Syncfs(int(f.Fd()))); err != nil {
		return fmt.Errorf("sync target folder: %w", err)
	}
	return nil
}

// Sync brings what was written into the volume at root so far to stable storage:
// swtpm and the firmware do not, and a block snapshot sees stable storage only.
func Sync(root string) error {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return fmt.Errorf("open state volume: %w", err)
	}
	defer dir.Close()
	f, err := dir.Open(".")
	if err != nil {
		return fmt.Errorf("sync state volume: %w", err)
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync state volume: %w", err)
	}
	return nil
}

// Verify reads root back and compares it with t, owners included unless they were
// left to the caller. The error is ErrDiffers and names the first difference.
func Verify(ctx context.Context, root string, t Tree, owners Owners) error {
	s, err := Read(ctx, root, Limits{MaxBytes: t.Bytes() + 1<<20})
	if err != nil {
		return err
	}
	got := s.Tree
	for _, e := range t.Entries {
		g, ok := got.Find(e.Path)
		if ok && owners == OwnersCaller {
			g.UID, g.GID, g.Mode = e.UID, e.GID, e.Mode
		}
		if !ok || (Tree{Entries: []Entry{g}}).Digest() != (Tree{Entries: []Entry{e}}).Digest() {
			return fmt.Errorf("%w: %q", ErrDiffers, e.Path)
		}
	}
	for _, g := range got.Entries {
		if _, ok := t.Find(g.Path); !ok {
			return fmt.Errorf("%w: %q is there and was not written", ErrDiffers, g.Path)
		}
	}
	return nil
}
