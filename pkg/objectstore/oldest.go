package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
)

// Oldest is a store seen through what was put over its objects later. An object is
// created once, under a key that was free: if a bucket has several versions of it, the
// oldest is the object, and all that came later (another version, or the marker of a
// deletion that hides it) is the work of somebody else.
//
// Open and Stat take what is on top, since that is nearly always all there is; List and
// LookBehind look at the versions, and from then on the oldest is what is read. Where a
// bucket keeps no versions, or does not let us see them, it is the store itself.
type Oldest struct {
	inner Store

	mu      sync.Mutex
	covered map[string]string // the oldest version of each key that has something over it
	blind   bool              // versions cannot be listed here
	// What the lists have shown: objects, and among them any with a version's name.
	looked, versions bool
}

var _ Deleter = (*Oldest)(nil)

// NewOldest looks through what covers the objects of s.
func NewOldest(s Store) *Oldest {
	return &Oldest{inner: s, covered: map[string]string{}}
}

// Covered tells the keys that were found to have something over their oldest version.
func (o *Oldest) Covered() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	keys := make([]string, 0, len(o.covered))
	for key := range o.covered {
		keys = append(keys, key)
	}
	return keys
}

// LookBehind looks at the versions of all keys that begin with prefix, and tells
// whether it found any that is covered and that it did not know of.
func (o *Oldest) LookBehind(ctx context.Context, prefix string) (found bool, err error) {
	before := len(o.Covered())
	for _, err := range o.List(ctx, prefix) {
		if err != nil {
			return false, err
		}
	}
	return len(o.Covered()) > before, nil
}

func (o *Oldest) version(key string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.covered[key]
}

func (o *Oldest) Create(ctx context.Context, key string, body []byte) (Info, error) {
	return o.inner.Create(ctx, key, body)
}

func (o *Oldest) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	return OpenVersion(ctx, o.inner, Version{Key: key, ID: o.version(key)}, offset, length)
}

func (o *Oldest) Stat(ctx context.Context, key string) (Info, error) {
	return StatVersion(ctx, o.inner, key, o.version(key))
}

// List yields each key that has a version, covered or not.
func (o *Oldest) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		err := o.list(ctx, prefix, yield)
		if errors.Is(err, errBlind) {
			o.inner.List(ctx, prefix)(yield)
			return
		}
		if err != nil {
			yield(Info{}, err)
		}
	}
}

// errBlind: the store keeps no versions, or does not show them.
var errBlind = errors.New("versions cannot be listed")

func (o *Oldest) list(ctx context.Context, prefix string, yield func(Info, error) bool) error {
	if _, keeps := o.inner.(Versioned); !keeps || o.isBlind() {
		return errBlind
	}
	g := oldestOf{store: o, yield: yield, first: true}
	for v, err := range Versions(ctx, o.inner, prefix) {
		if err != nil && g.first && (errors.Is(err, ErrDenied) || errors.Is(err, ErrNotSupported)) {
			o.mu.Lock()
			o.blind = true
			o.mu.Unlock()
			return errBlind
		}
		if err != nil {
			return err
		}
		o.sawVersion(v.ID != "" || v.Marker)
		if !g.add(v) {
			return nil
		}
	}
	g.end()
	return nil
}

// sawVersion notes what an object was like: named says that the bucket keeps versions.
func (o *Oldest) sawVersion(named bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.looked = true
	o.versions = o.versions || named
}

// isPlain reports that nothing which was listed or made had a version's name, so that a
// deletion need not look for older ones.
func (o *Oldest) isPlain() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.looked && !o.versions
}

func (o *Oldest) forget(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.covered, key)
}

func (o *Oldest) isBlind() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.blind
}

// oldestOf gathers the versions of one key after the other.
type oldestOf struct {
	store *Oldest
	yield func(Info, error) bool
	first bool
	key   string
	found Version // the oldest so far, if it is no marker
	is    bool
	over  bool // something lies over it
}

func (g *oldestOf) add(v Version) bool {
	more := true
	if v.Key != g.key {
		more = g.end()
		*g = oldestOf{store: g.store, yield: g.yield, key: v.Key}
	}
	if g.is || v.Marker {
		g.over = true
	}
	if !v.Marker {
		g.found, g.is = v, true
	}
	return more
}

func (g *oldestOf) end() bool {
	if !g.is {
		return true
	}
	g.store.mu.Lock()
	if g.over {
		g.store.covered[g.key] = g.found.ID
	} else {
		delete(g.store.covered, g.key)
	}
	g.store.mu.Unlock()
	return g.yield(Info{Key: g.key, Size: g.found.Size}, nil)
}

// Delete removes key with all its versions. ErrLocked if one of them may not go.
func (o *Oldest) Delete(ctx context.Context, key string) error {
	if _, keeps := o.inner.(Versioned); !keeps || o.isBlind() {
		return o.inner.Delete(ctx, key)
	}
	if o.isPlain() {
		return DeleteVersion(ctx, o.inner, key, "")
	}
	err := Remove(ctx, o.inner, key)
	if err == nil {
		o.forget(key)
	}
	return err
}

// Replace stores body over what is there, which must go: ErrLocked if it may not. Done
// again, it does not store what is on top already.
func (o *Oldest) Replace(ctx context.Context, key string, body []byte) (Info, error) {
	inner, ok := o.inner.(Deleter)
	if !ok {
		return Info{}, fmt.Errorf("replace %q: %w", key, ErrNotSupported)
	}
	info, err := o.onTop(ctx, key, body)
	if err == nil && info.Key == "" {
		info, err = inner.Replace(ctx, key, body)
		o.sawVersion(info.VersionID != "")
	}
	if err != nil || info.VersionID == "" || o.isBlind() {
		return info, err
	}
	for v, err := range Versions(ctx, o.inner, key) {
		if err != nil {
			return Info{}, err
		}
		if v.Key != key {
			break
		}
		if v.ID == info.VersionID {
			continue
		}
		if err := DeleteVersion(ctx, o.inner, key, v.ID); err != nil {
			return Info{}, fmt.Errorf("replace %q: what was there before: %w", key, err)
		}
	}
	o.forget(key)
	return info, nil
}

// onTop finds body on top of a key that is covered; otherwise the zero Info.
func (o *Oldest) onTop(ctx context.Context, key string, body []byte) (Info, error) {
	if o.version(key) == "" {
		return Info{}, nil
	}
	info, err := o.inner.Stat(ctx, key)
	if errors.Is(err, ErrNotFound) || err == nil && (info.Size != int64(len(body)) || info.VersionID == "") {
		return Info{}, nil
	}
	if err != nil {
		return Info{}, err
	}
	have, err := Get(ctx, o.inner, key, int64(len(body)))
	if err != nil || !bytes.Equal(have, body) {
		return Info{}, err
	}
	return info, nil
}
