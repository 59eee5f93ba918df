package dirstore_test

import (
	"bytes"
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

// A large body goes past the page cache in part; all of it must arrive.
func TestLargeBodies(t *testing.T) {
	for _, size := range []int{1 << 20, 3<<20 + 5, 2<<20 - 1} {
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(i * 7 / 3)
		}
		s := dirstore.New(t.TempDir())
		if _, err := s.Create(t.Context(), "large", body); err != nil {
			t.Fatal(err)
		}
		got, err := objectstore.Get(t.Context(), s, "large", 1<<30)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("body of %d bytes came back as %d bytes, %v", size, len(got), err)
		}
	}
}
