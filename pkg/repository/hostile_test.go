package repository_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/tree"
)

// sparse is some bytes and then zeros.
type sparse []byte

func (s sparse) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(s)) {
		copy(p, s[off:])
	}
	return len(p), nil
}

// TestTreeOfTooMuch: a manifest that its writer signed is still not a reason to take
// any amount of memory.
func TestTreeOfTooMuch(t *testing.T) {
	cases := map[string]struct {
		sizes []int64
		want  error
	}{
		"Most":    {[]int64{repository.MaxTreeBytes - 5, 5}, nil},
		"OneOver": {[]int64{repository.MaxTreeBytes - 5, 6}, repository.ErrDamaged},
		"Huge":    {[]int64{1 << 40}, repository.ErrDamaged},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			entries := []tree.Entry{{Path: ".", Type: tree.TypeDir}}
			for i, size := range tc.sizes {
				entries = append(entries, tree.Entry{Path: fmt.Sprint("f", i), Type: tree.TypeFile, Size: size})
			}
			manifest, err := tree.Encode(entries)
			must(t, err)
			_, size := tree.Layout(entries, int64(len(manifest)), 16<<10)
			w := newWorld(t, nil)
			b, err := w.writer.Begin(t.Context(), w.spec("one", nil))
			must(t, err)
			defer b.Close()
			_, err = b.AddImage(t.Context(), repository.BlockVolume{
				Name: "state", Size: size, Source: sparse(manifest),
				Extents: func(yield func(repository.Extent, error) bool) {
					yield(repository.Extent{Length: int64(len(manifest))}, nil)
				},
			}, int64(len(manifest)))
			must(t, err)
			one, err := b.Commit(t.Context(), nil)
			must(t, err)
			r := w.reader()
			c, err := r.Commit(t.Context(), one.CommitRef)
			must(t, err)
			if _, err := r.ReadTree(t.Context(), c, "state"); !errors.Is(err, tc.want) {
				t.Errorf("read tree: %v, not %v", err, tc.want)
			}
		})
	}
}

// TestCommitOnce: a record is sealed once, since the second would have the same nonce.
func TestCommitOnce(t *testing.T) {
	w := newWorld(t, nil)
	b, err := w.writer.Begin(t.Context(), w.spec("one", nil))
	must(t, err)
	defer b.Close()
	_, err = b.AddBlock(t.Context(), repository.BlockVolume{Name: "disk", Size: 5, Source: bytes.NewReader([]byte("12345"))})
	must(t, err)
	_, err = b.Commit(t.Context(), []byte("one"))
	must(t, err)
	if _, err := b.Commit(t.Context(), []byte("two")); !errors.Is(err, repository.ErrInvalid) {
		t.Errorf("second commit: %v", err)
	}
	_, err = b.AddBlock(t.Context(), repository.BlockVolume{Name: "more", Size: 5, Source: io.NewSectionReader(nil, 0, 0)})
	if !errors.Is(err, repository.ErrInvalid) {
		t.Errorf("a volume behind the commit: %v", err)
	}
}

// TestUnreadableRecord: a record that no reader would take is not published.
func TestUnreadableRecord(t *testing.T) {
	w := newWorld(t, nil)
	spec := w.spec("one", nil)
	spec.VM.Name = strings.Repeat("x", 2000)
	if _, err := w.try(spec, input{disks: [][]byte{{1}}}); !errors.Is(err, repository.ErrInvalid) {
		t.Errorf("commit: %v", err)
	}
	if n := len(w.commits()); n != 0 {
		t.Errorf("%d commits", n)
	}
}

// TestLatestAndTheClock: a clock that was set back does not make an old backup the
// latest one of its virtual machine; a new machine with the name takes over.
func TestLatestAndTheClock(t *testing.T) {
	w := newWorld(t, nil)
	in := input{disks: [][]byte{{1, 2, 3}}}
	one := w.backup("one", nil, in)
	want := func(name string) {
		t.Helper()
		c, err := w.reader().Latest(t.Context(), "prod", "db")
		must(t, err)
		if c.Backup.Name != name {
			t.Errorf("latest is %q, not %q", c.Backup.Name, name)
		}
	}
	spec := w.spec("two", one)
	spec.Created = spec.Created.Add(-24 * time.Hour)
	_, err := w.try(spec, in)
	must(t, err)
	want("two")
	spec = w.spec("before", nil)
	spec.VM.UID, spec.Created = "older", spec.Created.Add(-48*time.Hour)
	_, err = w.try(spec, in)
	must(t, err)
	want("two")
	spec = w.spec("again", nil)
	spec.VM.UID, spec.Created = "newer", spec.Created.Add(time.Hour)
	_, err = w.try(spec, in)
	must(t, err)
	want("again")
}
