package repository_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
)

// seenIn is a catalogue in words: backups, damaged and missing keys.
type seenIn struct {
	Backups, Damaged, Missing []string
}

// list reads the whole catalogue in pages of that size.
func list(t *testing.T, r *repository.Repository, limit int) seenIn {
	t.Helper()
	var out seenIn
	spec := repository.CatalogueSpec{Limit: limit}
	for {
		page, err := r.Catalogue(t.Context(), spec)
		must(t, err)
		for _, c := range page.Commits {
			if c.Key <= spec.After || c.Key > page.Through {
				t.Errorf("commit %q on the page behind %q through %q", c.Key, spec.After, page.Through)
			}
			out.Backups = append(out.Backups, c.Backup.Name)
		}
		for _, b := range page.Damaged {
			out.Damaged = append(out.Damaged, b.Key)
		}
		for _, b := range page.Missing {
			if !errors.Is(b.Err, repository.ErrNoCommit) {
				t.Errorf("missing for another reason: %v", b.Err)
			}
			out.Missing = append(out.Missing, b.Key)
		}
		if !page.More {
			return out
		}
		spec.After = page.Through
	}
}

func put(t *testing.T, store objectstore.Store, key string, body []byte) {
	t.Helper()
	_, err := store.Create(t.Context(), key, body)
	must(t, err)
}

func TestCatalogue(t *testing.T) {
	store := memstore.New()
	w := newWorld(t, store)
	in := input{disks: [][]byte{bytes.Repeat([]byte("a"), 20000)}, files: map[string]string{"f": "x"}}
	first := w.backup("one", nil, in)
	second := w.backup("two", first, in)
	w.backup("three", second, in)
	put(t, store, "t/"+strings.TrimPrefix("c/never", "c/"), []byte("x")) // of another chain
	for _, limit := range []int{0, 1, 2, 3, 100} {
		if diff := cmp.Diff(seenIn{Backups: []string{"one", "two", "three"}}, list(t, w.writer, limit)); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", limit, diff)
		}
	}
	raw, err := objectstore.Get(t.Context(), store, second.Key, 1<<20)
	must(t, err)
	must(t, store.Delete(t.Context(), second.Key))
	hidden := seenIn{Backups: []string{"one", "three"}, Missing: []string{second.Key}}
	for _, limit := range []int{0, 1} {
		if diff := cmp.Diff(hidden, list(t, w.reader(), limit)); diff != "" {
			t.Errorf("a hidden link, pages of %d (-want +got):\n%s", limit, diff)
		}
	}
	raw[len(raw)/2] ^= 1
	put(t, store, second.Key, raw)
	if diff := cmp.Diff(seenIn{Backups: []string{"one", "three"}, Damaged: []string{second.Key}}, list(t, w.writer, 0)); diff != "" {
		t.Errorf("a damaged record (-want +got):\n%s", diff)
	}
	must(t, store.Delete(t.Context(), second.Key))
	put(t, store, "t/"+strings.TrimPrefix(second.Key, "c/"), []byte("x"))
	if diff := cmp.Diff(seenIn{Backups: []string{"one", "three"}}, list(t, w.writer, 0)); diff != "" {
		t.Errorf("a removed link (-want +got):\n%s", diff)
	}
}
