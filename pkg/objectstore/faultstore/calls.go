package faultstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

func (s *Store) Create(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	return around(s, Call{Op: Create, Key: key, Length: int64(len(body))}, func() (objectstore.Info, error) {
		return s.inner.Create(ctx, key, body)
	})
}

func (s *Store) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	return s.open(Call{Op: Open, Key: key, Offset: offset, Length: length}, func() (io.ReadCloser, error) {
		return s.inner.Open(ctx, key, offset, length)
	})
}

func (s *Store) open(call Call, open func() (io.ReadCloser, error)) (io.ReadCloser, error) {
	call, err := s.before(call)
	if err != nil {
		return nil, err
	}
	r, err := open()
	if lost := s.after(call); lost != nil {
		if err == nil {
			r.Close()
		}
		return nil, lost
	}
	if err != nil {
		return nil, err
	}
	return s.alter(call, r)
}

func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	return around(s, Call{Op: Stat, Key: key}, func() (objectstore.Info, error) { return s.inner.Stat(ctx, key) })
}

func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	return listed(s, prefix, s.inner.List(ctx, prefix))
}

func (s *Store) Delete(ctx context.Context, key string) error {
	_, err := around(s, Call{Op: Delete, Key: key}, func() (struct{}, error) { return struct{}{}, s.inner.Delete(ctx, key) })
	return err
}

// Replace is refused if the inner store cannot do it.
func (s *Store) Replace(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	inner, ok := s.inner.(objectstore.Deleter)
	if !ok {
		return objectstore.Info{}, fmt.Errorf("replace %q: %w", key, objectstore.ErrDenied)
	}
	return around(s, Call{Op: Replace, Key: key, Length: int64(len(body))}, func() (objectstore.Info, error) {
		return inner.Replace(ctx, key, body)
	})
}

func (s *Store) before(call Call) (Call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total++
	call.N = s.total
	s.calls = append(s.calls, call)
	if s.faults.Before == nil {
		return call, nil
	}
	return call, s.faults.Before(call)
}

func (s *Store) after(call Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.After == nil {
		return nil
	}
	return s.faults.After(call)
}

func (s *Store) alter(call Call, r io.ReadCloser) (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.Alter == nil {
		return r, nil
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(s.faults.Alter(call, b))), nil
}
