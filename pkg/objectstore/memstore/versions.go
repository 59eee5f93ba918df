package memstore

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

func (s *Store) OpenVersion(ctx context.Context, key, id string, offset, length int64) (io.ReadCloser, error) {
	v, err := s.get(ctx, key, id)
	if err != nil {
		return nil, fmt.Errorf("open version %q of %q: %w", id, key, err)
	}
	return part(key, v.body, offset, length)
}

func (s *Store) StatVersion(ctx context.Context, key, id string) (objectstore.Info, error) {
	v, err := s.get(ctx, key, id)
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("stat %q: %w", key, err)
	}
	return objectstore.Info{Key: key, Size: int64(len(v.body)), VersionID: v.id}, nil
}

func (s *Store) Versions(ctx context.Context, prefix string) iter.Seq2[objectstore.Version, error] {
	return func(yield func(objectstore.Version, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(objectstore.Version{}, err)
			return
		}
		for _, v := range s.snapshot(prefix) {
			if err := ctx.Err(); err != nil {
				yield(objectstore.Version{}, err)
				return
			}
			if !yield(v, nil) {
				return
			}
		}
	}
}

func (s *Store) DeleteVersion(ctx context.Context, key, id string) error {
	if err := objectstore.CheckKey(key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.objects[key]
	at := slices.IndexFunc(all, func(v version) bool { return v.id == id })
	if at < 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	if until := all[at].retention.Until; until.After(s.now()) {
		return fmt.Errorf("delete version %q of %q: %w", id, key, objectstore.ErrLocked)
	}
	if s.objects[key] = slices.Delete(slices.Clone(all), at, at+1); len(all) == 1 {
		delete(s.objects, key)
	}
	return nil
}

func (s *Store) Retention(ctx context.Context, key, id string) (objectstore.Retention, error) {
	v, err := s.get(ctx, key, id)
	if err != nil {
		return objectstore.Retention{}, fmt.Errorf("retention of %q: %w", key, err)
	}
	return v.retention, nil
}

func (s *Store) Retain(ctx context.Context, key, id string, r objectstore.Retention) error {
	if !s.versioned {
		return fmt.Errorf("retain %q: %w", key, objectstore.ErrNoLock)
	}
	found, err := s.get(ctx, key, id)
	if err != nil {
		return fmt.Errorf("retain %q: %w", key, err)
	}
	if found.retention.Until.After(s.now()) && r.Until.Before(found.retention.Until) {
		return fmt.Errorf("retain %q until %s: %w", key, r.Until, objectstore.ErrLocked)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, v := range s.objects[key] {
		if v.id == found.id {
			s.objects[key][i].retention = r
		}
	}
	return nil
}
