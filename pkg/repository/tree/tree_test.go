package tree

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func sample() []Entry {
	at := time.Unix(-5, 999_999_999).UTC()
	return []Entry{
		{Path: ".", Type: TypeDir, Mode: 0o755, UID: 107, GID: 107, ModTime: at},
		{Path: "nvram", Type: TypeDir, Mode: 0o2770, ModTime: at},
		{Path: "nvram/vm_VARS.fd", Type: TypeFile, Mode: 0o600, ModTime: at, Size: 540672,
			Xattrs: []Xattr{{Name: "security.selinux", Value: []byte("x\x00")}, {Name: "user.b", Value: nil}}},
		{Path: "swtpm", Type: TypeSymlink, Mode: 0o777, ModTime: at, Target: "../elsewhere"},
	}
}

func TestRoundTrip(t *testing.T) {
	want := sample()
	manifest, err := Encode(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestCheck(t *testing.T) {
	cases := map[string]func([]Entry) []Entry{
		"Absolute":    func(e []Entry) []Entry { e[1].Path = "/etc"; return e },
		"Upwards":     func(e []Entry) []Entry { e[1].Path = "../x"; return e },
		"Unclean":     func(e []Entry) []Entry { e[1].Path = "a//b"; return e },
		"Empty":       func(e []Entry) []Entry { e[1].Path = ""; return e },
		"Null":        func(e []Entry) []Entry { e[1].Path = "nv\x00ram"; return e },
		"Unsorted":    func(e []Entry) []Entry { e[1], e[3] = e[3], e[1]; return e },
		"Twice":       func(e []Entry) []Entry { e[1].Path = "."; return e },
		"NoParent":    func(e []Entry) []Entry { return append(e[:1], e[2:]...) },
		"UnderALink":  func(e []Entry) []Entry { return append(e, Entry{Path: "swtpm/x", Type: TypeFile}) },
		"Type":        func(e []Entry) []Entry { e[1].Type = 9; return e },
		"Mode":        func(e []Entry) []Entry { e[1].Mode = 0o100644; return e },
		"DirSize":     func(e []Entry) []Entry { e[1].Size = 1; return e },
		"NoTarget":    func(e []Entry) []Entry { e[3].Target = ""; return e },
		"FileTarget":  func(e []Entry) []Entry { e[2].Target = "x"; return e },
		"XattrOrder":  func(e []Entry) []Entry { e[2].Xattrs[1].Name = "a"; return e },
		"XattrTooBig": func(e []Entry) []Entry { e[2].Xattrs[1].Value = make([]byte, 1<<17); return e },
		"LongPath":    func(e []Entry) []Entry { e[3].Path = strings.Repeat("x", 5000); return e },
	}
	if err := Check(sample()); err != nil {
		t.Errorf("sample: %v", err)
	}
	for name, breakIt := range cases {
		t.Run(name, func(t *testing.T) {
			if Check(breakIt(sample())) == nil {
				t.Error("no error")
			}
		})
	}
}

func TestLayout(t *testing.T) {
	entries := []Entry{{Size: 0}, {Size: 10}, {Size: 16 << 10}, {Size: 1}}
	offsets, size := Layout(entries, 20_000, 16<<10)
	if diff := cmp.Diff([]int64{-1, 32 << 10, 48 << 10, 64 << 10}, offsets); diff != "" || size != 64<<10+1 {
		t.Errorf("size %d, offsets (-want +got):\n%s", size, diff)
	}
}

func FuzzDecode(f *testing.F) {
	manifest, err := Encode(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(manifest)
	f.Fuzz(func(t *testing.T, in []byte) {
		entries, err := Decode(in)
		if err != nil {
			return
		}
		if again, err := Encode(entries); err != nil || !bytes.Equal(again, in) {
			t.Errorf("%x encodes to %x, %v", in, again, err)
		}
	})
}
