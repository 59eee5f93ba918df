package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// RunVersions tests the versions of the stores that open returns. Each must be empty;
// kept says that it keeps versions, and is not just asked as if it did.
func RunVersions(t *testing.T, kept bool, open func(t *testing.T) objectstore.Versioned) {
	if kept {
		t.Run("Versions", func(t *testing.T) { versions(t, open(t)) })
		t.Run("VersionsOfSeveral", func(t *testing.T) { versionsOfSeveral(t, open(t)) })
	} else {
		t.Run("OneVersion", func(t *testing.T) { oneVersion(t, open(t)) })
	}
	t.Run("Remove", func(t *testing.T) { remove(t, open(t)) })
}

// versions: what was overwritten or deleted is still read by its id, and is gone only
// when that id is deleted.
func versions(t *testing.T, s objectstore.Versioned) {
	first := must(s.Create(t.Context(), "k/a", []byte("first")))(t)
	if err := s.Delete(t.Context(), "k/a"); err != nil {
		t.Fatal(err)
	}
	second := must(s.Create(t.Context(), "k/a", []byte("second, after a deletion")))(t)
	if first.VersionID == "" || first.VersionID == second.VersionID {
		t.Fatalf("version ids: first %q, second %q", first.VersionID, second.VersionID)
	}
	all := listVersions(t, s, "")
	marker := all[1].ID
	want := []objectstore.Version{
		{Key: "k/a", ID: second.VersionID, Size: second.Size, Latest: true},
		{Key: "k/a", ID: marker, Marker: true},
		{Key: "k/a", ID: first.VersionID, Size: first.Size},
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("Versions mismatch (-want +got):\n%s", diff)
	}
	for id, body := range map[string]string{first.VersionID: "first", second.VersionID: "second, after a deletion"} {
		r := must(s.OpenVersion(t.Context(), "k/a", id, 1, 3))(t)
		got := make([]byte, 10)
		n, _ := r.Read(got)
		r.Close()
		if string(got[:n]) != body[1:4] {
			t.Errorf("OpenVersion(%q, 1, 3) reads %q, want %q", id, got[:n], body[1:4])
		}
		if info := must(s.StatVersion(t.Context(), "k/a", id))(t); info.Size != int64(len(body)) || info.VersionID != id {
			t.Errorf("StatVersion(%q): %+v", id, info)
		}
	}
	for _, id := range []string{second.VersionID, marker, second.VersionID} {
		if err := s.DeleteVersion(t.Context(), "k/a", id); err != nil {
			t.Errorf("DeleteVersion(%q): %v", id, err)
		}
	}
	if _, err := s.OpenVersion(t.Context(), "k/a", second.VersionID, 0, -1); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("OpenVersion of a deleted version: %v, want ErrNotFound", err)
	}
	if got := must(objectstore.Get(t.Context(), s, "k/a", 100))(t); string(got) != "first" {
		t.Errorf("after the later versions were deleted it reads %q", got)
	}
}

func versionsOfSeveral(t *testing.T, s objectstore.Versioned) {
	var want []objectstore.Version
	for _, key := range []string{"v/a", "v/a-b", "v/a/b", "v/ab"} {
		info := must(s.Create(t.Context(), key, []byte(key)))(t)
		want = append(want, objectstore.Version{Key: key, ID: info.VersionID, Size: info.Size, Latest: true})
	}
	must(s.Create(t.Context(), "w", nil))(t)
	if err := s.Delete(t.Context(), "v/a-b"); err != nil {
		t.Fatal(err)
	}
	got := listVersions(t, s, "v/")
	want[1].Latest = false
	marker := objectstore.Version{Key: "v/a-b", ID: got[1].ID, Latest: true, Marker: true}
	want = append(want[:1], append([]objectstore.Version{marker}, want[1:]...)...)
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

func remove(t *testing.T, s objectstore.Versioned) {
	for range 2 {
		must(s.Create(t.Context(), "k/a", []byte("abc")))(t)
		if err := s.Delete(t.Context(), "k/a"); err != nil {
			t.Fatal(err)
		}
	}
	must(s.Create(t.Context(), "k/ab", []byte("abc")))(t)
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
