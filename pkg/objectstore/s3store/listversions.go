package s3store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// pageEntries is how many versions and markers a server puts on a page at most.
const pageEntries = 1000

// versionListing is one list of versions. Some servers tell the markers of a page apart
// from its versions (versitygw 1.8.0), so that only pages are in order: what is less
// than a page old waits to be sorted. What breaks in the middle goes on behind the last
// key that was told whole, since no server goes on within the versions of one.
type versionListing struct {
	ctx    context.Context
	store  *Store
	prefix string
	yield  func(objectstore.Version, error) bool
	heap   []objectstore.Version // not told yet, as they came
	done   string                // all versions of this object and those before it were told
	ended  bool
}

func (l *versionListing) run() error {
	for !l.ended {
		if err := l.ctx.Err(); err != nil {
			return err
		}
		before := l.done
		err := l.store.try(l.ctx, func() error {
			if l.done != before {
				return nil // it got further: what is left has all its tries again
			}
			return l.pages()
		})
		if err != nil {
			return fmt.Errorf("list versions of %q: %w", l.prefix, err)
		}
	}
	return nil
}

func (l *versionListing) pages() error {
	l.heap = l.heap[:0]
	opt := minio.ListObjectsOptions{
		Prefix: l.store.object(l.prefix), Recursive: true, StartAfter: l.done, WithVersions: true, MaxKeys: pageEntries,
	}
	for object := range l.store.core.ListObjectsIter(l.ctx, l.store.bucket, opt) {
		if object.Err != nil {
			return object.Err
		}
		l.heap = append(l.heap, objectstore.Version{
			Key: object.Key, ID: version(object.VersionID), Size: object.Size, Latest: object.IsLatest, Marker: object.IsDeleteMarker,
		})
		if len(l.heap) >= 2*pageEntries && !l.tell(len(l.heap)-pageEntries) {
			return nil
		}
	}
	if err := l.ctx.Err(); err != nil {
		return err
	}
	l.ended = l.tell(len(l.heap)) || l.ended
	return nil
}

// tell yields the first n of those that wait, as far as keys are complete; all if n is all.
func (l *versionListing) tell(n int) (more bool) {
	slices.SortStableFunc(l.heap, func(a, b objectstore.Version) int {
		return cmp.Or(strings.Compare(a.Key, b.Key), -compareBool(a.Latest, b.Latest))
	})
	for n > 0 && n < len(l.heap) && l.heap[n].Key == l.heap[n-1].Key {
		n--
	}
	for _, v := range l.heap[:n] {
		object := v.Key
		v.Key = strings.TrimPrefix(object, l.store.object(""))
		if objectstore.CheckKey(v.Key) == nil && !l.yield(v, nil) { // others are not ours
			l.ended = true
			return false
		}
		l.done = object
	}
	l.heap = slices.Delete(l.heap, 0, n)
	return true
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}
