package objectstore

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"
)

// Version is one version of an object, or the marker that a deletion left over those
// before it.
type Version struct {
	Key string
	// ID is the store's name of it; empty for what was written without versioning.
	ID string
	// Size of the object, 0 for a marker.
	Size int64
	// Latest is what Open and Stat see: the object, or that there is none.
	Latest bool
	// Marker says that this is no object but the mark of a deletion.
	Marker bool
}

// Versioned is a Store whose bucket may keep several versions of an object. The
// functions below take any Store: one that is not Versioned, or whose bucket keeps no
// versions, has one version of each object, with an empty ID.
type Versioned interface {
	Store

	// OpenVersion is Open of that version, whatever came after it.
	OpenVersion(ctx context.Context, key, id string, offset, length int64) (io.ReadCloser, error)

	// StatVersion is Stat of that version.
	StatVersion(ctx context.Context, key, id string) (Info, error)

	// Versions yields the versions and markers of all keys that begin with prefix, in
	// byte order of the keys. Of one key the latest comes first, the others behind it:
	// objects from the newest to the oldest, and markers between them in no order. An
	// error comes last and ends the list, as in List.
	Versions(ctx context.Context, prefix string) iter.Seq2[Version, error]

	// DeleteVersion removes one version or marker for good. Deleting an absent one
	// succeeds. ErrLocked while a retention or hold forbids it.
	DeleteVersion(ctx context.Context, key, id string) error
}

// RetentionMode says who may end a retention before its time.
type RetentionMode string

const (
	// Governance: those with a permission of their own.
	Governance RetentionMode = "Governance"
	// Compliance: nobody.
	Compliance RetentionMode = "Compliance"
)

// Retention forbids to delete a version until its time has come.
type Retention struct {
	Mode  RetentionMode
	Until time.Time
}

// Locker is a Store that can forbid deletion (S3 object lock).
type Locker interface {
	Versioned

	// Retention of a version; the zero value if it has none.
	Retention(ctx context.Context, key, id string) (Retention, error)

	// Retain sets the retention of a version. It makes none shorter or weaker: the
	// store refuses that with ErrLocked, or with ErrDenied. ErrNoLock if the bucket
	// has no object lock.
	Retain(ctx context.Context, key, id string, r Retention) error
}

// OpenVersion opens one version, of which Key and ID are used; an empty ID is the object
// of a store without versions.
func OpenVersion(ctx context.Context, s Store, of Version, offset, length int64) (io.ReadCloser, error) {
	if v, ok := s.(Versioned); ok && of.ID != "" {
		return v.OpenVersion(ctx, of.Key, of.ID, offset, length)
	}
	if of.ID != "" {
		return nil, fmt.Errorf("open version %q of %q: %w: the store keeps no versions", of.ID, of.Key, ErrNotFound)
	}
	return s.Open(ctx, of.Key, offset, length)
}

// StatVersion tells of one version of key; an empty id is the object of a store
// without versions.
func StatVersion(ctx context.Context, s Store, key, id string) (Info, error) {
	if v, ok := s.(Versioned); ok && id != "" {
		return v.StatVersion(ctx, key, id)
	}
	if id != "" {
		return Info{}, fmt.Errorf("stat version %q of %q: %w: the store keeps no versions", id, key, ErrNotFound)
	}
	return s.Stat(ctx, key)
}

// Versions yields all versions below prefix, as told at Versioned.
func Versions(ctx context.Context, s Store, prefix string) iter.Seq2[Version, error] {
	if v, ok := s.(Versioned); ok {
		return v.Versions(ctx, prefix)
	}
	return func(yield func(Version, error) bool) {
		for info, err := range s.List(ctx, prefix) {
			if !yield(Version{Key: info.Key, Size: info.Size, Latest: err == nil}, err) {
				return
			}
		}
	}
}

// DeleteVersion removes one version for good, as told at Versioned. With an empty id
// it removes the object that was written without versioning.
func DeleteVersion(ctx context.Context, s Store, key, id string) error {
	if v, ok := s.(Versioned); ok {
		return v.DeleteVersion(ctx, key, id)
	}
	if id != "" {
		return CheckKey(key) // a store without versions has none of that name
	}
	return s.Delete(ctx, key)
}

// Remove deletes every version and marker of key for good. ErrLocked if a retention
// forbids one of them; the others are gone then.
func Remove(ctx context.Context, s Store, key string) error {
	var kept error
	for v, err := range Versions(ctx, s, key) {
		if err != nil {
			return err
		}
		if v.Key != key {
			break // only longer ones follow
		}
		if err := DeleteVersion(ctx, s, v.Key, v.ID); err != nil {
			kept = err
		}
	}
	return kept
}
