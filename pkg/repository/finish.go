package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/commit"
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
	record := b.record(moment)
	tail := &tailPacks{b: b, dir: dir}
	if err := b.writeTables(ctx, record, tail); err != nil {
		return nil, err
	}
	if err := tail.close(ctx); err != nil {
		return nil, err
	}
	record.Tail = tail.list
	record.Stored = b.keyBytes + b.stored.bytes + tail.bytes
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
		r.Live = slices.DeleteFunc(slices.Clone(b.before.Live), func(l commit.Link) bool { return b.removed[l.Run] })
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
