package index

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// fakePacks is a Putter and a Fetcher in memory, each tree in a pack of its own.
type fakePacks struct {
	nodes   *Nodes
	bodies  map[uint32][]byte
	current uint32
	reads   int
}

func newFakePacks(t testing.TB) *fakePacks {
	t.Helper()
	k, err := keys.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return &fakePacks{nodes: NewNodes(k.Set(), keys.ID{1}), bodies: map[uint32][]byte{}}
}

func (p *fakePacks) PutNode(_ context.Context, contents []byte) (Hash, Location, error) {
	sealed, at := p.nodes.Seal(Location{
		Number: p.current, Ordinal: uint64(p.current), Offset: int64(len(p.bodies[p.current])),
	}, contents)
	p.bodies[p.current] = append(p.bodies[p.current], sealed...)
	return sha256.Sum256(sealed), at, nil
}

func (p *fakePacks) Fetch(_ context.Context, l Location) ([]byte, error) {
	p.reads++
	body := p.bodies[l.Number]
	if l.End() > int64(len(body)) {
		return nil, fmt.Errorf("read behind the end of pack %d", l.Number)
	}
	return body[l.Offset:l.End()], nil
}

// leafOf is a leaf that holds n.
func leafOf(n uint64) *Leaf {
	var id Tag
	binary.BigEndian.PutUint64(id[8:], n+1)
	return &Leaf{
		Units:  []Unit{{Data: true, ID: id, Fingerprint: id}},
		Frames: []Frame{{Pack: Location{Length: 100}, Length: 50, Counter: n}},
	}
}

func (p *fakePacks) leaf(t *testing.T, n uint64) Ref {
	t.Helper()
	ref, err := p.nodes.PutLeaf(t.Context(), p, leafOf(n))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// shared is the leaf that the cursor is at, if that is the one asked about.
func (c *Cursor) shared(at bool) Ref {
	if !at {
		return Ref{}
	}
	return c.Ref()
}

// build makes the tree of what maps leaf numbers to contents, from an old one, and
// returns the bytes of old nodes that it does not share.
func (p *fakePacks) build(t *testing.T, old Tree, leaves uint64, what map[uint64]uint64, before map[uint64]uint64) (Tree, int64) {
	t.Helper()
	ctx := t.Context()
	p.current++
	c := NewCursor(p.nodes, p, old)
	b := NewBuilder(p.nodes, p, c, leaves)
	dropped := int64(0)
	b.Dropped = func(r Ref) { dropped += r.Length }
	at := func(from uint64) uint64 {
		found, err := c.Seek(ctx, from)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	next := at(0)
	for _, leaf := range slices.Sorted(maps.Keys(what)) {
		for next < leaf {
			dropped += c.Ref().Length
			next = at(next + 1)
		}
		ref := c.shared(next == leaf && before[leaf] == what[leaf])
		if ref.Zero() {
			ref = p.leaf(t, what[leaf])
			dropped += c.shared(next == leaf).Length
		}
		if err := b.Add(ctx, leaf, ref); err != nil {
			t.Fatal(err)
		}
		if next == leaf {
			next = at(leaf + 1)
		}
	}
	for next != End {
		dropped += c.Ref().Length
		next = at(next + 1)
	}
	root, err := b.Finish(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return Tree{Root: root, Leaves: leaves}, dropped
}

// read returns what a tree holds and how many bytes its nodes have.
func (p *fakePacks) read(t *testing.T, tree Tree) (map[uint64]uint64, int64) {
	t.Helper()
	got := map[uint64]uint64{}
	c := NewCursor(p.nodes, p, tree)
	size, seen := int64(0), map[Location]bool{}
	count := func(r Ref) {
		if !seen[r.Location] {
			seen[r.Location] = true
			size += r.Length
		}
	}
	for from := uint64(0); ; {
		leaf, err := c.Seek(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range append(c.stack, c.left...) {
			count(v.ref)
		}
		if leaf == End {
			return got, size
		}
		l, err := c.Leaf(t.Context(), 16<<10)
		if err != nil {
			t.Fatal(err)
		}
		count(c.Ref())
		got[leaf] = binary.BigEndian.Uint64(l.Units[0].ID[8:]) - 1
		from = leaf + 1
	}
}

// TestTreesAgainstMaps changes trees at random, in size as well, and compares each
// with a map, and the bytes that it says it dropped with those that it did.
func TestTreesAgainstMaps(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := newFakePacks(t)
		tree, now := Tree{}, map[uint64]uint64{}
		size := int64(0)
		for round := range 8 {
			leaves := []uint64{1, 2, 200, 256, 257, 1000, 65536, 70000}[r.IntN(8)]
			next := map[uint64]uint64{}
			for leaf, n := range now {
				if leaf < leaves && r.IntN(10) > 0 {
					next[leaf] = n
				}
			}
			for range r.IntN(400) {
				next[r.Uint64N(leaves)] = r.Uint64N(1000)
			}
			old := tree
			written := int64(0)
			var dropped int64
			tree, dropped = p.build(t, old, leaves, next, now)
			written = int64(len(p.bodies[p.current]))
			got, total := p.read(t, tree)
			if diff := cmp.Diff(next, got); diff != "" {
				t.Fatalf("seed %d round %d (-want +got):\n%s", seed, round, diff)
			}
			if size+written-dropped != total {
				t.Fatalf("seed %d round %d: %d bytes, %d written, %d dropped, but %d reached",
					seed, round, size, written, dropped, total)
			}
			now, size = next, total
		}
	}
}

// TestSameContentsSameRoot: the content hash does not depend on where nodes are.
func TestSameContentsSameRoot(t *testing.T) {
	p := newFakePacks(t)
	what := map[uint64]uint64{3: 1, 300: 2, 900: 3}
	a, _ := p.build(t, Tree{}, 1000, what, nil)
	b, _ := p.build(t, Tree{}, 1000, what, nil)
	what[900] = 4
	c, _ := p.build(t, Tree{}, 1000, what, nil)
	if a.Root.Content != b.Root.Content || a.Root.Location == b.Root.Location || a.Root.Content == c.Root.Content {
		t.Errorf("content roots %x, %x, %x", a.Root.Content, b.Root.Content, c.Root.Content)
	}
}

// TestFewReads: leaves that were written together are read together.
func TestFewReads(t *testing.T) {
	p := newFakePacks(t)
	what := map[uint64]uint64{}
	for leaf := range uint64(2000) {
		what[leaf] = leaf
	}
	tree, _ := p.build(t, Tree{}, 2000, what, nil)
	p.reads = 0
	p.read(t, tree)
	if p.reads > 20 {
		t.Errorf("%d reads for 2000 leaves", p.reads)
	}
}
