package repository

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// Commit makes the backup exist. moment is recorded as it is, at most MaxMoment.
// Before it returns without error, no reader sees anything of the run. ErrAborted if
// garbage collection has ended the run. If another attempt of the same run has
// committed meanwhile, that one's result is returned.
func (b *Backup) Commit(ctx context.Context, moment []byte) (Result, error) {
	if err := b.usable(); err != nil {
		return Result{}, err
	}
	if len(moment) > MaxMoment {
		return Result{}, fmt.Errorf("%w: moment record of %d bytes, allowed are %d", ErrTooLarge, len(moment), MaxMoment)
	}
	record, err := b.finishRecord(ctx, moment)
	if err != nil {
		b.failed = fmt.Errorf("commit: %w", err)
		return Result{}, b.failed
	}
	header := commit.Header{
		Repository: b.repo.id, Epoch: b.epoch.Epoch, VM: b.vm,
		Sequence: b.session.Sequence(), Origin: b.origin,
	}
	b.sealed = true
	object := commit.Seal(b.repo.keys, header, record)
	_, err = objectstore.CreateOrSame(ctx, b.repo.store, b.commitKey(), object)
	if errors.Is(err, objectstore.ErrExists) {
		return b.lostRace(ctx)
	}
	if err != nil {
		b.failed = fmt.Errorf("commit: %w", err)
		return Result{}, b.failed
	}
	link := commit.Link{Sequence: header.Sequence, Run: b.session.Run, Digest: commit.DigestOf(object)}
	return resultOf(&opened{ref: refOf(b.vm, link), header: header, record: record}), nil
}

func (b *Backup) lostRace(ctx context.Context) (Result, error) {
	if err := b.findCommit(ctx); err != nil {
		return Result{}, err
	}
	if b.found == nil {
		return Result{}, fmt.Errorf("commit %q: %w: it was there and is gone", b.commitKey(), ErrNoCommit)
	}
	return *b.found, nil
}

// finishRecord stores what is still in memory, brings the tables up to date, and
// describes the run.
func (b *Backup) finishRecord(ctx context.Context, moment []byte) (*commit.Record, error) {
	if err := b.data.Close(); err != nil {
		return nil, err
	}
	dir, err := b.directory()
	if err != nil {
		return nil, err
	}
	if b.recounts = b.recounts || b.leavesOut(); b.recounts {
		if err := b.recount(ctx, dir); err != nil {
			return nil, err
		}
		if dir, err = b.directory(); err != nil {
			return nil, err
		}
	}
	b.index.Open() // the last pack takes its ordinal before the tables are sized by it
	tables, err := b.openTables(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.settle(ctx, tables); err != nil {
		return nil, b.tableError(err)
	}
	record := b.record(moment)
	if record.Keys, err = tables.keys.Write(ctx, b.index); err != nil {
		return nil, err
	}
	if record.Packs, err = tables.packs.Write(ctx, b.index); err != nil {
		return nil, err
	}
	tail, err := b.index.Close(ctx, dir)
	if err != nil {
		return nil, err
	}
	record.Tail = []commit.TailPack{{Ordinal: tail.Ordinal, Pack: tail.Pack}}
	record.Stored = b.storedBytes() + tail.Size
	if _, err := commit.DecodeRecord(record.Encode()); err != nil {
		return nil, fmt.Errorf("%w: no reader would take the record: %s", ErrInvalid, err.Error())
	}
	return record, nil
}

// tableError tells of tables that cannot be written. Without a parent they are all of
// this run, and one that begins anew will not help.
func (b *Backup) tableError(err error) error {
	if b.parent == nil {
		return fmt.Errorf("write tables: %w", err)
	}
	return parentError(err)
}

func (b *Backup) record(moment []byte) *commit.Record {
	r := &commit.Record{
		Domain:     b.domain(),
		VM:         commit.Subject(b.spec.VM),
		Backup:     commit.Subject(b.spec.Backup),
		Created:    b.spec.Created.Unix(),
		Owner:      b.session.Owner,
		Parent:     b.session.Parent,
		Full:       b.parent == nil,
		Moment:     moment,
		Recipients: b.spec.Recipients.Fingerprints(),
		Volumes:    b.volumes,
	}
	if b.before != nil {
		r.Live = append(r.Live, b.before.Live...)
	}
	if r.Parent != nil {
		r.Live = append(r.Live, *r.Parent)
		if b.before == nil || b.before.ChainUnknown() {
			r.Extensions = append(r.Extensions, commit.Extension{Tag: commit.TagChainUnknown})
		}
	}
	for _, encode := range []func([]commit.Reading) (commit.Extension, bool){commit.EncodeReadings, commit.EncodeFully} {
		if e, ok := encode(b.readings); ok {
			r.Extensions = append(r.Extensions, e)
		}
	}
	r.Live = r.Live[max(0, len(r.Live)-commit.MaxLive):]
	return r
}

func (b *Backup) storedBytes() int64 {
	n := b.keyBytes
	for _, p := range b.packs {
		n += p.Size
	}
	return n
}

// tables are the pack and key tables of the parent, being changed into this run's.
type tables struct {
	packs *index.Entries[index.Pack]
	keys  *index.Entries[index.DataKey]
}

// openTables reads the parent's tables, empty ones without a parent, and adds the
// packs and keys of this run with nothing reached yet.
func (b *Backup) openTables(ctx context.Context) (*tables, error) {
	var packs, dataKeys index.TableRoot
	var tail []commit.TailPack
	if b.parent != nil && !b.recounts {
		packs, dataKeys, tail = b.parent.record.Packs, b.parent.record.Keys, b.parent.record.Tail
	}
	t := &tables{}
	var err error
	if t.packs, err = index.OpenPacks(ctx, b.nodes, b.objects, packs); err != nil {
		return nil, b.tableError(err)
	}
	if t.keys, err = index.OpenKeys(ctx, b.nodes, b.objects, dataKeys); err != nil {
		return nil, b.tableError(err)
	}
	if b.recounts {
		if err := b.renewTables(ctx, t); err != nil {
			return nil, b.tableError(err)
		}
	}
	for _, p := range tail {
		if err := t.addPack(ctx, p.Ordinal, p.Pack); err != nil {
			return nil, b.tableError(err)
		}
	}
	for _, p := range b.packs {
		if err := t.addPack(ctx, p.Ordinal, p.Pack); err != nil {
			return nil, b.tableError(err)
		}
	}
	t.packs.Next = max(t.packs.Next, b.ordinals)
	if err := b.addKeys(ctx, t); err != nil {
		return nil, b.tableError(err)
	}
	return t, nil
}

// addPack refuses a pack where another one is: what reaches that would be lost.
func (t *tables) addPack(ctx context.Context, ordinal uint64, p index.Pack) error {
	have, ok, err := t.packs.Get(ctx, ordinal)
	if err != nil {
		return err
	}
	if ok && packNameOf(&have) != packNameOf(&p) {
		return fmt.Errorf("%w: two packs have the ordinal %d", ErrDamaged, ordinal)
	}
	return t.packs.Set(ctx, ordinal, p)
}

// addKeys adds the data keys of this attempt and of those that it continues.
func (b *Backup) addKeys(ctx context.Context, t *tables) error {
	b.resume.keys[b.origin.Attempt] = recordedKey{b.commitment, b.keyVersion}
	for attempt, key := range b.resume.keys {
		ordinal := b.keyBase + uint64(attempt) - 1
		if b.accounts.keys[ordinal] == 0 {
			continue
		}
		k := index.DataKey{
			Origin:     keys.Origin{Run: b.origin.Run, Attempt: attempt},
			Commitment: key.commitment, Sequence: b.session.Sequence(), VersionID: key.version,
		}
		if err := t.keys.Set(ctx, ordinal, k); err != nil {
			return err
		}
	}
	t.keys.Next = max(t.keys.Next, b.keyOrdinal()+1)
	return nil
}

// settle books what the run reaches more and less. Writing the tables does away
// with some of their own old nodes, which changes the books of the packs that hold
// these, and so perhaps further nodes: until nothing changes any more.
func (b *Backup) settle(ctx context.Context, t *tables) error {
	for ordinal, n := range b.accounts.keys {
		if n != 0 {
			if err := t.keys.AddLive(ctx, ordinal, n); err != nil {
				return err
			}
		}
	}
	for ordinal, n := range b.accounts.packs {
		if n != 0 {
			if err := t.packs.AddLive(ctx, ordinal, n); err != nil {
				return err
			}
		}
	}
	booked := map[index.Location]bool{}
	for again := true; again; {
		again = false
		for _, r := range append(t.packs.Replaced(), t.keys.Replaced()...) {
			if booked[r.Location] {
				continue
			}
			booked[r.Location], again = true, true
			if err := t.packs.AddLive(ctx, r.Ordinal, -r.Length); err != nil {
				return err
			}
		}
	}
	return nil
}
