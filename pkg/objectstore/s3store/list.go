package s3store

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		l := &listing{ctx: ctx, store: s, prefix: prefix, yield: yield}
		if err := l.run(); err != nil {
			yield(objectstore.Info{}, fmt.Errorf("list %q: %w", prefix, err))
		}
	}
}

// listing is one List; what breaks in the middle goes on behind the last key.
type listing struct {
	ctx    context.Context
	store  *Store
	prefix string
	yield  func(objectstore.Info, error) bool
	last   string // the object last seen, with the store's prefix
	ended  bool   // nothing is left, or the caller has seen enough
}

func (l *listing) run() error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	for !l.ended {
		before := l.last
		err := l.store.try(l.ctx, func() error {
			if l.last != before {
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

// pages lists from behind l.last to the end.
func (l *listing) pages() error {
	opt := minio.ListObjectsOptions{Prefix: l.store.object(l.prefix), Recursive: true, StartAfter: l.last}
	for object := range l.store.core.ListObjectsIter(l.ctx, l.store.bucket, opt) {
		if object.Err != nil {
			return object.Err
		}
		if object.Key <= l.last {
			return fmt.Errorf("%w: the server lists %q after %q", objectstore.ErrCorrupted, object.Key, l.last)
		}
		l.last = object.Key
		key := strings.TrimPrefix(object.Key, l.store.object(""))
		if objectstore.CheckKey(key) != nil {
			continue // not ours
		}
		if !l.yield(objectstore.Info{Key: key, Size: object.Size}, nil) {
			l.ended = true
			return nil
		}
	}
	l.ended = l.ctx.Err() == nil
	return l.ctx.Err()
}
