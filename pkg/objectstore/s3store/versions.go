package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// nullVersion is what S3 calls a version that was written without versioning.
const nullVersion = "null"

// version leaves out the name that S3 gives to what was written without versioning.
func version(id string) string {
	if id == nullVersion {
		return ""
	}
	return id
}

func (s *Store) OpenVersion(ctx context.Context, key, id string, offset, length int64) (io.ReadCloser, error) {
	return s.open(ctx, &reader{key: key, version: id, pos: offset, end: offset + length}, length)
}

func (s *Store) StatVersion(ctx context.Context, key, id string) (objectstore.Info, error) {
	if err := objectstore.CheckKey(key); err != nil {
		return objectstore.Info{}, err
	}
	var found minio.ObjectInfo
	err := s.try(ctx, func() (err error) {
		found, err = s.core.StatObject(ctx, s.bucket, s.object(key), minio.StatObjectOptions{VersionID: id})
		return err
	})
	if err != nil {
		err = s.because(ctx, key, id, err)
	}
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("stat %q%s: %w", key, ofVersion(id), err)
	}
	return objectstore.Info{Key: key, Size: found.Size, VersionID: version(found.VersionID)}, nil
}

func ofVersion(id string) string {
	if id == "" {
		return ""
	}
	return fmt.Sprintf(" (version %q)", id)
}

// DeleteVersion removes a version for good; of an empty id the one that was written
// without versioning. What a server answers about a lock differs between vendors, so
// that a refusal is looked into.
func (s *Store) DeleteVersion(ctx context.Context, key, id string) error {
	if err := objectstore.CheckKey(key); err != nil {
		return err
	}
	opt := minio.RemoveObjectOptions{VersionID: id}
	if id == "" {
		opt.VersionID = nullVersion
	}
	err := s.try(ctx, func() error { return s.core.RemoveObject(ctx, s.bucket, s.object(key), opt) })
	if resp, ok := errors.AsType[minio.ErrorResponse](err); ok && id == "" && (resp.Code == minio.InvalidArgument || resp.Code == minio.NotImplemented) {
		err = s.Delete(ctx, key) // a server that knows no versions at all
	}
	if err == nil || errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	return fmt.Errorf("delete %q%s: %w", key, ofVersion(id), s.lockedBy(ctx, key, id, err))
}

func (s *Store) Versions(ctx context.Context, prefix string) iter.Seq2[objectstore.Version, error] {
	return func(yield func(objectstore.Version, error) bool) {
		l := &versionListing{ctx: ctx, store: s, prefix: prefix, yield: yield}
		if err := l.run(); err != nil {
			yield(objectstore.Version{}, fmt.Errorf("list versions of %q: %w", prefix, err))
		}
	}
}

// versionListing is one list of versions. A server goes on behind a key, not within its
// versions: what breaks in the middle lists those of the last key again, and leaves out
// the ones that were told already.
type versionListing struct {
	ctx    context.Context
	store  *Store
	prefix string
	yield  func(objectstore.Version, error) bool
	done   string // all versions of this object and those before it were told
	last   string // the object that is being told
	told   map[string]bool
	ended  bool
}

func (l *versionListing) run() error {
	for !l.ended {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		before := len(l.told)
		at := l.last
		err := l.store.try(l.ctx, func() error {
			if l.last != at || len(l.told) != before {
				return nil // it got further: what is left has all its tries again
			}
			return l.pages()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *versionListing) pages() error {
	opt := minio.ListObjectsOptions{Prefix: l.store.object(l.prefix), Recursive: true, StartAfter: l.done, WithVersions: true}
	for object := range l.store.core.ListObjectsIter(l.ctx, l.store.bucket, opt) {
		if object.Err != nil {
			return object.Err
		}
		more, err := l.tell(&object)
		if err != nil {
			return err
		}
		if !more {
			l.ended = true
			return nil
		}
	}
	l.ended = l.ctx.Err() == nil
	return l.ctx.Err()
}

func (l *versionListing) tell(object *minio.ObjectInfo) (more bool, err error) {
	if object.Key < l.last {
		return false, fmt.Errorf("%w: the server lists %q after %q", objectstore.ErrCorrupted, object.Key, l.last)
	}
	if object.Key != l.last {
		l.done, l.last, l.told = l.last, object.Key, map[string]bool{}
	}
	if l.told[object.VersionID] {
		return true, nil
	}
	l.told[object.VersionID] = true
	key := strings.TrimPrefix(object.Key, l.store.object(""))
	if objectstore.CheckKey(key) != nil {
		return true, nil // not ours
	}
	return l.yield(objectstore.Version{
		Key: key, ID: version(object.VersionID), Size: object.Size, Latest: object.IsLatest, Marker: object.IsDeleteMarker,
	}, nil), nil
}
