// Package dirstore is an objectstore.Store in a directory: an air-gapped copy of
// a bucket, a mounted share, or a test.
//
// Object k/1.age is the file k/1.age below the root, with exactly its bytes, so
// that any tool that copies files moves a store in either direction. A new object
// is written beside its place without a name, synchronised, and linked into place
// in one step that fails if the name is taken. What a crash may leave behind is
// never under a key; List skips it.
package dirstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"syscall"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Store keeps objects below one directory.
type Store struct {
	root string
}

var _ objectstore.Deleter = (*Store)(nil)

// New returns the store in root, a directory that exists; ErrNoBucket from the
// first call if it does not.
func New(root string) *Store {
	return &Store{root: root}
}

func (s *Store) Create(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	if err := objectstore.CheckCreate(key, body); err != nil {
		return objectstore.Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return objectstore.Info{}, err
	}
	if err := s.create(key, body); err != nil {
		return objectstore.Info{}, fmt.Errorf("create %q: %w", key, s.translate(err))
	}
	return objectstore.Info{Key: key, Size: int64(len(body)), CRC32C: objectstore.Checksum(body)}, nil
}

func (s *Store) create(key string, body []byte) error {
	path := s.path(key)
	if err := s.makeParents(filepath.Dir(path)); err != nil {
		return err
	}
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist // saves writing it out; publish decides
	}
	if err := publish(path, body); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// Replace writes beside the object and renames over it.
func (s *Store) Replace(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	if err := objectstore.CheckCreate(key, body); err != nil {
		return objectstore.Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return objectstore.Info{}, err
	}
	path := s.path(key)
	err := s.makeParents(filepath.Dir(path))
	if err == nil {
		err = publishOver(path, body)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("replace %q: %w", key, s.translate(err))
	}
	return objectstore.Info{Key: key, Size: int64(len(body)), CRC32C: objectstore.Checksum(body)}, nil
}

// makeParents makes dir and what lacks above it, never the root itself: a share
// that is not mounted must not be taken for an empty store.
func (s *Store) makeParents(dir string) error {
	if dir == s.root {
		_, err := os.Stat(dir)
		return err
	}
	err := os.Mkdir(dir, 0o777)
	if errors.Is(err, fs.ErrNotExist) {
		if err := s.makeParents(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o777)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func (s *Store) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := objectstore.CheckKey(key); err != nil {
		return nil, err
	}
	f, size, err := s.open(key)
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", key, s.translate(err))
	}
	if length < 0 {
		length = size - offset
	}
	if offset < 0 || length < 0 || offset+length > size {
		f.Close()
		return nil, fmt.Errorf("open %q at %d: %w: it has %d bytes", key, offset, objectstore.ErrShort, size)
	}
	return &reader{ctx: ctx, file: f, rest: io.NewSectionReader(f, offset, length)}, nil
}

func (s *Store) open(key string) (*os.File, int64, error) {
	f, err := os.Open(s.path(key))
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	if err := objectstore.CheckKey(key); err != nil {
		return objectstore.Info{}, err
	}
	info, err := os.Stat(s.path(key))
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("stat %q: %w", key, s.translate(err))
	}
	return objectstore.Info{Key: key, Size: info.Size()}, ctx.Err()
}

func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		w := &walk{ctx: ctx, store: s, prefix: prefix, yield: yield}
		if err := w.start(); err != nil && !errors.Is(err, errStopped) {
			yield(objectstore.Info{}, fmt.Errorf("list %q: %w", prefix, s.translate(err)))
		}
	}
}

func (s *Store) Delete(ctx context.Context, key string) error {
	if err := objectstore.CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := os.Remove(s.path(key))
	if err == nil {
		err = syncDir(filepath.Dir(s.path(key)))
	}
	if err = s.translate(err); err != nil && !errors.Is(err, objectstore.ErrNotFound) {
		return fmt.Errorf("delete %q: %w", key, err)
	}
	return nil
}

func (s *Store) path(key string) string {
	return filepath.Join(s.root, filepath.FromSlash(key))
}

// translate turns an error of the file system into objectstore's and keeps its
// text. What it does not know stays as it is.
func (s *Store) translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		if _, rootErr := os.Stat(s.root); rootErr != nil {
			return fmt.Errorf("%w: %w", objectstore.ErrNoBucket, rootErr)
		}
		return fmt.Errorf("%w: %w", objectstore.ErrNotFound, err)
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%w: %w", objectstore.ErrExists, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: %w", objectstore.ErrDenied, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", objectstore.ErrFull, err)
	case errors.Is(err, syscall.EIO), errors.Is(err, syscall.ESTALE):
		return fmt.Errorf("%w: %w", objectstore.ErrUnreachable, err)
	default:
		return err
	}
}

// reader reads one range of a file until ctx ends.
type reader struct {
	ctx  context.Context
	file *os.File
	rest *io.SectionReader
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.rest.Read(p)
}

func (r *reader) Close() error {
	return r.file.Close()
}

// syncDir makes the names in dir durable. A file system that cannot do that for
// directories says EINVAL, and there is nothing more to be had from it.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}
