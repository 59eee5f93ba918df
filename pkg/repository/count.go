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

// requestCount counts the requests of one pass.
type requestCount struct {
	mu       sync.Mutex
	requests Requests
}

// of is a store that counts. If its bucket may keep versions, the oldest of an object
// is what counts, and who deletes or replaces it leaves none.
func (c *requestCount) of(s objectstore.Deleter) objectstore.Deleter {
	plain := &counted{Deleter: s, requestCount: c}
	if v, keeps := s.(objectstore.Versioned); keeps {
		return objectstore.NewOldest(&countedVersions{counted: plain, versions: v})
	}
	return plain
}

func (c *requestCount) count(add func(*Requests)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.requests)
}

func (c *requestCount) so() Requests {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// counted is a store that counts.
type counted struct {
	objectstore.Deleter
	*requestCount
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

// countedVersions is a store with versions that counts.
type countedVersions struct {
	*counted
	versions objectstore.Versioned
}

func (c *countedVersions) OpenVersion(ctx context.Context, key, id string, offset, length int64) (io.ReadCloser, error) {
	c.count(func(r *Requests) { r.Get++ })
	return c.versions.OpenVersion(ctx, key, id, offset, length)
}

func (c *countedVersions) StatVersion(ctx context.Context, key, id string) (objectstore.Info, error) {
	c.count(func(r *Requests) { r.Head++ })
	return c.versions.StatVersion(ctx, key, id)
}

func (c *countedVersions) Versions(ctx context.Context, prefix string) iter.Seq2[objectstore.Version, error] {
	c.count(func(r *Requests) { r.List++ })
	return c.versions.Versions(ctx, prefix)
}

func (c *countedVersions) DeleteVersion(ctx context.Context, key, id string) error {
	c.count(func(r *Requests) { r.Delete++ })
	return c.versions.DeleteVersion(ctx, key, id)
}
