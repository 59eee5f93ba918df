package s3

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/tree"
)

// counter counts requests by method and kind of object, as they pass.
type counter struct {
	mu   sync.Mutex
	seen map[string]int
	// bytes of bodies of PUTs, by kind.
	bytes map[string]int64
}

func (c *counter) count(_ http.ResponseWriter, r *http.Request, _ int64, _ http.Handler) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/"+bucket+"/cluster-a/")
	what := r.Method + " " + kindOf(key)
	if r.URL.Query().Has("list-type") || r.URL.Query().Has("versions") {
		what = "LIST"
	}
	c.seen[what]++
	c.bytes[what] += max(0, r.ContentLength)
	return false
}

// kindOf is what FORMAT.md section 1 calls the object at key.
func kindOf(key string) string {
	switch name := path.Base(key); {
	case key == keys.FormatKey:
		return "format"
	case strings.HasPrefix(key, "k/"):
		return "epoch"
	case strings.HasPrefix(key, "s/"):
		return "session"
	case strings.HasPrefix(key, "c/"):
		return "commit"
	case strings.HasPrefix(key, "t/"):
		return "tombstone"
	case strings.HasPrefix(key, "r/"):
		return map[byte]string{'k': "data key", 'p': "pack", 'i': "index pack"}[name[0]]
	default:
		return key
	}
}

// take returns what was counted since the last call.
func (c *counter) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	c.seen, c.bytes = map[string]int{}, map[string]int64{}
	return seen
}

// engine is a repository in a real server, with all requests counted.
type engine struct {
	counter    counter
	store      *s3store.Store
	keys       *keys.Keys
	identity   age.Identity
	recipients keys.Recipients
}

func newEngine(t *testing.T, srv *Server) *engine {
	t.Helper()
	e := &engine{counter: counter{seen: map[string]int{}, bytes: map[string]int64{}}}
	opt := srv.Options
	opt.Endpoint = proxyTo(t, opt.Endpoint, e.counter.count)
	opt.Checksum = s3store.CRC32C
	var err error
	if e.store, err = s3store.New(opt); err != nil {
		t.Fatal(err)
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	e.identity = identity
	if e.recipients, err = keys.ParseRecipients([]string{identity.Recipient().String()}); err != nil {
		t.Fatal(err)
	}
	if e.keys, err = keys.Generate(); err != nil {
		t.Fatal(err)
	}
	if err := repository.Init(t.Context(), e.store, e.keys, e.recipients); err != nil {
		t.Fatal(err)
	}
	return e
}

// backup is one backup of a disk and a small set of files.
func (e *engine) backup(ctx context.Context, name string, parent *repository.CommitRef, disk []byte) (repository.Result, error) {
	r, err := repository.OpenWithKeys(ctx, e.store, e.keys)
	if err != nil {
		return repository.Result{}, err
	}
	b, err := r.Begin(ctx, repository.BackupSpec{
		VM:      repository.VM{Namespace: "prod", Name: "db", UID: "vm"},
		Backup:  repository.BackupID{Namespace: "prod", Name: name, UID: name},
		Created: time.Unix(1_790_000_000, 0), Parent: parent, Recipients: e.recipients, PackBytes: 1 << 20,
	})
	if err != nil {
		return repository.Result{}, err
	}
	defer b.Close()
	if done := b.Committed(); done != nil {
		return *done, nil
	}
	_, err = b.AddBlock(ctx, repository.BlockVolume{Name: "root", Role: "Disk", Mode: "Block", Size: int64(len(disk)), Source: bytes.NewReader(disk)})
	if err != nil {
		return repository.Result{}, err
	}
	_, err = b.AddTree(ctx, repository.TreeVolume{
		Name: "state", Role: "FirmwareState", Mode: "Filesystem",
		Entries: []tree.Entry{{Path: "tpm", Type: tree.TypeFile, Mode: 0o600, Size: int64(len(name))}},
		Open:    func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(name)), nil },
	})
	if err != nil {
		return repository.Result{}, err
	}
	return b.Commit(ctx, nil)
}

// TestRequests compares the requests of a backup, an increment and a restore, one by one,
// with what FORMAT.md section 9 says of them. Nothing is listed, in a bucket with versions
// and object lock neither.
func TestRequests(t *testing.T) {
	for name, b := range map[string]Bucket{"Plain": {}, "Locked": {Locked: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requests(t, newEngine(t, StartWith(t, b)))
		})
	}
}

func requests(t *testing.T, e *engine) {
	disk := storetest.Bytes(1, 9<<20) // packs of 1 MiB that end with the frame that fills them
	e.counter.take()
	first, err := e.backup(t.Context(), "first", nil, disk)
	if err != nil {
		t.Fatal(err)
	}
	packs := int(first.StoredBytes>>20) + 1
	e.expect(t, "first backup", map[string]int{
		"GET format": 1, "PUT session": 1, "PUT data key": 1, "PUT pack": packs, "PUT index pack": 1, "PUT commit": 1,
		"GET commit": 1, // the look for its own
	})
	copy(disk[4<<20:], storetest.Bytes(2, 100_000))
	second, err := e.backup(t.Context(), "second", &first.CommitRef, disk)
	if err != nil {
		t.Fatal(err)
	}
	e.expect(t, "increment", map[string]int{
		"GET format": 1, "PUT session": 1, "PUT data key": 1, "PUT pack": 1, "PUT index pack": 1, "PUT commit": 1,
		// The look for its own commit, and the parent: its record, the look for its tombstone,
		// and of its index the pack table at the start, root and leaves of the disk, the one leaf
		// of the files, and the one leaf of each of the two tables.
		"GET commit": 1 + 1, "GET tombstone": 1, "GET index pack": 1 + 2 + 1 + 2,
	})
	if err := e.restore(t.Context(), second.CommitRef, disk); err != nil {
		t.Fatal(err)
	}
	e.expect(t, "restore", map[string]int{
		"GET format": 1, "GET epoch": 1 + 1, // the epoch's, and the look for a later one
		"GET commit": 2, // once to show it, once to restore it
		// The key table, the root of the disk, its leaves of the first and of the second backup;
		// what is needed of each pack in one read.
		"GET data key": 2, "GET index pack": 1 + 1 + 2, "GET pack": packs,
	})
}

func (e *engine) expect(t *testing.T, what string, want map[string]int) {
	t.Helper()
	got := e.counter.take()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: requests mismatch (-want +got):\n%s", what, diff)
	}
	total := 0
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(got)) {
		total += got[k]
		parts = append(parts, fmt.Sprintf("%s %d", k, got[k]))
	}
	t.Logf("%s: %d requests: %s", what, total, strings.Join(parts, ", "))
}

// restore brings the disk back and compares it.
func (e *engine) restore(ctx context.Context, ref repository.CommitRef, want []byte) error {
	r, err := repository.OpenWithIdentities(ctx, e.store, []age.Identity{e.identity}, e.keys.SigningKey())
	if err != nil {
		return err
	}
	c, err := r.Commit(ctx, ref)
	if err != nil {
		return err
	}
	m := &memoryTarget{data: make([]byte, len(want))}
	if _, err := r.RestoreBlock(ctx, c, repository.RestoreSpec{Volume: "root", Target: m, Fresh: true}); err != nil {
		return err
	}
	if !bytes.Equal(m.data, want) {
		return fmt.Errorf("the disk that was restored differs")
	}
	return nil
}

// memoryTarget is a disk in memory.
type memoryTarget struct {
	mu   sync.Mutex
	data []byte
}

func (m *memoryTarget) WriteAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(m.data[off:], p), nil
}

func (m *memoryTarget) ReadAt(p []byte, off int64) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copy(p, m.data[off:]), nil
}

func (m *memoryTarget) Zero(off, length int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.data[off : off+length])
	return nil
}

func (m *memoryTarget) Sync() error { return nil }
