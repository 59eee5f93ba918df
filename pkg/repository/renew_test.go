package repository_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/repository"
)

// thinned is a disk, and the same with two thirds of the first half changed: what was stored of that is
// a third live.
func thinned() (input, input) {
	in := input{disks: [][]byte{noise(1, 8<<20)}} // eight packs or so
	out := in.clone()
	for at := 0; at < 4<<20; at += 96 << 10 {
		copy(out.disks[0][at:min(at+64<<10, 4<<20)], noise(uint64(at), 64<<10))
	}
	return in, out
}

// TestRenewal: what is left of packs that are mostly dead is sent again by the next backup, once, and when
// the backups before it are removed, the packs go. As long as a backup that stays needs most of a pack, it is
// not sent again: it would be there twice.
func TestRenewal(t *testing.T) {
	c := newCollector(t)
	in, changed := thinned()
	one := c.backup("one", nil, in)
	two := c.backup("two", one, changed)
	sent := two.Volumes[0].SentBytes
	if sent < 2<<20 || sent > 3<<20 {
		t.Fatalf("the second backup sent %d bytes", sent)
	}
	three := c.backup("three", two, changed)
	if n := three.Volumes[0].SentBytes; n != 0 {
		t.Errorf("the third backup sent %d bytes again of what the first one keeps", n)
	}
	c.pass(one)
	four := c.backup("four", three, changed)
	renewed := four.Volumes[0].SentBytes
	if renewed < 1<<20 || renewed > 3<<20 {
		t.Errorf("the fourth backup sent %d bytes again; a third of 4 MiB, and what shares packs with it, was to be renewed", renewed)
	}
	c.pass()
	five := c.backup("five", four, changed)
	if n := five.Volumes[0].SentBytes; n != 0 {
		t.Errorf("the fifth backup sent %d bytes again", n)
	}
	for _, b := range []*repository.Result{two, three, four, five} {
		c.mustRestore(b.CommitRef, changed)
	}
	before := stored(c)
	c.pass(two, three)
	if r := c.pass(); r.Packs.Bytes < 4<<20 {
		t.Errorf("%d bytes of packs were freed", r.Packs.Bytes)
	}
	c.settled(2)
	if after := stored(c); before-after < 4<<20 || after > 9<<20 {
		t.Errorf("%d bytes are stored for a disk of 8 MiB, before %d", after, before)
	}
	c.mustRestore(five.CommitRef, changed)
}

// TestRenewalPastRemoved: in a long chain of which only the newest backups stay, those that were removed are passed
// once, and keep nothing.
func TestRenewalPastRemoved(t *testing.T) {
	c := newCollector(t)
	in, changed := thinned()
	first := c.backup("first", nil, in)
	last := c.backup("second", first, changed)
	gone := []*repository.Result{first}
	for i := range 14 {
		gone = append(gone, last)
		last = c.backup(fmt.Sprint("more", i), last, changed)
	}
	c.pass(gone...)
	c.pass()
	next := c.backup("next", last, changed)
	if n := next.Volumes[0].SentBytes; n < 1<<20 || n > 3<<20 {
		t.Errorf("%d bytes were sent again", n)
	}
	// Something else becomes thin: who was found to be removed is not looked for again.
	other := changed.clone()
	for at := 4 << 20; at < 8<<20; at += 96 << 10 {
		copy(other.disks[0][at:min(at+64<<10, 8<<20)], noise(uint64(at), 64<<10))
	}
	thin := c.backup("thin", next, other)
	c.faults.Calls()
	c.backup("after", thin, other)
	looked := 0
	for _, call := range c.faults.Calls() {
		if call.Op == faultstore.Open && strings.HasPrefix(call.Key, "c/") {
			looked++
		}
	}
	if looked > 6 {
		t.Errorf("%d records of earlier backups were read", looked)
	}
}

// TestRenewalByAudit: a backup that reads only what has changed leaves what is left of thin packs where it
// is, since it does not read it; the next one that reads all of the disk renews it.
func TestRenewalByAudit(t *testing.T) {
	c := newCollector(t)
	in, disk := thinned()
	one := c.backup("one", nil, in)
	two := c.backup("two", one, disk)
	c.pass(one)
	c.pass()
	next := func(name string, parent *repository.Result, audit bool) repository.Result {
		t.Helper()
		r, read := c.backupTold(name, parent, hinted{disk: disk.disks[0], since: parent, changed: []repository.Extent{}, audit: audit, sector: 512})
		if way := r.Volumes[0].Reading.Way; audit != (way == repository.WayAudited) || audit != (read > 0) {
			t.Errorf("%s was read %s, %d bytes", name, way, read)
		}
		return r
	}
	three := next("three", two, false)
	if n := three.Volumes[0].SentBytes; n != 0 {
		t.Errorf("%d bytes were sent that were not read", n)
	}
	four := next("four", &three, true)
	if n := four.Volumes[0].SentBytes; n < 1<<20 || n > 3<<20 || four.Volumes[0].Reading.UntoldBytes != 0 {
		t.Errorf("the audit sent %d bytes again, and found %d untold", n, four.Volumes[0].Reading.UntoldBytes)
	}
	c.mustRestore(four.CommitRef, disk)
}

// TestVolumeLeftOut: a disk that the machine has no more is in no book of the next backup, and goes with the
// backups that hold it.
func TestVolumeLeftOut(t *testing.T) {
	c := newCollector(t)
	both := input{disks: [][]byte{noise(1, 2<<20), noise(2, 4<<20)}, files: map[string]string{"tpm": "1"}}
	one := c.backup("one", nil, both)
	left := both.clone()
	left.disks = left.disks[:1]
	two := c.backup("two", one, left)
	if n := two.Volumes[0].SentBytes; n != 0 {
		t.Errorf("%d bytes were sent", n)
	}
	c.mustRestore(two.CommitRef, left)
	c.pass(one)
	c.settled(3)
	if n := stored(c); n > 3<<20 {
		t.Errorf("%d bytes are stored for a disk of 2 MiB", n)
	}
	c.mustRestore(two.CommitRef, left)
}

func stored(c *collector) (n int64) {
	c.t.Helper()
	for _, b := range contents(c.t, c.store) {
		n += int64(len(b))
	}
	return n
}

// TestRenewalReads: an unchanged backup with nothing to renew reads the parent's pack
// table once more, and sends nothing.
func TestRenewalReads(t *testing.T) {
	c := newCollector(t)
	in := input{disks: [][]byte{noise(1, 2<<20)}}
	one := c.backup("one", nil, in)
	c.faults.Calls()
	two := c.backup("two", one, in)
	if n := two.Volumes[0].SentBytes; n != 0 {
		t.Errorf("%d bytes were sent", n)
	}
	if n := faultstore.Count(c.faults.Calls(), faultstore.Open); n > 8 {
		t.Errorf("%d reads", n)
	}
}
