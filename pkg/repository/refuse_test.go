package repository_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// TestBadSources: what cannot be read ends the run with its volume's name, and
// nothing of it can be committed.
func TestBadSources(t *testing.T) {
	bad := func(change func(*repository.BlockVolume)) repository.BlockVolume {
		v := repository.BlockVolume{Name: "disk", Size: 2 << 20, Source: bytes.NewReader(make([]byte, 2<<20))}
		change(&v)
		return v
	}
	extents := func(list ...repository.Extent) func(*repository.BlockVolume) {
		return func(v *repository.BlockVolume) {
			v.Extents = func(yield func(repository.Extent, error) bool) {
				for _, e := range list {
					if !yield(e, nil) {
						return
					}
				}
			}
		}
	}
	cases := map[string]struct {
		volume repository.BlockVolume
		want   error
	}{
		"Short":    {bad(func(v *repository.BlockVolume) { v.Source = bytes.NewReader(make([]byte, 5)) }), repository.ErrSource},
		"Overlap":  {bad(extents(repository.Extent{Length: 10}, repository.Extent{Offset: 5, Length: 10})), repository.ErrSource},
		"Behind":   {bad(extents(repository.Extent{Offset: 3 << 20, Length: 10})), repository.ErrSource},
		"NoName":   {bad(func(v *repository.BlockVolume) { v.Name = "" }), repository.ErrInvalid},
		"Negative": {bad(func(v *repository.BlockVolume) { v.Size = -1 }), repository.ErrInvalid},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			b, err := w.writer.Begin(t.Context(), w.spec("one", nil))
			must(t, err)
			defer b.Close()
			if _, err = b.AddBlock(t.Context(), tc.volume); !errors.Is(err, tc.want) {
				t.Errorf("error is %v, not %v", err, tc.want)
			}
			if _, err := b.Commit(t.Context(), nil); errors.Is(tc.want, repository.ErrSource) && !errors.Is(err, tc.want) {
				t.Errorf("commit after the failure: %v", err)
			}
		})
	}
}

// cancelling is a disk that ends ctx once some of it is read.
type cancelling struct {
	*bytes.Reader
	cancel func()
}

func (c cancelling) ReadAt(p []byte, off int64) (int, error) {
	if off > 5<<20 {
		c.cancel()
	}
	return c.Reader.ReadAt(p, off)
}

// TestCancel: a volume that was given up in the middle is never part of a backup,
// whatever the caller does next.
func TestCancel(t *testing.T) {
	w := newWorld(t, nil)
	b, err := w.writer.Begin(t.Context(), w.spec("one", nil))
	must(t, err)
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	_, err = b.AddBlock(ctx, repository.BlockVolume{
		Name: "disk", Size: 20 << 20, Source: cancelling{bytes.NewReader(make([]byte, 20<<20)), cancel},
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("add ended with %v", err)
	}
	if _, err := b.Commit(t.Context(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("commit ended with %v", err)
	}
}

// TestTreeSources: a file that is not as long as its entry says is refused.
func TestTreeSources(t *testing.T) {
	for _, text := range []string{"shor", "longer"} {
		w := newWorld(t, nil)
		b, err := w.writer.Begin(t.Context(), w.spec("one", nil))
		must(t, err)
		defer b.Close()
		_, err = b.AddTree(t.Context(), repository.TreeVolume{
			Name: "state", Entries: input{files: map[string]string{"f": "exact"}}.entries(),
			Open: func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil },
		})
		if !errors.Is(err, repository.ErrSource) || !strings.Contains(err.Error(), `"f"`) {
			t.Errorf("file %q of 5 bytes: %v", text, err)
		}
	}
}

// TestBeginRefuses: what cannot become a backup is refused before the store is asked.
func TestBeginRefuses(t *testing.T) {
	w := newWorld(t, nil)
	in, _ := chainOfTwo(3 << 19)
	one := w.backup("one", nil, in)
	cases := map[string]func(*repository.BackupSpec){
		"NoVM":         func(s *repository.BackupSpec) { s.VM.UID = "" },
		"NoBackup":     func(s *repository.BackupSpec) { s.Backup.UID = "" },
		"NoRecipients": func(s *repository.BackupSpec) { s.Recipients = keys.Recipients{} },
		"TinyPacks":    func(s *repository.BackupSpec) { s.PackBytes = 5 },
		"ParentKey":    func(s *repository.BackupSpec) { s.Parent = &repository.CommitRef{Key: "x", Digest: one.Digest} },
		"ParentDigest": func(s *repository.BackupSpec) { s.Parent = &repository.CommitRef{Key: one.Key} },
		"ForeignParent": func(s *repository.BackupSpec) {
			s.Parent, s.VM.UID = &one.CommitRef, "another VM"
		},
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			spec := w.spec("two", nil)
			change(&spec)
			if _, err := w.writer.Begin(t.Context(), spec); !errors.Is(err, repository.ErrInvalid) {
				t.Errorf("error is %v", err)
			}
		})
	}
}
