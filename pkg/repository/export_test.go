package repository

import (
	"context"
	"maps"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// Books are live bytes by ordinal, of packs and of data keys: as they are when
// everything is counted, and as the tables of the commit say.
type Books struct {
	Packs, Keys map[uint64]int64
}

// CountLive counts what a commit reaches.
func (r *Repository) CountLive(ctx context.Context, c *Commit) (counted, listed Books, err error) {
	o, err := r.readCommit(ctx, c.CommitRef)
	if err != nil {
		return counted, listed, err
	}
	ck := r.newChecker(o)
	err = ck.all(ctx)
	return Books{ck.reached.packs, ck.reached.keys}, Books{ck.listed.packs, ck.listed.keys}, err
}

// Record returns what a commit says.
func (r *Repository) Record(ctx context.Context, c *Commit) (*commit.Record, error) {
	o, err := r.readCommit(ctx, c.CommitRef)
	if err != nil {
		return nil, err
	}
	return o.record, nil
}

// CheckChanged checks a commit as if it said something else.
func (r *Repository) CheckChanged(ctx context.Context, c *Commit, change func(*commit.Record)) error {
	o, err := r.readCommit(ctx, c.CommitRef)
	if err != nil {
		return err
	}
	change(o.record)
	return r.newChecker(o).all(ctx)
}

// Misplace gives another pack the ordinal of one that is stored.
func (b *Backup) Misplace() {
	p := b.packs[0]
	p.Number += 1000
	b.packs = append(b.packs, p)
}

// RestoreHoles restores n parts of a volume that are all zero, none next to another,
// and returns how many ranges it held at most.
func RestoreHoles(ctx context.Context, t WriterAt, n int) (most int, err error) {
	const leaf = index.LeafUnits * commit.SmallUnit
	size := int64(2*n) * leaf
	r := &restore{
		volume: &commit.Volume{Size: size, Unit: commit.SmallUnit}, to: size,
		spec: RestoreSpec{Target: t, Progress: func(RestoreProgress) {}},
	}
	l := &index.Leaf{Units: make([]index.Unit, index.LeafUnits)}
	for i := range n {
		if err := r.leaf(ctx, l, int64(2*i)*leaf); err != nil {
			return most, err
		}
		most = max(most, len(r.window.zeros))
	}
	return most, r.flush(ctx)
}

// AddImage stores a volume as a tree of files, whatever its bytes are.
func (b *Backup) AddImage(ctx context.Context, v BlockVolume, manifest int64) (VolumeResult, error) {
	return b.add(ctx, v, commit.Volume{Kind: commit.Tree, Manifest: manifest})
}

// TombstoneBy is the tombstone of a backup, signed by whoever.
func TombstoneBy(m *keys.MaintenanceKey, k *Keys, r Result) []byte {
	n := nameOf(r.CommitRef)
	d, err := parseDigest(r.Digest)
	if err != nil {
		panic(err)
	}
	h := commit.Header{Repository: k.Repository(), Epoch: k.Epoch(), VM: n.VM, Sequence: n.Sequence, Origin: keys.Origin{Run: n.Run}}
	return commit.EncodeTombstone(m, h, d)
}

// Needs are the keys of all objects that a backup stands on.
func (r *Repository) Needs(ctx context.Context, ref CommitRef) ([]string, error) {
	o, err := r.readCommit(ctx, ref)
	if err != nil {
		return nil, err
	}
	m := &machine{vm: o.header.VM, nodes: &nodeCache{objects: objects{r.store, o.header.VM}}}
	into := map[string]bool{}
	err = m.need(ctx, o, into)
	return slices.Collect(maps.Keys(into)), err
}
