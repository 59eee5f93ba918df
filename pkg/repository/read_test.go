package repository_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// TestCommitTells: what was given comes back from the record, to readers with an
// identity and to the writer alike.
func TestCommitTells(t *testing.T) {
	first, second := chainOfTwo(3 << 19)
	w := newWorld(t, nil)
	one := w.backup("one", nil, first)
	two := w.backup("two", one, second)
	want := &repository.Commit{
		Result:     *two,
		VM:         repository.VM{Namespace: "prod", Name: "db", UID: "vm-uid"},
		Backup:     repository.BackupID{Namespace: "prod", Name: "two", UID: "uid-two"},
		Created:    time.Unix(1_790_000_000, 0).UTC(),
		Parent:     &one.CommitRef,
		Moment:     []byte(`{"binding":"SingleDisk"}`),
		Recipients: w.recipients.Fingerprints(), Authenticated: true,
	}
	for name, r := range map[string]*repository.Repository{"reader": w.reader(), "writer": w.writer} {
		got, err := r.Commit(t.Context(), two.CommitRef)
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	latest, err := w.reader().Latest(t.Context(), "prod", "db")
	must(t, err)
	if latest.CommitRef != two.CommitRef {
		t.Errorf("latest is %v", latest.CommitRef)
	}
	if _, err := w.reader().Latest(t.Context(), "prod", "other"); !errors.Is(err, repository.ErrNoCommit) {
		t.Errorf("latest of an unknown VM: %v", err)
	}
	unpinned, err := repository.OpenWithIdentities(t.Context(), w.store, w.identities, nil)
	must(t, err)
	got, err := unpinned.Commit(t.Context(), two.CommitRef)
	must(t, err)
	if got.Authenticated {
		t.Error("a commit is authenticated although nothing was pinned")
	}
}

// TestRerunAfterCommit returns the same result, and writes nothing.
func TestRerunAfterCommit(t *testing.T) {
	in, _ := chainOfTwo(3 << 19)
	w := newWorld(t, nil)
	one := w.backup("one", nil, in)
	before := contents(t, w.store)
	again := w.backup("one", nil, in)
	if !again.Found {
		t.Error("the rerun does not say that it found the commit")
	}
	if diff := cmp.Diff(one, again, cmpopts.IgnoreFields(repository.Result{}, "Found")); diff != "" {
		t.Errorf("result of the rerun (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, contents(t, w.store)); diff != "" {
		t.Error("the rerun changed the store")
	}
	taken := w.spec("one", nil)
	taken.VM.UID = "another"
	if r, err := w.try(taken, in); err != nil || r.Key == one.Key {
		t.Errorf("backup of another VM with the same UID: %v, %v", r.CommitRef, err)
	}
}

// TestUnchangedSendsNothing: the second backup of the same disk stores a few KiB.
func TestUnchangedSendsNothing(t *testing.T) {
	in, _ := chainOfTwo(3 << 19)
	w := newWorld(t, nil)
	one := w.backup("one", nil, in)
	two := w.backup("two", one, in)
	for i, v := range two.Volumes {
		if v.SentBytes != 0 || v.Digest != one.Volumes[i].Digest {
			t.Errorf("volume %q sent %d bytes, digest %s became %s", v.Name, v.SentBytes, one.Volumes[i].Digest, v.Digest)
		}
	}
	if two.StoredBytes > 4096 {
		t.Errorf("%d bytes were stored for no change", two.StoredBytes)
	}
}

// TestWriteOnly: the keys of the cluster list backups and read no disk.
func TestWriteOnly(t *testing.T) {
	in, _ := chainOfTwo(3 << 19)
	w := newWorld(t, nil)
	one := w.backup("one", nil, in)
	c, err := w.writer.Commit(t.Context(), one.CommitRef)
	must(t, err)
	_, err = w.writer.RestoreBlock(t.Context(), c, repository.RestoreSpec{Volume: "diska", Target: &target{}})
	if !errors.Is(err, repository.ErrNoIdentity) {
		t.Errorf("restore with the writer's keys: %v", err)
	}
	if _, err := w.writer.ReadTree(t.Context(), c, "state"); !errors.Is(err, repository.ErrNoIdentity) {
		t.Errorf("read of files with the writer's keys: %v", err)
	}
	if _, err := w.reader().Begin(t.Context(), w.spec("two", one)); !errors.Is(err, repository.ErrNoKeys) {
		t.Errorf("backup with an identity: %v", err)
	}
	for key, body := range contents(t, w.store) {
		for _, name := range []string{"vm-uid", "uid-one", "diska"} {
			if bytes.Contains(body, []byte(name)) || strings.Contains(key, name) {
				t.Errorf("%q tells the name %q", key, name)
			}
		}
	}
}

// TestWrongIdentity: the error names who could open it, whether the stranger is one
// for the whole repository or came too late for one run.
func TestWrongIdentity(t *testing.T) {
	in, _ := chainOfTwo(3 << 19)
	w := newWorld(t, nil)
	one := w.backup("one", nil, in)
	stranger, err := age.GenerateX25519Identity()
	must(t, err)
	_, err = repository.OpenWithIdentities(t.Context(), w.store, []age.Identity{stranger}, nil)
	wantWrongIdentity(t, err, w.recipients)

	late, err := keys.ParseRecipients(append(w.recipients.Strings(), stranger.Recipient().String()))
	must(t, err)
	must(t, repository.Init(t.Context(), w.store, w.keys, late))
	r, err := repository.OpenWithIdentities(t.Context(), w.store, []age.Identity{stranger}, nil)
	must(t, err)
	_, err = restoreAll(t.Context(), r, one.CommitRef)
	wantWrongIdentity(t, err, w.recipients)
}

func wantWrongIdentity(t *testing.T, err error, r keys.Recipients) {
	t.Helper()
	if !errors.Is(err, repository.ErrWrongIdentity) || !strings.Contains(err.Error(), r.Fingerprints()[0]) {
		t.Errorf("error is %v, and should name %s", err, r.Fingerprints()[0])
	}
}

// TestHybridRecipients goes the whole way with the recipients that people use.
func TestHybridRecipients(t *testing.T) {
	a, err := keys.GenerateIdentity()
	must(t, err)
	b, err := keys.GenerateIdentity()
	must(t, err)
	w := newWorld(t, nil)
	w.recipients, err = keys.ParseRecipients([]string{a.Recipient, b.Recipient})
	must(t, err)
	must(t, repository.Init(t.Context(), w.store, w.keys, w.recipients))
	in, _ := chainOfTwo(3 << 19)
	one := w.backup("one", nil, in)
	for _, i := range []keys.Identity{a, b} {
		w.identities, err = keys.ParseIdentities([]byte(i.Secret))
		must(t, err)
		w.mustRestore(one.CommitRef, in)
	}
}

// liar is a target that does not keep what is written to one place.
type liar struct {
	target
	at int64
}

func (l *liar) ReadAt(p []byte, off int64) (int, error) {
	n, err := l.target.ReadAt(p, off)
	if l.at >= off && l.at < off+int64(n) {
		p[l.at-off] ^= 1
	}
	return n, err
}

// TestReadBack: a target that does not hold what it was given fails the restore,
// where there is data and where there are zeros.
func TestReadBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	disk := make([]byte, 3<<20)
	for i := range disk[:1<<20] {
		disk[i] = byte(r.Uint32())
	}
	w := newWorld(t, nil)
	one := w.backup("one", nil, input{disks: [][]byte{disk}})
	reader := w.reader()
	c, err := reader.Commit(t.Context(), one.CommitRef)
	must(t, err)
	for _, at := range []int64{0, 1<<20 - 1, 1 << 20, 3<<20 - 1} {
		l := &liar{target: target{data: make([]byte, len(disk))}, at: at}
		_, err := reader.RestoreBlock(t.Context(), c, repository.RestoreSpec{Volume: "diska", Target: l})
		if !errors.Is(err, repository.ErrVerify) || !strings.Contains(fmt.Sprint(err), "diska") {
			t.Errorf("lie at %d: %v", at, err)
		}
	}
}

// sectors is a target that is a device.
type sectors struct {
	target
	size int
}

func (s *sectors) LogicalBlockSize() int { return s.size }

// TestSectors: a disk goes to a device with the same sectors, or to a file.
func TestSectors(t *testing.T) {
	in, _ := chainOfTwo(3 << 19)
	w := newWorld(t, nil)
	one := w.backup("one", nil, in)
	reader := w.reader()
	c, err := reader.Commit(t.Context(), one.CommitRef)
	must(t, err)
	for size, want := range map[int]error{0: nil, 512: nil, 4096: repository.ErrInvalid} {
		d := &sectors{target: target{data: make([]byte, len(in.disks[0]))}, size: size}
		_, err := reader.RestoreBlock(t.Context(), c, repository.RestoreSpec{Volume: "diska", Target: d})
		if !errors.Is(err, want) {
			t.Errorf("sectors of %d bytes: %v", size, err)
		}
	}
}

// TestProgress: the figures add up at the end.
func TestProgress(t *testing.T) {
	in, _ := chainOfTwo(3 << 19)
	w := newWorld(t, nil)
	spec := w.spec("one", nil)
	var last repository.Progress
	spec.Progress = func(p repository.Progress) { last = p }
	b, err := w.writer.Begin(t.Context(), spec)
	must(t, err)
	defer b.Close()
	disk := in.disks[0]
	_, err = b.AddBlock(t.Context(), repository.BlockVolume{
		Name: "d", Size: int64(len(disk)), Source: bytes.NewReader(disk),
		Extents: func(yield func(repository.Extent, error) bool) {
			_ = yield(repository.Extent{Offset: 5, Length: 100_000}, nil) &&
				yield(repository.Extent{Offset: 1 << 20, Length: 1 << 30}, nil)
		},
	})
	must(t, err)
	want := repository.Progress{
		Volume: "d", Total: int64(len(disk)), Read: int64(len(disk)) - 1<<20 + 100_000, Skipped: 1<<20 - 100_000,
		Reused: last.Reused, Zero: last.Zero, Sent: last.Sent,
	}
	if last != want {
		t.Errorf("progress is %+v, not %+v", last, want)
	}
	one, err := b.Commit(t.Context(), nil)
	must(t, err)
	wantDisk := bytes.Clone(disk)
	clear(wantDisk[:5])
	clear(wantDisk[100_005 : 1<<20])
	w.mustRestore(one.CommitRef, input{disks: [][]byte{wantDisk}})
}

// TestListGoesOn: one record that cannot be read is told, and hides no other; a store
// that fails ends the list with its error.
func TestListGoesOn(t *testing.T) {
	in, _ := chainOfTwo(3 << 19)
	w := newWorld(t, nil)
	one := w.backup("one", nil, in)
	two := w.backup("two", one, in)
	three := w.backup("three", two, in)
	objects := contents(t, w.store)
	bad := bytes.Clone(objects[two.Key])
	bad[len(bad)/2] ^= 1
	w.mutate(two.Key, mutation{"flip", bad}, objects)
	var seen []repository.CommitRef
	var told error
	for c, err := range w.reader().Commits(t.Context()) {
		if err != nil {
			told = errors.Join(told, err)
			continue
		}
		seen = append(seen, c.CommitRef)
	}
	if diff := cmp.Diff([]repository.CommitRef{one.CommitRef, three.CommitRef}, seen); diff != "" {
		t.Errorf("backups (-want +got):\n%s", diff)
	}
	if !errors.Is(told, repository.ErrNotAuthentic) || !strings.Contains(told.Error(), two.Key) {
		t.Errorf("the damaged one was told as %v", told)
	}
	gone := faultstore.New(w.store, faultstore.Faults{})
	w.store = gone
	reader := w.reader()
	gone.Set(faultstore.Faults{Before: func(c faultstore.Call) error {
		if strings.HasPrefix(c.Key, "c/") && c.Op == faultstore.Open {
			return objectstore.ErrUnreachable
		}
		return nil
	}})
	n := 0
	for _, err := range reader.Commits(t.Context()) {
		n++
		if !errors.Is(err, objectstore.ErrUnreachable) {
			t.Errorf("list over a store that is gone: %v", err)
		}
	}
	if n != 1 {
		t.Errorf("list over a store that is gone yields %d times", n)
	}
	if _, err := reader.Latest(t.Context(), "prod", "db"); !errors.Is(err, objectstore.ErrUnreachable) {
		t.Errorf("latest over a store that is gone: %v", err)
	}
}

// TestAddedKeyFiles: any age file that opens to the commitment is right, whatever
// became of the others.
func TestAddedKeyFiles(t *testing.T) {
	w := newWorld(t, nil)
	in := input{disks: [][]byte{noise(12, 100_000)}}
	one := w.backup("one", nil, in)
	objects := contents(t, w.store)
	first := ""
	for key := range objects {
		if strings.HasPrefix(key, "r/") && strings.HasSuffix(key, "/k1.age") {
			first = key
		}
	}
	added := strings.TrimSuffix(first, ".age")
	garbage, good := []byte("garbage"), objects[first]
	cases := map[string]struct {
		files map[string][]byte
		want  error
	}{
		"FirstGone":      {map[string][]byte{added + "-b.age": good}, nil},
		"FirstDamaged":   {map[string][]byte{first: garbage, added + "-b.age": good}, nil},
		"AddedDamaged":   {map[string][]byte{added + "-a.age": garbage, added + "-b.age": good}, nil},
		"AllGone":        {nil, repository.ErrMissing},
		"OnlyDamaged":    {map[string][]byte{first: garbage}, repository.ErrDamaged},
		"NoneIsRight":    {map[string][]byte{first: garbage, added + "-b.age": garbage}, repository.ErrDamaged},
		"FirstIsAnother": {map[string][]byte{first: objects["k/1.age"], added + "-b.age": good}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := maps.Clone(objects)
			delete(now, first)
			maps.Copy(now, tc.files)
			r, err := repository.OpenWithIdentities(t.Context(), storeOf(t, now), w.identities, w.keys.SigningKey())
			must(t, err)
			c, err := r.Commit(t.Context(), one.CommitRef)
			must(t, err)
			d := &target{data: make([]byte, 100_000)}
			_, err = r.RestoreBlock(t.Context(), c, repository.RestoreSpec{Volume: diskName(0), Target: d})
			if !errors.Is(err, tc.want) {
				t.Fatalf("restore: %v, not %v", err, tc.want)
			}
			if err == nil && !bytes.Equal(d.data, in.disks[0]) {
				t.Error("the disk differs")
			}
		})
	}
}
