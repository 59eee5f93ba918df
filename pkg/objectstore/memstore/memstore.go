// Package memstore is an objectstore.Store in memory, for tests of what stands
// on one.
package memstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Store is an empty store until something is created in it.
type Store struct {
	mu      sync.Mutex
	objects map[string][]byte
}

var _ objectstore.Deleter = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return &Store{objects: map[string][]byte{}}
}

func (s *Store) Create(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	if err := objectstore.CheckCreate(key, body); err != nil {
		return objectstore.Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return objectstore.Info{}, err
	}
	if _, taken := s.objects[key]; taken {
		return objectstore.Info{}, fmt.Errorf("create %q: %w", key, objectstore.ErrExists)
	}
	s.objects[key] = slices.Clone(body)
	return objectstore.Info{Key: key, Size: int64(len(body)), CRC32C: objectstore.Checksum(body)}, nil
}

func (s *Store) Replace(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	if err := objectstore.CheckCreate(key, body); err != nil {
		return objectstore.Info{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return objectstore.Info{}, err
	}
	s.objects[key] = slices.Clone(body)
	return objectstore.Info{Key: key, Size: int64(len(body)), CRC32C: objectstore.Checksum(body)}, nil
}

func (s *Store) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	body, err := s.get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", key, err)
	}
	if length < 0 {
		length = int64(len(body)) - offset
	}
	if offset < 0 || length < 0 || offset+length > int64(len(body)) {
		return nil, fmt.Errorf("open %q: %w", key, objectstore.ErrShort)
	}
	return io.NopCloser(bytes.NewReader(body[offset : offset+length])), nil
}

func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	body, err := s.get(ctx, key)
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("stat %q: %w", key, err)
	}
	return objectstore.Info{Key: key, Size: int64(len(body))}, nil
}

func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		for _, info := range s.snapshot(prefix) {
			if err := ctx.Err(); err != nil {
				yield(objectstore.Info{}, err)
				return
			}
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (s *Store) Delete(ctx context.Context, key string) error {
	if err := objectstore.CheckKey(key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
	return ctx.Err()
}

func (s *Store) get(ctx context.Context, key string) ([]byte, error) {
	if err := objectstore.CheckKey(key); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	body, found := s.objects[key]
	if !found {
		return nil, objectstore.ErrNotFound
	}
	return body, ctx.Err()
}

func (s *Store) snapshot(prefix string) []objectstore.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []objectstore.Info
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasPrefix(key, prefix) {
			found = append(found, objectstore.Info{Key: key, Size: int64(len(s.objects[key]))})
		}
	}
	return found
}
