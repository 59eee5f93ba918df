// Package pack makes the two kinds of objects that hold data: packs of frames and
// packs of index nodes. A pack is filled in memory, then stored at once under a name
// of its own; its record goes into the pack table.
package pack

import (
	"context"
	"sync"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Uploader stores objects behind the caller's back, a few at a time. After the
// first error every call returns it.
type Uploader struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	store  objectstore.Store
	slots  chan struct{}
	wg     sync.WaitGroup

	mu   sync.Mutex
	err  error
	sent int64
}

// NewUploader stores up to parallel objects at once until Close.
func NewUploader(ctx context.Context, s objectstore.Store, parallel int) *Uploader {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Uploader{ctx: ctx, cancel: cancel, store: s, slots: make(chan struct{}, parallel)}
}

// Put stores body under key and calls done from another goroutine when the store
// has confirmed it, released when body is no longer read. It waits for a free slot.
func (u *Uploader) Put(key string, body []byte, done func(objectstore.Info), released func()) error {
	select {
	case u.slots <- struct{}{}:
	case <-u.ctx.Done():
		released()
		return u.fail(context.Cause(u.ctx))
	}
	u.wg.Go(func() {
		defer func() { <-u.slots }()
		info, err := objectstore.CreateOrSame(u.ctx, u.store, key, body)
		size := int64(len(body))
		released()
		if err != nil {
			_ = u.fail(err)
			return
		}
		u.mu.Lock()
		u.sent += size
		u.mu.Unlock()
		done(info)
	})
	return u.Err()
}

// fail keeps the first error and stops the rest.
func (u *Uploader) fail(err error) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil {
		u.err = err
		u.cancel(err)
	}
	return u.err
}

// Err is the first error so far.
func (u *Uploader) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// Sent counts the bytes that the store has confirmed.
func (u *Uploader) Sent() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sent
}

// Wait returns when everything that was put is stored, or something was not.
func (u *Uploader) Wait() error {
	u.wg.Wait()
	return u.Err()
}

// Close stops what is under way and waits for it.
func (u *Uploader) Close() {
	u.cancel(context.Canceled)
	u.wg.Wait()
}
