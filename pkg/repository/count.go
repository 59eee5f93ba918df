package repository

import (
	"context"
	"io"
	"iter"
	"sync"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Requests counts what was asked of a store, by kind. A list counts once, however many
// pages it has.
type Requests struct {
	Put, Get, Head, List, Delete int
}

// counted is a store that counts.
type counted struct {
	objectstore.Deleter
	mu       sync.Mutex
	requests Requests
}

func (c *counted) count(add func(*Requests)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.requests)
}

func (c *counted) so() Requests {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

func (c *counted) Create(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	c.count(func(r *Requests) { r.Put++ })
	return c.Deleter.Create(ctx, key, body)
}

func (c *counted) Replace(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	c.count(func(r *Requests) { r.Put++ })
	return c.Deleter.Replace(ctx, key, body)
}

func (c *counted) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	c.count(func(r *Requests) { r.Get++ })
	return c.Deleter.Open(ctx, key, offset, length)
}

func (c *counted) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	c.count(func(r *Requests) { r.Head++ })
	return c.Deleter.Stat(ctx, key)
}

func (c *counted) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	c.count(func(r *Requests) { r.List++ })
	return c.Deleter.List(ctx, prefix)
}

func (c *counted) Delete(ctx context.Context, key string) error {
	c.count(func(r *Requests) { r.Delete++ })
	return c.Deleter.Delete(ctx, key)
}

// remove deletes a key with every version that the bucket keeps of it.
func (c *counted) remove(ctx context.Context, key string) error {
	if _, ok := c.Deleter.(objectstore.Versioned); !ok {
		return c.Delete(ctx, key)
	}
	c.count(func(r *Requests) { r.List++; r.Delete++ })
	return objectstore.Remove(ctx, c.Deleter, key)
}
