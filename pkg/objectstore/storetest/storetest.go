// Package storetest is the contract of objectstore.Store as tests.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Run tests the stores that open returns. Each must be empty.
func Run(t *testing.T, open func(t *testing.T) objectstore.Store) {
	for name, test := range map[string]func(*testing.T, objectstore.Store){
		"CreateThenRead":        createThenRead,
		"CreateNeverOverwrites": createNeverOverwrites,
		"CreateRace":            createRace,
		"CreateBadKeys":         createBadKeys,
		"CreateEnded":           createEnded,
		"CreateOrSame":          createOrSame,
		"OpenRanges":            openRanges,
		"Absent":                absent,
		"ListOrder":             listOrder,
		"ListStops":             listStops,
		"ListEnded":             listEnded,
		"Delete":                deletes,
		"Replace":               replaces,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// ignoreVersions: a store may or may not keep versions.
var ignoreVersions = cmpopts.IgnoreFields(objectstore.Info{}, "VersionID")

func createThenRead(t *testing.T, s objectstore.Store) {
	for name, size := range map[string]int{"empty": 0, "one": 1, "odd": 70_001, "pack": 33 << 20} {
		key := "v/vm/r/" + name
		body := Bytes(uint64(size), size)
		got := must(s.Create(t.Context(), key, body))(t)
		want := objectstore.Info{Key: key, Size: int64(size), CRC32C: objectstore.Checksum(body)}
		if diff := cmp.Diff(want, got, ignoreVersions); diff != "" {
			t.Errorf("Create(%q) mismatch (-want +got):\n%s", key, diff)
		}
		want.CRC32C = 0
		if diff := cmp.Diff(want, must(s.Stat(t.Context(), key))(t), ignoreVersions); diff != "" {
			t.Errorf("Stat(%q) mismatch (-want +got):\n%s", key, diff)
		}
		read := must(objectstore.Get(t.Context(), s, key, int64(size)))(t)
		if !bytes.Equal(read, body) {
			t.Errorf("%q: read %d bytes that differ from the %d created", key, len(read), size)
		}
	}
}

func createNeverOverwrites(t *testing.T, s objectstore.Store) {
	must(s.Create(t.Context(), "a/b", []byte("first")))(t)
	for _, body := range []string{"first", "second", ""} {
		if _, err := s.Create(t.Context(), "a/b", []byte(body)); !errors.Is(err, objectstore.ErrExists) {
			t.Errorf("Create over an object, body %q: got %v, want ErrExists", body, err)
		}
	}
	if got := must(objectstore.Get(t.Context(), s, "a/b", 100))(t); string(got) != "first" {
		t.Errorf("object now holds %q", got)
	}
}

func createRace(t *testing.T, s objectstore.Store) {
	const racers = 8
	results := make([]error, racers)
	var wg sync.WaitGroup
	for i := range racers {
		wg.Go(func() { _, results[i] = s.Create(t.Context(), "c/1", Bytes(uint64(i), 50_000)) })
	}
	wg.Wait()
	winners := 0
	for i, err := range results {
		switch {
		case err == nil:
			winners++
			if got := must(objectstore.Get(t.Context(), s, "c/1", 1<<20))(t); !bytes.Equal(got, Bytes(uint64(i), 50_000)) {
				t.Errorf("racer %d was told that it won, but its bytes are not what is stored", i)
			}
		case !errors.Is(err, objectstore.ErrExists):
			t.Errorf("racer %d: got %v, want ErrExists", i, err)
		}
	}
	if winners != 1 {
		t.Errorf("%d of %d concurrent creates of one key succeeded, want 1", winners, racers)
	}
}

func createBadKeys(t *testing.T, s objectstore.Store) {
	for _, key := range []string{"", "/a", "a/", "a//b", ".", "..", "a/../b", ".hidden", "a/.b", "a b", "ä", "a\\b", "a\x00", strings.Repeat("k", objectstore.MaxKeyBytes+1)} {
		if _, err := s.Create(t.Context(), key, nil); !errors.Is(err, objectstore.ErrBadKey) {
			t.Errorf("Create(%q): got %v, want ErrBadKey", key, err)
		}
		if _, err := s.Open(t.Context(), key, 0, -1); !errors.Is(err, objectstore.ErrBadKey) {
			t.Errorf("Open(%q): got %v, want ErrBadKey", key, err)
		}
		if _, err := s.Stat(t.Context(), key); !errors.Is(err, objectstore.ErrBadKey) {
			t.Errorf("Stat(%q): got %v, want ErrBadKey", key, err)
		}
		if err := s.Delete(t.Context(), key); !errors.Is(err, objectstore.ErrBadKey) {
			t.Errorf("Delete(%q): got %v, want ErrBadKey", key, err)
		}
	}
}

func createEnded(t *testing.T, s objectstore.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Create(ctx, "a", []byte("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Create with an ended context: got %v, want context.Canceled", err)
	}
	if _, err := s.Stat(t.Context(), "a"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Stat after it: got %v, want ErrNotFound", err)
	}
}

func createOrSame(t *testing.T, s objectstore.Store) {
	body := []byte("settled beforehand")
	for range 2 {
		got := must(objectstore.CreateOrSame(t.Context(), s, "k/0.age", body))(t)
		want := objectstore.Info{Key: "k/0.age", Size: int64(len(body)), CRC32C: objectstore.Checksum(body)}
		if diff := cmp.Diff(want, got, ignoreVersions); diff != "" {
			t.Errorf("CreateOrSame mismatch (-want +got):\n%s", diff)
		}
	}
	for _, other := range []string{"", "settled", "settled beforehanD", "settled beforehand, and longer"} {
		if _, err := objectstore.CreateOrSame(t.Context(), s, "k/0.age", []byte(other)); !errors.Is(err, objectstore.ErrExists) {
			t.Errorf("CreateOrSame(%q) over other bytes: got %v, want ErrExists", other, err)
		}
	}
}

func openRanges(t *testing.T, s objectstore.Store) {
	body := Bytes(7, 100_000)
	must(s.Create(t.Context(), "p0", body))(t)
	must(s.Create(t.Context(), "empty", nil))(t)
	for _, tc := range []struct {
		key            string
		offset, length int64
		want           []byte
		err            error
	}{
		{"p0", 0, -1, body, nil},
		{"p0", 0, 100_000, body, nil},
		{"p0", 1, 1, body[1:2], nil},
		{"p0", 65_536, 10_000, body[65_536:75_536], nil},
		{"p0", 99_999, -1, body[99_999:], nil},
		{"p0", 99_999, 1, body[99_999:], nil},
		{"p0", 50, 0, nil, nil},
		{"p0", 100_000, -1, nil, nil},
		{"p0", 100_000, 0, nil, nil},
		{"empty", 0, -1, nil, nil},
		{"empty", 0, 0, nil, nil},
		{"p0", 0, 100_001, nil, objectstore.ErrShort},
		{"p0", 99_999, 2, nil, objectstore.ErrShort},
		{"p0", 100_000, 1, nil, objectstore.ErrShort},
		{"p0", 100_001, -1, nil, objectstore.ErrShort},
		{"p0", 100_001, 0, nil, objectstore.ErrShort},
		{"p0", 5_000_000, 10, nil, objectstore.ErrShort},
		{"empty", 0, 1, nil, objectstore.ErrShort},
	} {
		got, err := readRange(t.Context(), s, tc.key, tc.offset, tc.length)
		if !errors.Is(err, tc.err) {
			t.Errorf("Open(%q, %d, %d): got error %v, want %v", tc.key, tc.offset, tc.length, err, tc.err)
		}
		if err == nil && !bytes.Equal(got, tc.want) {
			t.Errorf("Open(%q, %d, %d): got %d bytes, want others or %d", tc.key, tc.offset, tc.length, len(got), len(tc.want))
		}
	}
}

func readRange(ctx context.Context, s objectstore.Store, key string, offset, length int64) ([]byte, error) {
	r, err := s.Open(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func absent(t *testing.T, s objectstore.Store) {
	must(s.Create(t.Context(), "a/b", []byte("x")))(t)
	for _, key := range []string{"no", "a", "a/c", "a/b/c"} {
		if _, err := s.Stat(t.Context(), key); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("Stat(%q): got %v, want ErrNotFound", key, err)
		}
		if _, err := s.Open(t.Context(), key, 0, -1); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("Open(%q): got %v, want ErrNotFound", key, err)
		}
		if _, err := s.Open(t.Context(), key, 3, 0); !errors.Is(err, objectstore.ErrNotFound) {
			t.Errorf("Open(%q, 3, 0): got %v, want ErrNotFound", key, err)
		}
	}
}

// Bytes returns n bytes that no compressor shrinks, the same for the same seed.
func Bytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	_, _ = r.Read(b) // never fails
	return b
}

// must stops the test on an error: must(f())(t).
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
