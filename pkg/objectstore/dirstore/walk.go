package dirstore

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

var errStopped = errors.New("the caller has seen enough")

// walk yields the objects below one prefix in byte order of their keys.
type walk struct {
	ctx    context.Context
	store  *Store
	prefix string
	yield  func(objectstore.Info, error) bool
}

// start begins at the deepest directory that the prefix names in full.
func (w *walk) start() error {
	if _, err := os.Stat(w.store.root); err != nil {
		return err
	}
	dir := ""
	if i := strings.LastIndexByte(w.prefix, '/'); i >= 0 {
		dir = w.prefix[:i]
		if objectstore.CheckKey(dir) != nil {
			return nil // no key can begin like this
		}
	}
	return w.dir(dir)
}

func (w *walk) dir(dir string) error {
	entries, err := os.ReadDir(w.store.path(dir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil // never there, or removed since its name was read
	}
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(sortKey(a), sortKey(b)) })
	for _, e := range entries {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		if err := w.entry(path.Join(dir, e.Name()), e); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entry(key string, e fs.DirEntry) error {
	switch {
	case objectstore.CheckKey(key) != nil:
		return nil // not ours
	case e.IsDir():
		below := key + "/"
		if strings.HasPrefix(below, w.prefix) || strings.HasPrefix(w.prefix, below) {
			return w.dir(key)
		}
		return nil
	case !e.Type().IsRegular() || !strings.HasPrefix(key, w.prefix):
		return nil
	}
	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted since its name was read
	}
	if err != nil {
		return err
	}
	if !w.yield(objectstore.Info{Key: key, Size: info.Size()}, nil) {
		return errStopped
	}
	return nil
}

// sortKey puts a directory where the keys below it belong: "a-b" < "a/c".
func sortKey(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}
