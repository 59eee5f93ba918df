package index

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// sampleOf is the entry of a pack that is like no other.
func sampleOf(ordinal uint64, live int64) Pack {
	p := samplePack()
	p.Origin.Run, p.Number, p.Live = keys.ID{byte(ordinal >> 16)}, uint32(ordinal), live
	return p
}

// revise writes the table that has fresh entries more, and in which live has changed. It
// returns the bytes of old nodes that the new table does not have.
func (p *fakePacks) revise(t *testing.T, old TableRoot, next uint64, live *Ledger, fresh map[uint64]Pack) (TableRoot, int64, error) {
	t.Helper()
	ctx := t.Context()
	p.current++
	table, err := OpenPacks(ctx, p.nodes, p, old)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRevision(table, live)
	r.Fresh = func(_ context.Context, from, to uint64, add func(Numbered[Pack]) error) error {
		for ordinal, e := range fresh {
			if ordinal < from || ordinal >= to {
				continue
			}
			if err := add(Numbered[Pack]{ordinal, e}); err != nil {
				return err
			}
		}
		return nil
	}
	dropped := int64(0)
	for _, ref := range r.Replaced() {
		dropped += ref.Length
	}
	for _, n := range r.Leaves() {
		contents, err := r.Leaf(ctx, n)
		if err != nil {
			return TableRoot{}, 0, err
		}
		if err := r.PutLeaf(ctx, p, n, contents); err != nil {
			t.Fatal(err)
		}
	}
	r.Next = max(r.Next, next)
	root, err := r.PutNodes(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	return root, dropped, nil
}

// readTable returns the entries of a table and how many bytes its nodes have.
func (p *fakePacks) readTable(t *testing.T, root TableRoot) (map[uint64]Pack, int64) {
	t.Helper()
	table, err := OpenPacks(t.Context(), p.nodes, p, root)
	if err != nil {
		t.Fatal(err)
	}
	got, last := map[uint64]Pack{}, int64(-1)
	err = table.All(t.Context(), func(ordinal uint64, e Pack) error {
		if int64(ordinal) <= last {
			t.Errorf("entry %d comes behind %d", ordinal, last)
		}
		got[ordinal], last = e, int64(ordinal)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, ref := range table.Nodes() {
		size += ref.Length
	}
	return got, size
}

// TestTablesAgainstMaps changes tables at random, which become higher as they grow and lose
// whole leaves, and compares each with a map, and the bytes that it says it dropped with
// those that it did.
func TestTablesAgainstMaps(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 2))
		p := newFakePacks(t)
		root, now, size := TableRoot{}, map[uint64]Pack{}, int64(0)
		for round := range 8 {
			live, fresh := NewLedger(), map[uint64]Pack{}
			next := map[uint64]Pack{}
			change := func(ordinal uint64, e Pack, to int64) {
				live.Add(ordinal, to-e.Live)
				if e.Live = to; to > 0 {
					next[ordinal] = e
				}
			}
			gone := r.Uint64N(3) * r.Uint64N(root.Next+1) / 2 // all that is below leaves the table
			for _, ordinal := range slices.Sorted(maps.Keys(now)) {
				e := now[ordinal]
				switch {
				case ordinal < gone:
					change(ordinal, e, 0)
				case r.IntN(20) == 0:
					change(ordinal, e, r.Int64N(3))
				default:
					next[ordinal] = e
				}
			}
			end := root.Next + []uint64{0, 1, 100, 300, 70_000, 200}[r.IntN(6)]
			for range r.IntN(600) {
				if ordinal := root.Next + r.Uint64N(end-root.Next+1); ordinal < end {
					fresh[ordinal] = sampleOf(ordinal, 77) // what it says of itself does not count
				}
			}
			for _, ordinal := range slices.Sorted(maps.Keys(fresh)) {
				change(ordinal, sampleOf(ordinal, 0), r.Int64N(4))
			}
			newRoot, dropped, err := p.revise(t, root, end, live, fresh)
			if err != nil {
				t.Fatal(err)
			}
			got, total := p.readTable(t, newRoot)
			if diff := cmp.Diff(next, got); diff != "" {
				t.Fatalf("seed %d round %d (-want +got):\n%s", seed, round, diff)
			}
			if written := int64(len(p.bodies[p.current])); size+written-dropped != total {
				t.Fatalf("seed %d round %d: %d bytes, %d written, %d dropped, but %d reached", seed, round, size, written, dropped, total)
			}
			root, now, size = newRoot, next, total
		}
	}
}

// TestRevisionRefuses: a table is not written if the books cannot be right.
func TestRevisionRefuses(t *testing.T) {
	p := newFakePacks(t)
	live := NewLedger()
	live.Add(3, 5)
	root, _, err := p.revise(t, TableRoot{}, 10, live, map[uint64]Pack{3: sampleOf(3, 0)})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		ordinal uint64
		live    int64
		fresh   map[uint64]Pack
	}{
		"NotListed":   {ordinal: 4, live: 1},
		"TooMuch":     {ordinal: 3, live: -6},
		"Other":       {ordinal: 3, live: 1, fresh: map[uint64]Pack{3: sampleOf(4, 0)}},
		"BehindOther": {ordinal: 400, live: 1, fresh: map[uint64]Pack{401: sampleOf(401, 0)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			live := NewLedger()
			live.Add(tc.ordinal, tc.live)
			if _, _, err := p.revise(t, root, 500, live, tc.fresh); !errors.Is(err, ErrDamaged) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestLedger: numbers are by ordinal, and those that are not 0 come in order.
func TestLedger(t *testing.T) {
	l, want := NewLedger(), map[uint64]int64{}
	for _, ordinal := range []uint64{0, 1, 63, 64, 1 << 39, 65, 1} {
		l.Add(ordinal, int64(ordinal)+2)
		want[ordinal] += int64(ordinal) + 2
	}
	l.Set(64, 0)
	delete(want, 64)
	if got := maps.Collect(l.All()); !maps.Equal(got, want) || l.At(1) != 6 || l.At(2) != 0 || l.At(1<<20) != 0 {
		t.Errorf("%v, not %v", got, want)
	}
	var order []uint64
	for ordinal := range l.All() {
		order = append(order, ordinal)
	}
	if !slices.IsSorted(order) {
		t.Errorf("order is %v", order)
	}
}
