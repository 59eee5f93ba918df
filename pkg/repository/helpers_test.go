package repository_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/tree"
)

// world is a repository with one recipient, as writer and as reader see it.
type world struct {
	t          *testing.T
	store      objectstore.Store
	keys       *keys.Keys
	identities []age.Identity
	recipients keys.Recipients
	writer     *repository.Repository
}

// newWorld uses X25519 keys: they are small, so that test stores are as well.
func newWorld(t *testing.T, store objectstore.Store) *world {
	t.Helper()
	if store == nil {
		store = memstore.New()
	}
	identity, err := age.GenerateX25519Identity()
	must(t, err)
	w := &world{t: t, store: store, identities: []age.Identity{identity}}
	w.recipients, err = keys.ParseRecipients([]string{identity.Recipient().String()})
	must(t, err)
	w.keys, err = keys.Generate()
	must(t, err)
	must(t, repository.Init(t.Context(), store, w.keys, w.recipients))
	w.writer, err = repository.OpenWithKeys(t.Context(), store, w.keys)
	must(t, err)
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) reader() *repository.Repository {
	w.t.Helper()
	r, err := repository.OpenWithIdentities(w.t.Context(), w.store, w.identities, w.keys.SigningKey())
	must(w.t, err)
	return r
}

func (w *world) spec(backup string, parent *repository.Result) repository.BackupSpec {
	s := repository.BackupSpec{
		VM:         repository.VM{Namespace: "prod", Name: "db", UID: "vm-uid"},
		Backup:     repository.BackupID{Namespace: "prod", Name: backup, UID: "uid-" + backup},
		Created:    time.Unix(1_790_000_000, 0),
		Recipients: w.recipients,
		PackBytes:  1 << 20,
	}
	if parent != nil {
		s.Parent = &parent.CommitRef
	}
	return s
}

// input is what a test backs up.
type input struct {
	disks [][]byte
	files map[string]string
}

func (in input) clone() input {
	out := input{files: map[string]string{}}
	for _, d := range in.disks {
		out.disks = append(out.disks, bytes.Clone(d))
	}
	for k, v := range in.files {
		out.files[k] = v
	}
	return out
}

func (in input) entries() []tree.Entry {
	entries := []tree.Entry{{Path: ".", Type: tree.TypeDir, Mode: 0o755, UID: 107, GID: 107}}
	for path, text := range in.files {
		entries = append(entries, tree.Entry{
			Path: path, Type: tree.TypeFile, Mode: 0o600, UID: 107, GID: 107, Size: int64(len(text)),
			ModTime: time.Unix(1_780_000_000, 42), Xattrs: []tree.Xattr{{Name: "user.a", Value: []byte("b")}},
		})
	}
	tree.Sort(entries)
	return entries
}

func diskName(i int) string { return "disk" + string(rune('a'+i)) }

// run adds everything of in to a run and commits it.
func run(ctx context.Context, b *repository.Backup, in input) (repository.Result, error) {
	if r := b.Committed(); r != nil {
		return *r, nil
	}
	for i, d := range in.disks {
		_, err := b.AddBlock(ctx, repository.BlockVolume{
			Name: diskName(i), Role: "Disk", Mode: "Block", Size: int64(len(d)), LogicalBlockSize: 512,
			Source: bytes.NewReader(d),
		})
		if err != nil {
			return repository.Result{}, err
		}
	}
	if in.files != nil {
		_, err := b.AddTree(ctx, repository.TreeVolume{
			Name: "state", Role: "FirmwareState", Mode: "Filesystem", Entries: in.entries(),
			Open: func(p string) (io.ReadCloser, error) {
				return io.NopCloser(strings.NewReader(in.files[p])), nil
			},
		})
		if err != nil {
			return repository.Result{}, err
		}
	}
	return b.Commit(ctx, []byte(`{"binding":"SingleDisk"}`))
}

func (w *world) try(spec repository.BackupSpec, in input) (repository.Result, error) {
	b, err := w.writer.Begin(w.t.Context(), spec)
	if err != nil {
		return repository.Result{}, err
	}
	defer b.Close()
	return run(w.t.Context(), b, in)
}

func (w *world) backup(name string, parent *repository.Result, in input) *repository.Result {
	w.t.Helper()
	r, err := w.try(w.spec(name, parent), in)
	must(w.t, err)
	return &r
}

// target is a disk in memory with what was there before.
type target struct {
	mu   sync.Mutex
	data []byte
}

var errBehindEnd = errors.New("behind the end of the target")

func (d *target) WriteAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if off+int64(len(p)) > int64(len(d.data)) {
		return 0, errBehindEnd
	}
	return copy(d.data[off:], p), nil
}

func (d *target) ReadAt(p []byte, off int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return copy(p, d.data[off:]), nil
}

func (d *target) Zero(off, length int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.data[off : off+length])
	return nil
}

func (d *target) Sync() error { return nil }

// restoreAll brings everything of a backup back into targets full of garbage.
func restoreAll(ctx context.Context, r *repository.Repository, ref repository.CommitRef) (input, error) {
	var out input
	c, err := r.Commit(ctx, ref)
	if err != nil {
		return out, err
	}
	if err := r.Check(ctx, c); err != nil {
		return out, err
	}
	for _, v := range c.Volumes {
		if v.Kind == repository.KindTree {
			if out.files, err = readFiles(ctx, r, c, v.Name); err != nil {
				return out, err
			}
			continue
		}
		d := &target{data: bytes.Repeat([]byte{0xa5}, int(v.Size))}
		if _, err := r.RestoreBlock(ctx, c, repository.RestoreSpec{Volume: v.Name, Target: d}); err != nil {
			return out, err
		}
		out.disks = append(out.disks, d.data)
	}
	return out, nil
}

func readFiles(ctx context.Context, r *repository.Repository, c *repository.Commit, volume string) (map[string]string, error) {
	t, err := r.ReadTree(ctx, c, volume)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, e := range t.Entries() {
		if e.Type != tree.TypeFile {
			continue
		}
		b, err := t.Contents(ctx, e.Path)
		if err != nil {
			return nil, err
		}
		files[e.Path] = string(b)
	}
	return files, nil
}

func (in input) equal(other input) bool {
	if len(in.disks) != len(other.disks) || len(in.files) != len(other.files) {
		return false
	}
	for i := range in.disks {
		if !bytes.Equal(in.disks[i], other.disks[i]) {
			return false
		}
	}
	for k, v := range in.files {
		if other.files[k] != v {
			return false
		}
	}
	return true
}

func (w *world) mustRestore(ref repository.CommitRef, want input) {
	w.t.Helper()
	got, err := restoreAll(w.t.Context(), w.reader(), ref)
	must(w.t, err)
	if !got.equal(want) {
		w.t.Errorf("restore of %q differs from what was backed up", ref.Key)
	}
	w.checkBooks(ref)
}

// checkBooks compares the live bytes in the tables with a full count. Garbage
// collection and compaction will rest on them.
func (w *world) checkBooks(ref repository.CommitRef) {
	w.t.Helper()
	c, err := w.writer.Commit(w.t.Context(), ref)
	must(w.t, err)
	counted, listed, err := w.writer.CountLive(w.t.Context(), c)
	must(w.t, err)
	if diff := cmp.Diff(counted, listed); diff != "" {
		w.t.Errorf("live bytes of %q (-counted +listed):\n%s", ref.Key, diff)
	}
}
