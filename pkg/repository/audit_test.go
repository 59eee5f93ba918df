package repository_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/repository"
)

// A parent whose index is damaged says nothing of the driver: an audit of an unchanged disk accuses nobody.
func TestAuditOnBrokenParent(t *testing.T) {
	first, _ := chainOfTwo(5 << 18)
	w := newWorld(t, nil)
	one := w.backup("one", nil, first)
	objects := contents(t, w.store)
	runs := 0
	for key := range objects {
		if kindOf(key) != "index pack" {
			continue
		}
		for i, m := range mutations(key, objects) {
			w.mutate(key, m, objects)
			var err error
			w.writer, err = repository.OpenWithKeys(t.Context(), w.store, w.keys)
			must(t, err)
			v, _ := hinted{disk: first.disks[0], since: one, audit: true}.volume()
			v.LogicalBlockSize = 512
			two, err := w.tryTold(fmt.Sprint("two", i, key[len(key)-8:]), one, v)
			if errors.Is(err, repository.ErrParent) {
				continue
			}
			must(t, err)
			runs++
			if r := two.Volumes[0].Reading; r.Way != repository.WayAudited || r.UntoldBytes != 0 {
				t.Errorf("%s of %q: %+v", m.name, key, r)
			}
		}
	}
	if runs == 0 {
		t.Error("every run ended with ErrParent: this test looks at nothing")
	}
}

// When a volume was last read in full is in the record: it is told by later backups, also when the one that did is gone.
func TestFullyAt(t *testing.T) {
	c := newCollector(t)
	disk := noise(71, 2<<20)
	created := func(day int) time.Time { return time.Unix(1_790_000_000+int64(day)*86400, 0).UTC() }
	backup := func(day int, parent *repository.Result, v hinted) *repository.Result {
		t.Helper()
		volume, _ := v.volume()
		spec := c.spec(fmt.Sprint(day), parent)
		spec.Created = created(day)
		b, err := c.writer.Begin(t.Context(), spec)
		must(t, err)
		defer b.Close()
		added, err := b.AddBlock(t.Context(), volume)
		must(t, err)
		r, err := b.Commit(t.Context(), []byte("{}"))
		must(t, err)
		if added.Reading.FullyAt != r.Volumes[0].Reading.FullyAt {
			t.Errorf("day %d: told %s, then %s", day, added.Reading.FullyAt, r.Volumes[0].Reading.FullyAt)
		}
		return &r
	}
	told := func(since *repository.Result) hinted {
		return hinted{disk: disk, since: since, changed: []repository.Extent{}, sector: 512}
	}
	zero := backup(0, nil, hinted{disk: disk, allocated: []repository.Extent{{Length: 2 << 20}}, sector: 512})
	one := backup(1, zero, hinted{disk: disk, sector: 512})
	two := backup(2, one, told(one))
	c.pass(zero, one)
	c.settled(3)
	three := backup(3, two, told(two))
	audit := told(three)
	audit.audit = true
	four := backup(4, three, audit)
	for _, tc := range []struct {
		of  *repository.Result
		day int
		why string
	}{
		{zero, 0, "the first counts, whatever it read"}, {one, 1, "it read all"}, {two, 1, "its parent had"},
		{three, 1, "a backup had that is gone"}, {four, 4, "an audit reads all"},
	} {
		if got := tc.of.Volumes[0].Reading.FullyAt; !got.Equal(created(tc.day)) {
			t.Errorf("fully read at %s, want %s: %s", got, created(tc.day), tc.why)
		}
	}
}
