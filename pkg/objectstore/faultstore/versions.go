package faultstore

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

var _ objectstore.Locker = (*Store)(nil)

// The calls of a store with versions count as those without: a read of a version is an
// Open or Stat, a list of versions a List, and so on.

func (s *Store) OpenVersion(ctx context.Context, key, id string, offset, length int64) (io.ReadCloser, error) {
	return s.open(Call{Op: Open, Key: key, Offset: offset, Length: length}, func() (io.ReadCloser, error) {
		return objectstore.OpenVersion(ctx, s.inner, objectstore.Version{Key: key, ID: id}, offset, length)
	})
}

func (s *Store) StatVersion(ctx context.Context, key, id string) (objectstore.Info, error) {
	return around(s, Call{Op: Stat, Key: key}, func() (objectstore.Info, error) {
		return objectstore.StatVersion(ctx, s.inner, key, id)
	})
}

func (s *Store) Versions(ctx context.Context, prefix string) iter.Seq2[objectstore.Version, error] {
	return listed(s, prefix, objectstore.Versions(ctx, s.inner, prefix))
}

func (s *Store) DeleteVersion(ctx context.Context, key, id string) error {
	_, err := around(s, Call{Op: Delete, Key: key}, func() (struct{}, error) {
		return struct{}{}, objectstore.DeleteVersion(ctx, s.inner, key, id)
	})
	return err
}

func (s *Store) Retention(ctx context.Context, key, id string) (objectstore.Retention, error) {
	return around(s, Call{Op: Retention, Key: key}, func() (objectstore.Retention, error) {
		locker, ok := s.inner.(objectstore.Locker)
		if !ok {
			return objectstore.Retention{}, nil
		}
		return locker.Retention(ctx, key, id)
	})
}

func (s *Store) Retain(ctx context.Context, key, id string, r objectstore.Retention) error {
	_, err := around(s, Call{Op: Retain, Key: key}, func() (struct{}, error) {
		locker, ok := s.inner.(objectstore.Locker)
		if !ok {
			return struct{}{}, fmt.Errorf("retain %q: %w", key, objectstore.ErrNoLock)
		}
		return struct{}{}, locker.Retain(ctx, key, id, r)
	})
	return err
}

// around is one call with what may go wrong before and after it.
func around[T any](s *Store, call Call, do func() (T, error)) (T, error) {
	var none T
	call, err := s.before(call)
	if err != nil {
		return none, err
	}
	got, err := do()
	if lost := s.after(call); lost != nil {
		return none, lost
	}
	return got, err
}

func listed[T any](s *Store, prefix string, inner iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		call, err := s.before(Call{Op: List, Key: prefix})
		if err != nil {
			yield(none, err)
			return
		}
		for v, err := range inner {
			if !yield(v, err) {
				return
			}
		}
		if lost := s.after(call); lost != nil {
			yield(none, lost)
		}
	}
}
