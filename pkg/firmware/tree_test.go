package firmware

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTreeValidate(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     Tree
		bad    bool
	}{
		"State":       {"what KubeVirt keeps", stateTree(t), false},
		"Empty":       {"a volume that nobody wrote to", Tree{}, false},
		"DashSibling": {"a sibling sorts between a directory and its files", treeOf(directory("a"), directory("a-b"), file("a-b/x", nil), file("a/x", nil)), false},
		"Escape":      {"a path must not leave the volume", treeOf(file("../x", nil)), true},
		"Absolute":    {"a path is relative", treeOf(file("/etc/passwd", nil)), true},
		"Unclean":     {"one name for one file", treeOf(directory("a"), file("a//x", nil)), true},
		"Root":        {"the root belongs to the volume", treeOf(directory(".")), true},
		"ZeroByte":    {"no file system has such a name", treeOf(file("a\x00b", nil)), true},
		"NoParent":    {"a file needs its directory", treeOf(file("a/x", nil)), true},
		"FileParent":  {"a file is no directory", treeOf(file("a", nil), file("a/x", nil)), true},
		"Twice":       {"one entry for one name", Tree{Entries: []Entry{file("a", nil), file("a", nil)}}, true},
		"Unsorted":    {"the encoding has one order", Tree{Entries: []Entry{file("b", nil), file("a", nil)}}, true},
		"Mode":        {"a mode is permissions", treeOf(Entry{Path: "a", Type: TypeFile, Mode: 0o100600}), true},
		"Type":        {"links are not kept", treeOf(Entry{Path: "a", Type: "l"}), true},
		"DirContent":  {"a directory has no content", treeOf(Entry{Path: "a", Type: TypeDirectory, Content: []byte{1}}), true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := tc.in.Validate(); errors.Is(err, ErrBadTree) != tc.bad {
				t.Errorf("%s: Validate() = %v, want bad %v", tc.reason, err, tc.bad)
			}
		})
	}
}

func TestTreeDigest(t *testing.T) {
	base := treeOf(directory("a"), file("a/x", []byte("one")))
	// The vector pins the encoding of the package comment: backups hold this value.
	const vector = "2a5175e046f6fd67639ee50b4414c2a4740dcd91e990d2852eaa67228e390139"
	if got := base.Digest(); got != vector {
		t.Errorf("Digest() = %s, want %s", got, vector)
	}
	seen := map[string]string{base.Digest(): "base"}
	change := func(name string, edit func(*Entry)) {
		e := file("a/x", []byte("one"))
		edit(&e)
		d := base.without("a/x").with(e).Digest()
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[d] = name
	}
	change("path", func(e *Entry) { e.Path = "a/y" })
	change("mode", func(e *Entry) { e.Mode = 0o640 })
	change("uid", func(e *Entry) { e.UID = 0 })
	change("gid", func(e *Entry) { e.GID = 0 })
	change("time", func(e *Entry) { e.ModTime++ })
	change("content", func(e *Entry) { e.Content = []byte("two") })
	change("attribute", func(e *Entry) { e.Xattrs = map[string][]byte{"user.a": []byte("bc")} })
	change("attribute split elsewhere", func(e *Entry) { e.Xattrs = map[string][]byte{"user.ab": []byte("c")} })
	change("type", func(e *Entry) { e.Type, e.Content, e.ModTime = TypeDirectory, nil, 0 })
}

func TestReadingCompare(t *testing.T) {
	base := Reading{Files: []FileReading{
		{Path: "nvram/db_VARS.fd", Inode: 12, ChangeTime: 100, Size: 540672, Digest: "aa"},
		{Path: "swtpm/u/tpm2/tpm2-00.permall", Inode: 13, ChangeTime: 200, Size: 1300, Digest: "bb"},
	}}
	tpm := func(edit func(*FileReading)) Reading {
		r := Reading{Files: append([]FileReading(nil), base.Files...)}
		edit(&r.Files[1])
		return r
	}
	const p = "swtpm/u/tpm2/tpm2-00.permall"
	cases := map[string]struct {
		reason string
		later  Reading
		want   []Change
	}{
		"Same":      {"an idle guest", tpm(func(*FileReading) {}), nil},
		"NewState":  {"swtpm writes a new file and renames it", tpm(func(f *FileReading) { f.Inode, f.ChangeTime, f.Digest = 99, 300, "cc" }), []Change{{p, "was replaced by another content"}}},
		"Written":   {"OVMF writes in place", tpm(func(f *FileReading) { f.ChangeTime, f.Digest = 300, "cc" }), []Change{{p, "was written"}}},
		"SameTick":  {"a write within one tick of the clock shows in the content", tpm(func(f *FileReading) { f.Digest = "cc" }), []Change{{p, "was written"}}},
		"ThereBack": {"written twice, with the first content again", tpm(func(f *FileReading) { f.ChangeTime = 300 }), []Change{{p, "was touched: same content, other change time"}}},
		"Replaced":  {"a migration or a restore put the same bytes there", tpm(func(f *FileReading) { f.Inode = 99 }), []Change{{p, "was replaced by the same content"}}},
		"Size":      {"more state", tpm(func(f *FileReading) { f.Size, f.Digest = 1400, "cc" }), []Change{{p, "changed its size from 1300 to 1400 bytes"}}},
		"Gone":      {"the volume was emptied", Reading{Files: base.Files[:1]}, []Change{{p, "was removed"}}},
		"Added": {"volatile state written by a migration", Reading{Files: append(base.Files[:2:2], FileReading{Path: "swtpm/u/tpm2/tpm2-00.volatilestate"})},
			[]Change{{"swtpm/u/tpm2/tpm2-00.volatilestate", "is new"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := base.Compare(tc.later)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nCompare() mismatch (-want +got):\n%s", tc.reason, diff)
			}
			if same := base.Digest() == tc.later.Digest(); same != (len(got) == 0) {
				t.Errorf("%s: digests equal is %v with %d changes", tc.reason, same, len(got))
			}
		})
	}
}
