package firmware

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// onDisk writes tree below a new folder, owned by whoever runs the test.
func onDisk(t *testing.T, tree Tree) string {
	t.Helper()
	dir := t.TempDir()
	if err := Write(dir, tree, WriteOptions{Owners: OwnersCaller}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// owned gives every entry the owner of this process.
func owned(tree Tree) Tree {
	out := Tree{Entries: append([]Entry(nil), tree.Entries...)}
	for i := range out.Entries {
		out.Entries[i].UID, out.Entries[i].GID = uint32(os.Getuid()), uint32(os.Getgid())
	}
	return out
}

func put(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	want := owned(stateTree(t))
	dir := onDisk(t, want)
	for _, d := range []string{"lost+found", "cbt"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, dir, d+"/inside", []byte("not ours"))
	}
	tpm := "swtpm/" + testUUID + "/tpm2/"
	put(t, dir, tpm+".lock", nil)
	put(t, dir, tpm+"TMP2-00.permall", []byte("half"))
	put(t, dir, "swtpm-localca/.lock.swtpm-localca", nil)
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "nvram/link")); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()

	got, err := Read(t.Context(), dir, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Tree, sameBytes); diff != "" {
		t.Errorf("Tree mismatch (-want +got):\n%s", diff)
	}
	skipped := []Skip{
		{"cbt", "changed block tracking of the disks, not firmware state"},
		{"lost+found", "belongs to the file system"},
		{"nvram/link", "neither a file nor a directory"},
		{"s", "neither a file nor a directory"},
		{"swtpm-localca/.lock.swtpm-localca", "lock file"},
		{tpm + ".lock", "lock file"},
		{tpm + "TMP2-00.permall", "half of an unfinished replacement by swtpm"},
	}
	if diff := cmp.Diff(skipped, got.Skipped); diff != "" {
		t.Errorf("Skipped mismatch (-want +got):\n%s", diff)
	}
	looked, err := Look(t.Context(), dir, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got.Reading, looked); diff != "" {
		t.Errorf("Look() differs from Read() (-read +look):\n%s", diff)
	}
	if n := len(got.Reading.Files); n != 3 {
		t.Errorf("reading of %d files, want 3", n)
	}
	if got.Reading.Bytes() != want.Bytes() {
		t.Errorf("reading of %d bytes, want %d", got.Reading.Bytes(), want.Bytes())
	}
}

func TestReadAttributes(t *testing.T) {
	dir := onDisk(t, treeOf(directory("nvram"), file("nvram/x", []byte("1"))))
	if err := unix.Setxattr(filepath.Join(dir, "nvram/x"), "user.origin", []byte{0, 1}, 0); errors.Is(err, unix.ENOTSUP) {
		t.Skip("the file system of the test has no attributes")
	} else if err != nil {
		t.Fatal(err)
	}
	s, err := Read(t.Context(), dir, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	e, _ := s.Tree.Find("nvram/x")
	if diff := cmp.Diff(map[string][]byte{"user.origin": {0, 1}}, e.Xattrs); diff != "" {
		t.Errorf("Xattrs mismatch (-want +got):\n%s", diff)
	}
	again := t.TempDir()
	if err := Write(again, s.Tree, WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := Verify(t.Context(), again, s.Tree, OwnersKeep); err != nil {
		t.Error(err)
	}
}

func TestReadChanges(t *testing.T) {
	dir := onDisk(t, stateTree(t))
	read := func() Reading {
		s, err := Read(t.Context(), dir, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return s.Reading
	}
	first := read()
	if c := first.Compare(read()); len(c) != 0 {
		t.Errorf("an idle volume changed: %v", c)
	}
	f, err := os.OpenFile(filepath.Join(dir, variablesFile), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{0xee}, 1000); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "swtpm/"+testUUID+"/tpm2/TMP2-00.permall", []byte("new state"))
	if c := first.Compare(read()); len(c) != 1 || c[0].Path != variablesFile || c[0].What != "was written" {
		t.Errorf("a write into the variables is seen as %v", c)
	}
	if err := os.Rename(filepath.Join(dir, "swtpm", testUUID, "tpm2/TMP2-00.permall"), filepath.Join(dir, permall)); err != nil {
		t.Fatal(err)
	}
	if c := first.Compare(read()); len(c) != 2 || c[1].Path != permall {
		t.Errorf("a new TPM state is seen as %v", c)
	}
}

// TestReadUnderRenames has a writer that works as swtpm does, without pause. Every
// reading must be one of its whole states, and reading must end.
func TestReadUnderRenames(t *testing.T) {
	dir := onDisk(t, stateTree(t))
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for n := byte(0); ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			tmp := filepath.Join(dir, "swtpm", testUUID, "tpm2/TMP2-00.permall")
			content := make([]byte, 4096)
			for i := range content {
				content[i] = n
			}
			if os.WriteFile(tmp, content, 0o600) != nil || os.Rename(tmp, filepath.Join(dir, permall)) != nil {
				return
			}
		}
	})
	settled := 0
	for range 50 {
		s, err := Read(t.Context(), dir, Limits{Attempts: 5})
		if errors.Is(err, ErrUnsettled) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		settled++
		e, _ := s.Tree.Find(permall)
		for _, b := range e.Content {
			if len(e.Content) == 4096 && b != e.Content[0] {
				t.Fatal("a reading holds parts of two states")
			}
		}
	}
	close(stop)
	writer.Wait()
	t.Logf("%d of 50 readings met a quiet moment", settled)
}

func TestReadRefuses(t *testing.T) {
	dir := onDisk(t, stateTree(t))
	cases := map[string]struct {
		limits Limits
		root   string
		want   error
	}{
		"TooManyBytes":   {Limits{MaxBytes: 1000}, dir, ErrTooLarge},
		"TooManyEntries": {Limits{MaxEntries: 3}, dir, ErrTooLarge},
		"NoVolume":       {Limits{}, filepath.Join(dir, "absent"), os.ErrNotExist},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := Read(t.Context(), tc.root, tc.limits); !errors.Is(err, tc.want) {
				t.Errorf("Read() = %v, want %v", err, tc.want)
			}
		})
	}
}
