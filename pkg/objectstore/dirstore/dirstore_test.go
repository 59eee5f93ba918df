package dirstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/dirstore"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objectstore.Store { return dirstore.New(t.TempDir()) })
}

// A share that is not mounted must not look like an empty store, nor be filled.
func TestRootAbsent(t *testing.T) {
	root := filepath.Join(t.TempDir(), "not-mounted")
	s := dirstore.New(root)
	_, createErr := s.Create(t.Context(), "a/b", nil)
	_, openErr := s.Open(t.Context(), "a/b", 0, -1)
	_, statErr := s.Stat(t.Context(), "a/b")
	var listErr error
	for _, err := range s.List(t.Context(), "a/") {
		listErr = err
	}
	for call, err := range map[string]error{"Create": createErr, "Open": openErr, "Stat": statErr, "List": listErr, "Delete": s.Delete(t.Context(), "a")} {
		if !errors.Is(err, objectstore.ErrNoBucket) {
			t.Errorf("%s: got %v, want ErrNoBucket", call, err)
		}
	}
	if _, err := os.Stat(root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the root was made: %v", err)
	}
}

// What a crash left behind, and files of others, are not objects.
func TestListSkipsForeignFiles(t *testing.T) {
	root := t.TempDir()
	s := dirstore.New(root)
	if _, err := s.Create(t.Context(), "a/b", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/.new-123", ".DS_Store", "lost found"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte("y"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, info.Key)
	}
	if len(got) != 1 || got[0] != "a/b" {
		t.Errorf("List: got %q, want only a/b", got)
	}
}
