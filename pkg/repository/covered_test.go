package repository_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
)

// thief does to an object of a bucket with versions what stolen credentials allow where
// a lock keeps the versions that are there.
type thief struct {
	name string
	do   func(t *testing.T, s *memstore.Store, key string, objects map[string][]byte)
}

var thieves = []thief{
	{"hides it", func(t *testing.T, s *memstore.Store, key string, _ map[string][]byte) {
		must(t, s.Delete(t.Context(), key))
	}},
	{"puts junk over it", func(t *testing.T, s *memstore.Store, key string, _ map[string][]byte) {
		replace(t, s, key, []byte("junk"))
	}},
	{"puts a marker over it", func(t *testing.T, s *memstore.Store, key string, _ map[string][]byte) {
		replace(t, s, key, []byte("VMSTABT1"))
	}},
	{"flips a bit", func(t *testing.T, s *memstore.Store, key string, objects map[string][]byte) {
		body := slices.Clone(objects[key])
		body[len(body)/2] ^= 1
		replace(t, s, key, body)
		replace(t, s, key, body)
	}},
	{"swaps it", func(t *testing.T, s *memstore.Store, key string, objects map[string][]byte) {
		for other, body := range objects {
			if other != key && kindOf(other) == kindOf(key) {
				replace(t, s, key, body)
			}
		}
		must(t, s.Delete(t.Context(), key))
	}},
}

func replace(t *testing.T, s *memstore.Store, key string, body []byte) {
	t.Helper()
	_, err := s.Replace(t.Context(), key, body)
	must(t, err)
}

// TestCoveredObjects: whatever is put over the objects of a bucket with versions, over
// each and over all of them, both backups restore, and it is told what was covered.
func TestCoveredObjects(t *testing.T) {
	t.Parallel()
	first, second := chainOfTwo(5 << 18)
	for _, thief := range thieves {
		t.Run(thief.name, func(t *testing.T) {
			t.Parallel()
			s := memstore.NewVersioned(time.Now, nil)
			w := newWorld(t, s)
			one := w.backup("one", nil, first)
			two := w.backup("two", one, second)
			objects := contents(t, s)
			covered := map[string]bool{}
			for _, key := range append(slices.Sorted(maps.Keys(objects)), "all of them") {
				touched := []string{key}
				if key == "all of them" {
					touched = slices.Sorted(maps.Keys(objects))
				}
				for _, k := range touched {
					thief.do(t, s, k, objects)
				}
				for want, ref := range map[string]repository.CommitRef{"one": one.CommitRef, "two": two.CommitRef} {
					got, seen, err := w.restoreCovered(ref)
					if err != nil || !got.equal(map[string]input{"one": first, "two": second}[want]) {
						t.Errorf("restore of %q after a thief %s, %q: %v", want, thief.name, key, err)
					}
					for _, k := range seen {
						covered[k] = true
					}
				}
				for _, k := range touched {
					uncover(t, s, k)
				}
			}
			if len(covered) == 0 {
				t.Error("nothing was told to be covered")
			}
		})
	}
}

// restoreCovered restores with a repository that is opened afresh.
func (w *world) restoreCovered(ref repository.CommitRef) (input, []string, error) {
	r, err := repository.OpenWithIdentities(w.t.Context(), w.store, w.identities, w.keys.SigningKey())
	if err != nil {
		return input{}, nil, fmt.Errorf("open: %w", err)
	}
	got, err := restoreAll(w.t.Context(), r, ref)
	return got, r.Covered(), err
}

// uncover removes all versions but the first.
func uncover(t *testing.T, s *memstore.Store, key string) {
	t.Helper()
	var all []objectstore.Version
	for v, err := range s.Versions(t.Context(), key) {
		must(t, err)
		if v.Key == key {
			all = append(all, v)
		}
	}
	for _, v := range all[:len(all)-1] {
		must(t, s.DeleteVersion(t.Context(), key, v.ID))
	}
}

// TestHiddenCommits: a bucket's list shows the backups whose records were hidden.
func TestHiddenCommits(t *testing.T) {
	t.Parallel()
	first, second := chainOfTwo(1 << 18)
	s := memstore.NewVersioned(time.Now, nil)
	w := newWorld(t, s)
	one := w.backup("one", nil, first)
	two := w.backup("two", one, second)
	for _, c := range []*repository.Result{one, two} {
		must(t, s.Delete(t.Context(), c.Key))
	}
	var got []string
	for c, err := range w.reader().Commits(t.Context()) {
		must(t, err)
		got = append(got, c.Key)
	}
	if want := []string{one.Key, two.Key}; !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}
