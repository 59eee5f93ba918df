package repository_test

import (
	"testing"

	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
)

// TestRenewal: what is left of packs that are mostly dead is sent again by the next
// backup, once, and when the backups before it are removed, the packs go.
func TestRenewal(t *testing.T) {
	c := newCollector(t)
	in := input{disks: [][]byte{noise(1, 8<<20)}} // eight packs or so
	one := c.backup("one", nil, in)
	// Two thirds of the first half of the disk change: its packs are a third live.
	in = in.clone()
	for at := 0; at < 4<<20; at += 96 << 10 {
		copy(in.disks[0][at:min(at+64<<10, 4<<20)], noise(uint64(at), 64<<10))
	}
	two := c.backup("two", one, in)
	sent := two.Volumes[0].SentBytes
	if sent < 2<<20 || sent > 3<<20 {
		t.Fatalf("the second backup sent %d bytes", sent)
	}
	three := c.backup("three", two, in)
	renewed := three.Volumes[0].SentBytes
	if renewed < 1<<20 || renewed > 3<<20 {
		t.Errorf("the third backup sent %d bytes again; a third of 4 MiB, and what shares packs with it, was to be renewed", renewed)
	}
	four := c.backup("four", three, in)
	if n := four.Volumes[0].SentBytes; n != 0 {
		t.Errorf("the fourth backup sent %d bytes again", n)
	}
	c.mustRestore(two.CommitRef, in)
	c.mustRestore(three.CommitRef, in)
	c.mustRestore(four.CommitRef, in)
	before := stored(c)
	c.pass(one, two)
	if r := c.pass(); r.Packs.Bytes < 4<<20 {
		t.Errorf("%d bytes of packs were freed", r.Packs.Bytes)
	}
	c.settled(1)
	if after := stored(c); before-after < 4<<20 || after > 9<<20 {
		t.Errorf("%d bytes are stored for a disk of 8 MiB, before %d", after, before)
	}
	c.mustRestore(four.CommitRef, in)
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
