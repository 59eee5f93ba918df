package storetest

import (
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Overwritable is a store with versions that can put one over another: what only those
// who delete may do, and whoever has stolen credentials.
type Overwritable interface {
	objectstore.Versioned
	objectstore.Deleter
}

// RunVersions tests the versions of the stores that open returns. Each must be empty
// and keep versions.
func RunVersions(t *testing.T, open func(t *testing.T) Overwritable) {
	for name, test := range map[string]func(*testing.T, Overwritable){
		"Versions": versions, "VersionsOfSeveral": versionsOfSeveral, "Remove": remove,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// RunOneVersion tests a store that keeps no versions and is asked as if it did.
func RunOneVersion(t *testing.T, open func(t *testing.T) objectstore.Versioned) {
	t.Run("OneVersion", func(t *testing.T) { oneVersion(t, open(t)) })
}

// versions: what was overwritten or deleted is still read by its id, and is gone only
// when that id is deleted.
func versions(t *testing.T, s Overwritable) {
	first := must(s.Create(t.Context(), "k/a", []byte("first")))(t)
	if err := s.Delete(t.Context(), "k/a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stat(t.Context(), "k/a"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Stat of a deleted key: %v, want ErrNotFound", err)
	}
	must(s.Replace(t.Context(), "k/a", []byte("second, after a deletion")))(t)
	all := listVersions(t, s, "")
	if len(all) != 3 || first.VersionID == "" || all[0].ID == first.VersionID {
		t.Fatalf("first version %q; versions %+v", first.VersionID, all)
	}
	markers := slices.DeleteFunc(slices.Clone(all), func(v objectstore.Version) bool { return !v.Marker })
	objects := slices.DeleteFunc(slices.Clone(all), func(v objectstore.Version) bool { return v.Marker })
	second, marker := all[0].ID, markers[0].ID
	want := []objectstore.Version{
		{Key: "k/a", ID: second, Size: 24, Latest: true},
		{Key: "k/a", ID: first.VersionID, Size: first.Size},
	}
	if diff := cmp.Diff(want, objects); diff != "" {
		t.Errorf("Versions mismatch (-want +got):\n%s", diff)
	}
	for id, body := range map[string]string{first.VersionID: "first", second: "second, after a deletion"} {
		readVersion(t, s, id, body)
	}
	for _, id := range []string{second, marker, second} {
		if err := s.DeleteVersion(t.Context(), "k/a", id); err != nil {
			t.Errorf("DeleteVersion(%q): %v", id, err)
		}
	}
	if _, err := s.OpenVersion(t.Context(), "k/a", second, 0, -1); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("OpenVersion of a deleted version: %v, want ErrNotFound", err)
	}
	if got := must(objectstore.Get(t.Context(), s, "k/a", 100))(t); string(got) != "first" {
		t.Errorf("after the later versions were deleted it reads %q", got)
	}
}

func readVersion(t *testing.T, s objectstore.Versioned, id, body string) {
	t.Helper()
	r := must(s.OpenVersion(t.Context(), "k/a", id, 1, 3))(t)
	defer r.Close()
	if got := must(io.ReadAll(r))(t); string(got) != body[1:4] {
		t.Errorf("OpenVersion(%q, 1, 3) reads %q, want %q", id, got, body[1:4])
	}
	if info := must(s.StatVersion(t.Context(), "k/a", id))(t); info.Size != int64(len(body)) || info.VersionID != id {
		t.Errorf("StatVersion(%q): %+v", id, info)
	}
}

func versionsOfSeveral(t *testing.T, s Overwritable) {
	var want []objectstore.Version
	for _, key := range []string{"v/a-b", "v/a/b", "v/ab", "v/b"} {
		info := must(s.Create(t.Context(), key, []byte(key)))(t)
		want = append(want, objectstore.Version{Key: key, ID: info.VersionID, Size: info.Size, Latest: true})
	}
	must(s.Create(t.Context(), "w", nil))(t)
	if err := s.Delete(t.Context(), "v/a/b"); err != nil {
		t.Fatal(err)
	}
	got := listVersions(t, s, "v/")
	want[1].Latest = false
	marker := objectstore.Version{Key: "v/a/b", ID: got[1].ID, Latest: true, Marker: true}
	want = []objectstore.Version{want[0], marker, want[1], want[2], want[3]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Versions mismatch (-want +got):\n%s", diff)
	}
}

func oneVersion(t *testing.T, s objectstore.Versioned) {
	must(s.Create(t.Context(), "k/a", []byte("abc")))(t)
	want := []objectstore.Version{{Key: "k/a", Size: 3, Latest: true}}
	if diff := cmp.Diff(want, listVersions(t, s, "k")); diff != "" {
		t.Errorf("Versions mismatch (-want +got):\n%s", diff)
	}
	for range 2 {
		if err := s.DeleteVersion(t.Context(), "k/a", ""); err != nil {
			t.Errorf("DeleteVersion: %v", err)
		}
	}
	if _, err := s.Stat(t.Context(), "k/a"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("Stat after it: %v, want ErrNotFound", err)
	}
}

func remove(t *testing.T, s Overwritable) {
	for _, key := range []string{"k/a", "k/ab"} {
		must(s.Create(t.Context(), key, []byte("abc")))(t)
	}
	must(s.Replace(t.Context(), "k/a", []byte("other")))(t)
	if err := s.Delete(t.Context(), "k/a"); err != nil {
		t.Fatal(err)
	}
	if err := objectstore.Remove(t.Context(), s, "k/a"); err != nil {
		t.Fatal(err)
	}
	if left := listVersions(t, s, ""); len(left) != 1 || left[0].Key != "k/ab" {
		t.Errorf("after Remove: %+v", left)
	}
}

// RunLock tests a store with object lock that open returns, empty. Objects that it
// locks stay locked for two hours.
func RunLock(t *testing.T, open func(t *testing.T) objectstore.Locker) {
	for _, mode := range []objectstore.RetentionMode{objectstore.Governance, objectstore.Compliance} {
		t.Run("Lock/"+string(mode), func(t *testing.T) { lock(t, open(t), mode) })
	}
}

func lock(t *testing.T, s objectstore.Locker, mode objectstore.RetentionMode) {
	info := must(s.Create(t.Context(), "k/a", []byte("kept")))(t)
	if r := must(s.Retention(t.Context(), "k/a", info.VersionID))(t); !r.Until.IsZero() {
		t.Errorf("retention of an object without: %+v", r)
	}
	for _, hours := range []int{1, 2} {
		want := objectstore.Retention{Mode: mode, Until: time.Now().Add(time.Duration(hours) * time.Hour).Truncate(time.Second).UTC()}
		if err := s.Retain(t.Context(), "k/a", info.VersionID, want); err != nil {
			t.Fatalf("Retain for %d h: %v", hours, err)
		}
		got := must(s.Retention(t.Context(), "k/a", info.VersionID))(t)
		if diff := cmp.Diff(want, got, cmpopts.EquateApproxTime(time.Second)); diff != "" {
			t.Errorf("Retention mismatch (-want +got):\n%s", diff)
		}
	}
	if err := s.DeleteVersion(t.Context(), "k/a", info.VersionID); !errors.Is(err, objectstore.ErrLocked) {
		t.Errorf("DeleteVersion of a locked version: %v, want ErrLocked", err)
	}
	shorter := objectstore.Retention{Mode: mode, Until: time.Now().Add(time.Minute)}
	if err := s.Retain(t.Context(), "k/a", info.VersionID, shorter); !errors.Is(err, objectstore.ErrLocked) && !errors.Is(err, objectstore.ErrDenied) {
		t.Errorf("Retain for less: %v, want ErrLocked or ErrDenied", err)
	}
	if err := s.Delete(t.Context(), "k/a"); err != nil {
		t.Errorf("Delete, which adds a marker: %v", err)
	}
	if err := objectstore.Remove(t.Context(), s, "k/a"); !errors.Is(err, objectstore.ErrLocked) {
		t.Errorf("Remove: %v, want ErrLocked", err)
	}
	if got := must(objectstore.Get(t.Context(), s, "k/a", 10))(t); string(got) != "kept" {
		t.Errorf("after all of that it reads %q", got)
	}
}

func listVersions(t *testing.T, s objectstore.Store, prefix string) []objectstore.Version {
	t.Helper()
	var found []objectstore.Version
	for v, err := range objectstore.Versions(t.Context(), s, prefix) {
		if err != nil {
			t.Fatalf("versions of %q: %v", prefix, err)
		}
		found = append(found, v)
	}
	return found
}
