package repository

import (
	"context"
	"maps"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/pack"
	"github.com/vmstate/vmstate/pkg/repository/wire"
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
	if err := ck.count(ctx); err != nil {
		return counted, listed, err
	}
	counted = Books{maps.Collect(ck.reached.packs.All()), maps.Collect(ck.reached.keys.All())}
	listed = Books{map[uint64]int64{}, map[uint64]int64{}}
	for _, p := range o.record.Tail {
		listed.Packs[p.Ordinal] = p.Live
	}
	err = ck.packs.All(ctx, func(ordinal uint64, p index.Pack) error {
		listed.Packs[ordinal] = p.Live
		return nil
	})
	if err != nil {
		return counted, listed, err
	}
	err = ck.keys.All(ctx, func(ordinal uint64, k index.DataKey) error {
		listed.Keys[ordinal] = k.Live
		return nil
	})
	if err != nil {
		return counted, listed, err
	}
	return counted, listed, ck.compare(ctx)
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

// Cramp has a run behave as one with very many packs does.
func (b *Backup) Cramp() { b.stored.limit, b.tailFull = 0, 1 }

// Misplace gives another pack the ordinal of one that is stored.
func (b *Backup) Misplace() {
	p := b.stored.parts[0]
	d := wire.NewDecoder(p.records)
	first := index.TakeDirectoryPack(d)
	first.Number += 1000
	b.stored.add(pack.Numbered(first))
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

// Of volumes that AddFull makes: packs and units a leaf, the bytes of a pack, and how far
// leaves are apart.
const (
	FullPacks     = index.LeafUnits
	FullPackBytes = 64
	FullStride    = 4 * index.LeafUnits * commit.LargeUnit
)

// AddFull stores a volume in which each unit of some leaves is in a pack of its own, as if
// each pack were full. The packs are made as always, of a few bytes.
func (b *Backup) AddFull(ctx context.Context, name string, leaves int64) (size int64, err error) {
	record := commit.Volume{Name: name, Kind: commit.Block, Unit: commit.LargeUnit, Size: leaves * FullStride, Used: leaves * FullPacks * commit.LargeUnit}
	none := index.NewCursor(b.nodes, b.objects, index.Tree{})
	builder := index.NewBuilder(b.nodes, b.index, none, leafCount(record.Size, record.Unit))
	sealed := make([]byte, FullPackBytes)
	for i := range leaves {
		l := &index.Leaf{Units: make([]index.Unit, FullPacks), Frames: make([]index.Frame, FullPacks)}
		for n := range l.Units {
			l.Units[n] = index.Unit{Data: true, ID: index.Tag{1, byte(n)}, Fingerprint: index.Tag{2, byte(n)}, Frame: uint8(n)}
			l.Frames[n] = index.Frame{
				Key: b.origin, KeyOrdinal: b.keyOrdinal(), Counter: uint64(i*FullPacks) + uint64(n),
				Raw: true, Length: record.Unit, Pack: b.data.Add(sealed, record.Unit),
			}
			if err := b.data.Close(); err != nil {
				return 0, err
			}
		}
		b.accounts.units(l, record.Unit, 1)
		leaf := uint64(i) * FullStride / (index.LeafUnits * commit.LargeUnit)
		ref, err := b.nodes.PutLeaf(ctx, b.index, l)
		if err != nil {
			return 0, err
		}
		b.index.Note(index.DirectoryLeaf{Leaf: leaf, Content: ref.Content, Offset: ref.Offset, Length: ref.Length})
		if err := builder.Add(ctx, leaf, ref); err != nil {
			return 0, err
		}
		if err := b.checkpoint(ctx); err != nil {
			return 0, err
		}
	}
	record.Root, err = builder.Finish(ctx)
	b.volumes = append(b.volumes, record)
	b.readings = append(b.readings, commit.Reading{})
	return record.Size, err
}

// Borrow has the key table name the data key of another run as this attempt's.
func (b *Backup) Borrow(commitment [32]byte) { b.commitment = commitment }

// KeyTable are the entries of a backup's key table.
func (r *Repository) KeyTable(ctx context.Context, c *Commit) ([]index.DataKey, error) {
	return r.neededKeys(ctx, c)
}
