package repository

import (
	"context"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// tables are the pack and key tables of the parent, being changed into this run's.
type tables struct {
	packs *index.Revision[index.Pack]
	keys  *index.Revision[index.DataKey]
}

// writeTables brings the tables up to date. First it settles which of their leaves change,
// then it writes these one by one, so that it never holds a table.
func (b *Backup) writeTables(ctx context.Context, record *commit.Record, tail *tailPacks) error {
	t, err := b.openTables(ctx)
	if err != nil {
		return b.tableError(err)
	}
	b.settle(t)
	if err := putLeaves(ctx, b, t.keys, tail); err != nil {
		return err
	}
	if err := putLeaves(ctx, b, t.packs, tail); err != nil {
		return err
	}
	b.index.Open() // the last pack takes its ordinal before the table is sized by it
	t.packs.Next = max(t.packs.Next, b.ordinals)
	if record.Keys, err = t.keys.PutNodes(ctx, b.index); err != nil {
		return err
	}
	record.Packs, err = t.packs.PutNodes(ctx, b.index)
	return err
}

func putLeaves[E any](ctx context.Context, b *Backup, t *index.Revision[E], tail *tailPacks) error {
	for _, n := range t.Leaves() {
		contents, err := t.Leaf(ctx, n)
		if err != nil {
			return b.tableError(err)
		}
		if err := t.PutLeaf(ctx, tail, n, contents); err != nil {
			return err
		}
	}
	return nil
}

// openTables opens the parent's tables, empty ones without a parent or to count anew. The
// packs and keys of this run will be in them if anything of them is reached.
func (b *Backup) openTables(ctx context.Context) (*tables, error) {
	var before commit.Record
	if b.parent != nil && !b.recounts {
		before = *b.parent.record
	}
	packs, err := index.OpenPacks(ctx, b.nodes, b.objects, before.Packs)
	if err != nil {
		return nil, err
	}
	dataKeys, err := index.OpenKeys(ctx, b.nodes, b.objects, before.Keys)
	if err != nil {
		return nil, err
	}
	for i := range before.Tail {
		b.accounts.packs.Add(before.Tail[i].Ordinal, before.Tail[i].Live)
	}
	t := &tables{index.NewRevision(packs, b.accounts.packs), index.NewRevision(dataKeys, b.accounts.keys)}
	t.packs.Fresh, t.keys.Fresh = b.freshPacks(), b.freshKeys()
	if b.parent != nil {
		t.packs.Next = max(t.packs.Next, b.parent.record.Packs.Next)
		t.keys.Next = max(t.keys.Next, b.parent.record.Keys.Next)
	}
	t.keys.Next = max(t.keys.Next, b.keyOrdinal()+1)
	return t, nil
}

// freshPacks are the packs of this run, those that the parent's table could not list, and,
// if the table begins anew, those that the parent's could.
func (b *Backup) freshPacks() func(context.Context, uint64, uint64, func(index.Numbered[index.Pack]) error) error {
	mine := b.stored.reader(b.objects, b.nodes)
	var parents *index.Walk[index.Pack]
	var tail []commit.TailPack
	if b.parent != nil {
		tail = b.parent.record.Tail
	}
	if b.parent != nil && b.recounts {
		parents = index.WalkPacks(b.nodes, b.objects, b.parent.record.Packs)
	}
	return func(ctx context.Context, from, to uint64, add func(index.Numbered[index.Pack]) error) error {
		for _, p := range tail {
			if p.Ordinal < from || p.Ordinal >= to {
				continue
			}
			if err := add(index.Numbered[index.Pack]{Ordinal: p.Ordinal, Entry: p.Pack}); err != nil {
				return err
			}
		}
		if parents != nil {
			if err := eachEntry(ctx, parents, span{from, to}, add, func(Extent) {}); err != nil {
				return err
			}
		}
		return mine.between(ctx, from, to, add)
	}
}

// freshKeys are the data keys of this attempt and of those that it continues, and, if the
// table begins anew, those of the parent.
func (b *Backup) freshKeys() func(context.Context, uint64, uint64, func(index.Numbered[index.DataKey]) error) error {
	b.resume.keys[b.origin.Attempt] = recordedKey{b.commitment, b.keyVersion}
	var parents *index.Walk[index.DataKey]
	if b.parent != nil && b.recounts {
		parents = index.WalkKeys(b.nodes, b.objects, b.parent.record.Keys)
	}
	return func(ctx context.Context, from, to uint64, add func(index.Numbered[index.DataKey]) error) error {
		if parents != nil {
			if err := eachEntry(ctx, parents, span{from, to}, add, func(Extent) {}); err != nil {
				return err
			}
		}
		for attempt, key := range b.resume.keys {
			ordinal := b.keyBase + uint64(attempt) - 1
			if ordinal < from || ordinal >= to {
				continue
			}
			err := add(index.Numbered[index.DataKey]{Ordinal: ordinal, Entry: index.DataKey{
				Origin:     keys.Origin{Run: b.origin.Run, Attempt: attempt},
				Commitment: key.commitment, Sequence: b.session.Sequence(), VersionID: key.version,
			}})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// settle books what writing the tables does away with: some of their own old nodes, which
// changes the books of the packs that hold these, and so perhaps further nodes, until
// nothing changes any more.
func (b *Backup) settle(t *tables) {
	booked := map[index.Location]bool{}
	for again := true; again; {
		again = false
		for _, r := range append(t.packs.Replaced(), t.keys.Replaced()...) {
			if !booked[r.Location] {
				booked[r.Location], again = true, true
				b.accounts.node(r, -1)
			}
		}
	}
}

// tailPacks are the index packs that hold the tables. These cannot list them, so the commit
// does; there are more than one if the tables are large.
type tailPacks struct {
	b     *Backup
	dir   index.Directory // of the one that is open
	list  []commit.TailPack
	bytes int64
}

// PutNode stores the open pack first if it is full.
func (t *tailPacks) PutNode(ctx context.Context, contents []byte) (index.Hash, index.Location, error) {
	if t.b.index.Buffered() >= t.b.tailFull {
		if err := t.close(ctx); err != nil {
			return index.Hash{}, index.Location{}, err
		}
	}
	return t.b.index.PutNode(ctx, contents)
}

func (t *tailPacks) close(ctx context.Context) error {
	p, _, err := t.b.index.Close(ctx, t.dir)
	if err != nil {
		return err
	}
	t.list = append(t.list, commit.TailPack{Ordinal: p.Ordinal, Pack: p.Pack})
	t.bytes += p.Size
	t.dir.Packs = []index.DirectoryPack{{Ordinal: p.Ordinal, Pack: p.Pack}}
	return nil
}
