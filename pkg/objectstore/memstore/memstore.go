// Package memstore is an objectstore.Store in memory, with or without versions and
// object lock, for tests of what stands on one.
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
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Store is an empty store until something is created in it.
type Store struct {
	versioned bool
	now       func() time.Time
	retain    func(key string) objectstore.Retention

	mu      sync.Mutex
	objects map[string][]version // the oldest first
	last    int
}

// version is an object, or the marker of a deletion.
type version struct {
	id        string
	marker    bool
	body      []byte
	retention objectstore.Retention
}

var (
	_ objectstore.Locker  = (*Store)(nil)
	_ objectstore.Deleter = (*Store)(nil)
)

// New returns an empty store that keeps no versions and has no object lock.
func New() *Store {
	return &Store{objects: map[string][]version{}, now: time.Now}
}

// NewVersioned returns an empty store that keeps versions and has object lock. now is
// its clock; retain tells the retention of a new object, nil for none.
func NewVersioned(now func() time.Time, retain func(key string) objectstore.Retention) *Store {
	s := New()
	s.versioned, s.now, s.retain = true, now, retain
	return s
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
	if _, taken := s.latest(key); taken {
		return objectstore.Info{}, fmt.Errorf("create %q: %w", key, objectstore.ErrExists)
	}
	v := s.add(key, version{body: slices.Clone(body)})
	return objectstore.Info{Key: key, Size: int64(len(body)), VersionID: v.id, CRC32C: objectstore.Checksum(body)}, nil
}

// add makes v the latest version of key.
func (s *Store) add(key string, v version) version {
	if s.versioned {
		s.last++
		v.id = fmt.Sprintf("version-%06d", s.last)
	}
	if s.retain != nil && !v.marker {
		v.retention = s.retain(key)
	}
	s.objects[key] = append(s.objects[key], v)
	return v
}

func (s *Store) latest(key string) (version, bool) {
	all := s.objects[key]
	if len(all) == 0 || all[len(all)-1].marker {
		return version{}, false
	}
	return all[len(all)-1], true
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
	if !s.versioned {
		delete(s.objects, key)
	}
	v := s.add(key, version{body: slices.Clone(body)})
	return objectstore.Info{Key: key, Size: int64(len(body)), VersionID: v.id, CRC32C: objectstore.Checksum(body)}, nil
}

func (s *Store) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	v, err := s.get(ctx, key, "")
	if err != nil {
		return nil, fmt.Errorf("open %q: %w", key, err)
	}
	return part(key, v.body, offset, length)
}

func part(key string, body []byte, offset, length int64) (io.ReadCloser, error) {
	if length < 0 {
		length = int64(len(body)) - offset
	}
	if offset < 0 || length < 0 || offset+length > int64(len(body)) {
		return nil, fmt.Errorf("open %q: %w", key, objectstore.ErrShort)
	}
	return io.NopCloser(bytes.NewReader(body[offset : offset+length])), nil
}

func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	return s.StatVersion(ctx, key, "")
}

func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		for v, err := range s.Versions(ctx, prefix) {
			switch {
			case err != nil:
				yield(objectstore.Info{}, err)
				return
			case !v.Latest || v.Marker:
			case !yield(objectstore.Info{Key: v.Key, Size: v.Size}, nil):
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
	if _, there := s.latest(key); !there {
		return ctx.Err()
	}
	if s.versioned {
		s.add(key, version{marker: true})
	} else {
		delete(s.objects, key)
	}
	return ctx.Err()
}

// get returns a version of key; without an id the latest.
func (s *Store) get(ctx context.Context, key, id string) (version, error) {
	if err := objectstore.CheckKey(key); err != nil {
		return version{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found, there := s.latest(key)
	if id != "" {
		at := slices.IndexFunc(s.objects[key], func(v version) bool { return v.id == id && !v.marker })
		if there = at >= 0; there {
			found = s.objects[key][at]
		}
	}
	if !there {
		return version{}, objectstore.ErrNotFound
	}
	return found, ctx.Err()
}

func (s *Store) snapshot(prefix string) []objectstore.Version {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []objectstore.Version
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		all := s.objects[key]
		for i := len(all) - 1; i >= 0; i-- {
			found = append(found, objectstore.Version{
				Key: key, ID: all[i].id, Size: int64(len(all[i].body)), Latest: i == len(all)-1, Marker: all[i].marker,
			})
		}
	}
	return found
}
