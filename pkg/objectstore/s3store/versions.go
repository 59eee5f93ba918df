package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

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
	found, err := s.stat(ctx, key, id)
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("stat %q%s: %w", key, ofVersion(id), err)
	}
	return objectstore.Info{Key: key, Size: found.Size, VersionID: version(found.VersionID)}, nil
}

func (s *Store) stat(ctx context.Context, key, id string) (found minio.ObjectInfo, err error) {
	if err := objectstore.CheckKey(key); err != nil {
		return found, err
	}
	err = s.try(ctx, func() (err error) {
		found, err = s.core.StatObject(ctx, s.bucket, s.object(key), minio.StatObjectOptions{VersionID: id, ServerSideEncryption: s.sse})
		return err
	})
	if err != nil {
		err = s.because(ctx, key, id, err)
	}
	return found, err
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
	if id == "" && errors.Is(err, objectstore.ErrNotFound) {
		err = s.deletePlain(ctx, key)
	}
	if err == nil || errors.Is(err, objectstore.ErrNotFound) {
		return nil
	}
	return fmt.Errorf("delete %q%s: %w", key, ofVersion(id), s.lockedBy(ctx, key, id, err))
}

// deletePlain is for servers that know no version called null where they keep none.
// It never hides a version behind a marker.
func (s *Store) deletePlain(ctx context.Context, key string) error {
	latest, err := s.Stat(ctx, key)
	if err != nil || latest.VersionID != "" {
		return err
	}
	return s.Delete(ctx, key)
}

func (s *Store) Versions(ctx context.Context, prefix string) iter.Seq2[objectstore.Version, error] {
	return func(yield func(objectstore.Version, error) bool) {
		l := &versionListing{ctx: ctx, store: s, prefix: prefix, yield: yield}
		if err := l.run(); err != nil {
			yield(objectstore.Version{}, err)
		}
	}
}
