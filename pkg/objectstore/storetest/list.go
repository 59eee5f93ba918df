package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

func listOrder(t *testing.T, s objectstore.Store) {
	keys := []string{"format.json", "v/a-b/1", "v/a/1", "v/a/10", "v/a/2", "v/a.x", "v/a0", "v/ab/s/1", "w"}
	for i, key := range keys {
		must(s.Create(t.Context(), key, Bytes(uint64(i), i)))(t)
	}
	for _, prefix := range []string{"", "v", "v/", "v/a", "v/a/", "v/a/1", "v/a-", "v/ab/s/1", "v/ab/s/1/", "x", "v//", "../", "."} {
		var want []objectstore.Info
		for i, key := range keys {
			if strings.HasPrefix(key, prefix) {
				want = append(want, objectstore.Info{Key: key, Size: int64(i)})
			}
		}
		slices.SortFunc(want, func(a, b objectstore.Info) int { return strings.Compare(a.Key, b.Key) })
		if diff := cmp.Diff(want, list(t, s, prefix)); diff != "" {
			t.Errorf("List(%q) mismatch (-want +got):\n%s", prefix, diff)
		}
	}
}

func listStops(t *testing.T, s objectstore.Store) {
	for i := range 5 {
		must(s.Create(t.Context(), fmt.Sprintf("k/%d", i), nil))(t)
	}
	var got []string
	for info, err := range s.List(t.Context(), "k/") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, info.Key)
		if len(got) == 2 {
			break
		}
	}
	if diff := cmp.Diff([]string{"k/0", "k/1"}, got); diff != "" {
		t.Errorf("List mismatch (-want +got):\n%s", diff)
	}
}

func listEnded(t *testing.T, s objectstore.Store) {
	must(s.Create(t.Context(), "k/0", nil))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var last error
	for _, err := range s.List(ctx, "") {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Errorf("List with an ended context ended with %v, want context.Canceled", last)
	}
}

func deletes(t *testing.T, s objectstore.Store) {
	for _, key := range []string{"a/b/c", "a/b/d", "a/e"} {
		must(s.Create(t.Context(), key, []byte(key)))(t)
	}
	for range 2 {
		if err := s.Delete(t.Context(), "a/b/c"); err != nil {
			t.Fatalf("Delete: %v", err)
		}
	}
	if err := s.Delete(t.Context(), "a/none/x"); err != nil {
		t.Errorf("Delete of an absent key: %v", err)
	}
	if _, err := s.Stat(t.Context(), "a/b/c"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Stat of a deleted key: got %v, want ErrNotFound", err)
	}
	want := []objectstore.Info{{Key: "a/b/d", Size: 5}, {Key: "a/e", Size: 3}}
	if diff := cmp.Diff(want, list(t, s, "")); diff != "" {
		t.Errorf("List after Delete mismatch (-want +got):\n%s", diff)
	}
	// Where versions are kept, some servers take the mark of a deletion for an object.
	_, err := s.Create(t.Context(), "a/b/c", []byte("again"))
	if marked := len(listVersions(t, s, "a/b/c")) > 1; err != nil && !(marked && errors.Is(err, objectstore.ErrExists)) {
		t.Errorf("Create after Delete: %v", err)
	}
}

// replaces: a key that is taken stays taken, and holds one or the other whole.
func replaces(t *testing.T, s objectstore.Store) {
	d, ok := s.(objectstore.Deleter)
	if !ok {
		t.Skip("not a Deleter")
	}
	must(d.Create(t.Context(), "c/1", Bytes(1, 50_000)))(t)
	for _, key := range []string{"c/1", "c/1", "c/new"} {
		got := must(d.Replace(t.Context(), key, []byte("marker")))(t)
		want := objectstore.Info{Key: key, Size: 6, CRC32C: objectstore.Checksum([]byte("marker"))}
		if diff := cmp.Diff(want, got, ignoreVersions); diff != "" {
			t.Errorf("Replace(%q) mismatch (-want +got):\n%s", key, diff)
		}
		if read := must(objectstore.Get(t.Context(), s, key, 100))(t); string(read) != "marker" {
			t.Errorf("%q holds %q", key, read)
		}
	}
	if _, err := d.Create(t.Context(), "c/1", nil); !errors.Is(err, objectstore.ErrExists) {
		t.Errorf("Create where something was replaced: got %v, want ErrExists", err)
	}
	if _, err := d.Replace(t.Context(), "c//1", nil); !errors.Is(err, objectstore.ErrBadKey) {
		t.Errorf("Replace of a bad key: got %v, want ErrBadKey", err)
	}
	want := []objectstore.Info{{Key: "c/1", Size: 6}, {Key: "c/new", Size: 6}}
	if diff := cmp.Diff(want, list(t, s, "")); diff != "" {
		t.Errorf("List after Replace mismatch (-want +got):\n%s", diff)
	}
}

func list(t *testing.T, s objectstore.Store, prefix string) []objectstore.Info {
	t.Helper()
	var found []objectstore.Info
	for info, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatalf("list %q: %v", prefix, err)
		}
		found = append(found, info)
	}
	return found
}
