package firmware

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWrite(t *testing.T) {
	tree := owned(stateTree(t)).with(owned(treeOf(Entry{Path: "sealed", Type: TypeDirectory, Mode: 0o500}, Entry{Path: "sealed/x", Type: TypeFile, Mode: 0o400, Content: []byte("1")})).Entries...)
	dir := t.TempDir()
	if err := Write(dir, tree, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := Verify(t.Context(), dir, tree, OwnersKeep); err != nil {
		t.Error(err)
	}
	if err := Write(dir, tree, WriteOptions{}); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("a second Write() = %v, want ErrNotEmpty", err)
	}
	// A restore that was killed half way starts again on what it left.
	put(t, dir, "nvram/left_VARS.fd", []byte("half"))
	if err := Write(dir, tree, WriteOptions{Existing: ExistingRemove}); err != nil {
		t.Fatal(err)
	}
	if err := Verify(t.Context(), dir, tree, OwnersKeep); err != nil {
		t.Error(err)
	}
}

func TestWriteOwners(t *testing.T) {
	tree := stateTree(t) // all of it is of user 107
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	err := Write(dir, tree, WriteOptions{})
	if os.Getuid() != 0 {
		if !errors.Is(err, ErrOwner) {
			t.Errorf("Write() as another user = %v, want ErrOwner", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := Verify(t.Context(), dir, tree, OwnersKeep); err != nil {
		t.Error(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, permall), &st); err != nil || st.Uid != 107 || st.Gid != 107 {
		t.Errorf("owner %d:%d, %v, want 107:107", st.Uid, st.Gid, err)
	}
}

func TestWriteRefuses(t *testing.T) {
	outside := t.TempDir()
	dir := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, "nvram")); err != nil {
		t.Fatal(err)
	}
	err := Write(dir, owned(stateTree(t)), WriteOptions{})
	if !errors.Is(err, ErrNotEmpty) {
		t.Errorf("Write() over a link = %v, want ErrNotEmpty", err)
	}
	if err := Write(dir, treeOf(file("../x", nil)), WriteOptions{}); !errors.Is(err, ErrBadTree) {
		t.Errorf("Write() of a hostile tree = %v, want ErrBadTree", err)
	}
	label := owned(treeOf(file("x", nil)))
	label.Entries[0].Xattrs = map[string][]byte{"security.selinux": []byte("s0")}
	if err := Write(t.TempDir(), label, WriteOptions{}); err == nil || !strings.Contains(err.Error(), "security.selinux") {
		t.Errorf("Write() of a security label = %v, want a refusal", err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 {
		t.Errorf("something was written outside: %v, %v", entries, err)
	}
}

func TestVerify(t *testing.T) {
	tree := owned(stateTree(t))
	cases := map[string]struct {
		reason string
		damage func(dir string) error
		names  string
	}{
		"Altered": {"a byte went wrong", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, permall), []byte("x"), 0o600)
		}, permall},
		"Missing": {"a file is gone", func(dir string) error { return os.Remove(filepath.Join(dir, variablesFile)) }, variablesFile},
		"Extra":   {"KubeVirt made a blank TPM beside ours", func(dir string) error { return os.Mkdir(filepath.Join(dir, "swtpm", otherUUID), 0o700) }, otherUUID},
		"Mode":    {"the launcher could not read it", func(dir string) error { return os.Chmod(filepath.Join(dir, permall), 0o400) }, permall},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := Write(dir, tree, WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := tc.damage(dir); err != nil {
				t.Fatal(err)
			}
			err := Verify(t.Context(), dir, tree, OwnersKeep)
			if !errors.Is(err, ErrDiffers) || !strings.Contains(err.Error(), tc.names) {
				t.Errorf("%s: Verify() = %v, want ErrDiffers that names %q", tc.reason, err, tc.names)
			}
		})
	}
}
