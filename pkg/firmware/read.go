package firmware

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Limits bounds what Read takes from a volume; a zero field means its default.
type Limits struct {
	// MaxBytes is the most that all files may hold together; default 256 MiB.
	MaxBytes int64
	// MaxEntries is the most files and directories; default 4096.
	MaxEntries int
	// Attempts is how often the volume is read anew because something changed
	// while it was read; default 20, some milliseconds apart.
	Attempts int
}

const (
	// DefaultMaxBytes bounds a state volume: KubeVirt makes them 10 MiB large.
	DefaultMaxBytes   = 256 << 20
	defaultMaxEntries = 4096
	defaultAttempts   = 20
	attemptPause      = 5 * time.Millisecond
)

var (
	// ErrTooLarge is a volume beyond Limits.
	ErrTooLarge = errors.New("state volume is too large")
	// ErrUnsettled is a volume that changed during every attempt to read it.
	ErrUnsettled = errors.New("state volume kept changing while it was read")
)

// errMoved is one attempt that met a change; the next attempt may not.
var errMoved = errors.New("changed while it was read")

// Skip is something in a volume that is not part of its firmware state.
type Skip struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Snapshot is a state volume as it was at one instant, as far as files can tell:
// every file and every name was the same before the first byte was read and after
// the last.
type Snapshot struct {
	Tree    Tree
	Reading Reading
	Skipped []Skip
}

// Read reads the volume mounted at root. It opens nothing for writing, follows no
// link and leaves the volume. Errors are ErrTooLarge, ErrUnsettled, or the file
// system's own with the path in it.
func Read(ctx context.Context, root string, limits Limits) (Snapshot, error) {
	return read(ctx, root, limits, readNode)
}

// Look is Read without the contents: it digests them, in little memory.
func Look(ctx context.Context, root string, limits Limits) (Reading, error) {
	s, err := read(ctx, root, limits, digestNode)
	return s.Reading, err
}

// visitor reads one node. The digest is empty for a directory.
type visitor func(dir *os.Root, n node) (e Entry, digest string, err error)

func read(ctx context.Context, root string, limits Limits, visit visitor) (Snapshot, error) {
	limits = limits.withDefaults()
	dir, err := os.OpenRoot(root)
	if err != nil {
		return Snapshot{}, fmt.Errorf("open state volume: %w", err)
	}
	defer dir.Close()
	for range limits.Attempts {
		var s Snapshot
		if s, err = readOnce(dir, limits, visit); !errors.Is(err, errMoved) {
			return s, err
		}
		select {
		case <-ctx.Done():
			return Snapshot{}, ctx.Err()
		case <-time.After(attemptPause):
		}
	}
	return Snapshot{}, fmt.Errorf("%w: %d attempts, the last one: %w", ErrUnsettled, limits.Attempts, err)
}

func (l Limits) withDefaults() Limits {
	if l.MaxBytes == 0 {
		l.MaxBytes = DefaultMaxBytes
	}
	if l.MaxEntries == 0 {
		l.MaxEntries = defaultMaxEntries
	}
	if l.Attempts == 0 {
		l.Attempts = defaultAttempts
	}
	return l
}

// node is one name with what lstat says about it.
type node struct {
	path  string
	mode  fs.FileMode
	bits  uint32
	uid   uint32
	gid   uint32
	inode uint64
	ctime int64
	mtime int64
	size  int64
}

func readOnce(dir *os.Root, limits Limits, visit visitor) (Snapshot, error) {
	before := scanner{root: dir, limits: limits}
	if err := before.walk("."); err != nil {
		return Snapshot{}, err
	}
	s := Snapshot{Skipped: before.skipped, Tree: Tree{Entries: make([]Entry, 0, len(before.nodes))}}
	for _, n := range before.nodes {
		e, digest, err := visit(dir, n)
		if err != nil {
			return Snapshot{}, err
		}
		s.Tree.Entries = append(s.Tree.Entries, e)
		if n.mode.IsRegular() {
			s.Reading.Files = append(s.Reading.Files, FileReading{
				Path: n.path, Inode: n.inode, ChangeTime: n.ctime, Size: n.size, Digest: digest,
			})
		}
	}
	after := scanner{root: dir, limits: limits}
	if err := after.walk("."); err != nil {
		return Snapshot{}, err
	}
	if !slices.Equal(before.nodes, after.nodes) {
		return Snapshot{}, fmt.Errorf("files of the volume %w", errMoved)
	}
	return s, nil
}

// scanner lists the names below root in path order, without what is skipped.
type scanner struct {
	root    *os.Root
	limits  Limits
	nodes   []node
	skipped []Skip
	bytes   int64
}

func (s *scanner) walk(dir string) error {
	if err := s.list(dir); err != nil {
		return err
	}
	slices.SortFunc(s.nodes, func(a, b node) int { return strings.Compare(a.path, b.path) })
	slices.SortFunc(s.skipped, func(a, b Skip) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

func (s *scanner) list(dir string) error {
	f, err := s.root.Open(dir)
	if err != nil {
		return moved(dir, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return moved(dir, err)
	}
	for _, name := range names {
		if err := s.visit(path.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) visit(p string) error {
	if why := skipName(p); why != "" {
		s.skipped = append(s.skipped, Skip{Path: p, Why: why})
		return nil
	}
	info, err := s.root.Lstat(p)
	if err != nil {
		return moved(p, err)
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		s.skipped = append(s.skipped, Skip{Path: p, Why: "neither a file nor a directory"})
		return nil
	}
	n := nodeOf(p, info)
	s.nodes = append(s.nodes, n)
	s.bytes += n.size
	switch {
	case len(s.nodes) > s.limits.MaxEntries:
		return fmt.Errorf("%w: more than %d files and directories", ErrTooLarge, s.limits.MaxEntries)
	case s.bytes > s.limits.MaxBytes:
		return fmt.Errorf("%w: more than %d bytes, of which %q has %d", ErrTooLarge, s.limits.MaxBytes, p, n.size)
	case info.IsDir():
		return s.list(p)
	}
	return nil
}

// skipName tells by its name alone what is not firmware state.
func skipName(p string) string {
	base := path.Base(p)
	switch {
	case p == "lost+found":
		return "belongs to the file system"
	case p == "cbt":
		return "changed block tracking of the disks, not firmware state"
	case base == ".lock" || strings.HasPrefix(base, ".lock."):
		return "lock file"
	case strings.HasPrefix(p, "swtpm/") && strings.HasPrefix(base, "TMP2-"):
		return "half of an unfinished replacement by swtpm"
	}
	return ""
}

func nodeOf(p string, info fs.FileInfo) node {
	st := info.Sys().(*syscall.Stat_t)
	n := node{path: p, mode: info.Mode(), bits: st.Mode & 0o7777, uid: st.Uid, gid: st.Gid, inode: st.Ino}
	if info.Mode().IsRegular() { // times and size of a directory move with its lock files
		n.ctime, n.mtime, n.size = st.Ctim.Nano(), st.Mtim.Nano(), st.Size
	}
	return n
}

// openNode opens what was seen at a path, or fails if it is another one by now.
func openNode(dir *os.Root, n node) (*os.File, error) {
	f, err := dir.OpenFile(n.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, moved(n.path, err)
	}
	info, err := f.Stat()
	if err == nil && nodeOf(n.path, info) != n {
		err = errMoved
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %q: %w", n.path, err), f.Close())
	}
	return f, nil
}

func readNode(dir *os.Root, n node) (e Entry, digest string, err error) {
	e = Entry{Path: n.path, Type: TypeDirectory, Mode: n.bits, UID: n.uid, GID: n.gid}
	f, err := openNode(dir, n)
	if err != nil {
		return e, "", err
	}
	defer f.Close()
	if n.mode.IsRegular() {
		e.Type, e.ModTime, e.Content = TypeFile, n.mtime, make([]byte, n.size)
		if _, err := io.ReadFull(f, e.Content); err != nil {
			return e, "", short(n.path, err)
		}
		digest = digestOf(e.Content)
	}
	if e.Xattrs, err = readXattrs(f); err != nil {
		return e, "", fmt.Errorf("read attributes of %q: %w", n.path, err)
	}
	return e, digest, nil
}

func digestNode(dir *os.Root, n node) (e Entry, digest string, err error) {
	if !n.mode.IsRegular() {
		return e, "", nil
	}
	f, err := openNode(dir, n)
	if err != nil {
		return e, "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyN(h, f, n.size); err != nil {
		return e, "", short(n.path, err)
	}
	return e, digestText(h), nil
}

// short tells a file that was cut meanwhile, which is read again, from a file system
// that fails.
func short(p string, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = errMoved
	}
	return fmt.Errorf("read %q: %w", p, err)
}

// moved marks errors that mean that a name went away while it was visited.
func moved(p string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESTALE) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return fmt.Errorf("%q %w: %w", p, errMoved, err)
	}
	return fmt.Errorf("read %q: %w", p, err)
}
