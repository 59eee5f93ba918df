package mover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// ExportResult is one committed backup.
type ExportResult struct {
	repository.Result
	// StateDigest of the firmware state in it; empty if there is none.
	StateDigest string
	// ReadBytes from the disks by this attempt; 0 if an earlier one had committed.
	ReadBytes int64
}

// Export sends the moment to e.Store and commits it last. Before the commit nothing
// exists; a rerun finds what is there and sends the rest, or finds the commit.
//
// State and documents are read and checked before the first disk, so that what is
// quick to fail fails quickly.
func Export(ctx context.Context, e Env, c config.Export) (ExportResult, error) {
	x := &export{env: e, config: c}
	defer x.close()
	if err := x.prepare(); err != nil {
		return ExportResult{}, err
	}
	done, err := x.attempt(ctx, asTold)
	for _, next := range []reach{readAll, anew} {
		if errors.Is(err, repository.ErrParent) {
			done, err = x.attempt(ctx, next) // what the parent lacks, the disks still have
		}
	}
	if err != nil {
		return ExportResult{}, err
	}
	return x.result(done), nil
}

// reach is how much of its parent a run builds on.
type reach int

const (
	// asTold takes over unread what the storage says did not change.
	asTold reach = iota
	// readAll reads everything, and sends what differs.
	readAll
	// anew sends everything.
	anew
)

// attempt is one run from begin to commit.
func (x *export) attempt(ctx context.Context, r reach) (repository.Result, error) {
	backup, err := x.begin(ctx, r == anew)
	if err != nil {
		return repository.Result{}, err
	}
	defer backup.Close()
	if done := backup.Committed(); done != nil {
		return *done, nil
	}
	if err := x.add(ctx, backup, r); err != nil {
		return repository.Result{}, err
	}
	done, err := backup.Commit(ctx, x.config.Moment)
	if err != nil {
		return repository.Result{}, fmt.Errorf("commit: %w", err)
	}
	return done, nil
}

// export is one attempt.
type export struct {
	env    Env
	config config.Export
	disks  []*sourceDisk
	trees  []repository.TreeVolume
	total  int64
	read   int64
}

// prepare opens all that is sent and checks it as far as that goes without reading disks.
func (x *export) prepare() error {
	if c := x.config; c.VM.UID == "" || c.BackupUID == "" || len(c.Disks) == 0 && c.State == nil {
		return fmt.Errorf("%w: export needs a virtual machine, a backup and a volume", ErrTask)
	}
	if state := x.config.State; state != nil {
		captured, _, err := capturedState(x.env.Paths.State, state.Digest)
		if err != nil {
			return err
		}
		x.trees = append(x.trees, stateVolume(state.VolumeName, captured))
		x.total += captured.Bytes()
	}
	documents, err := documentsVolume(x.env.DocumentsVolume, x.env.Paths.Spec)
	if err != nil {
		return err
	}
	x.trees = append(x.trees, documents)
	for _, d := range x.config.Disks {
		disk, err := openSource(x.env.Paths, d)
		if err != nil {
			return fmt.Errorf("volume %q: %w", d.Name, err)
		}
		x.disks = append(x.disks, disk)
		x.total += disk.Size()
	}
	return nil
}

func (x *export) close() {
	for _, d := range x.disks {
		d.Close()
	}
}

func (x *export) begin(ctx context.Context, full bool) (*repository.Backup, error) {
	recipients, err := keys.ParseRecipients(x.config.Recipients)
	if err != nil {
		return nil, err
	}
	k, err := x.env.repositoryKeys()
	if err != nil {
		return nil, err
	}
	repo, err := x.env.expecting(ctx)(repository.OpenWithKeys(ctx, x.env.Store, k))
	if err != nil {
		return nil, fmt.Errorf("open repository: %w", err)
	}
	backup, err := repo.Begin(ctx, x.spec(recipients, full))
	if err != nil {
		return nil, fmt.Errorf("begin backup %q: %w", x.config.BackupName, err)
	}
	return backup, nil
}

func (x *export) spec(recipients repository.Recipients, full bool) repository.BackupSpec {
	c := x.config
	spec := repository.BackupSpec{
		VM:         repository.VM(c.VM),
		Backup:     repository.BackupID{Namespace: c.VM.Namespace, Name: c.BackupName, UID: c.BackupUID},
		Created:    c.Created.UTC().Truncate(time.Second),
		Recipients: recipients,
		Damaged:    c.Damaged,
		Progress:   x.progress,
		Full:       full,
		Stop:       x.env.Stop,
	}
	if c.Parent != nil {
		spec.Parent = &repository.CommitRef{Key: c.Parent.Key, Digest: c.Parent.Digest}
	}
	return spec
}

func (x *export) progress(p repository.Progress) {
	x.read = p.Read
	x.env.progress(Progress{Total: x.total, Done: p.Read + p.Skipped, Read: p.Read, Sent: p.Sent})
}

func (x *export) add(ctx context.Context, backup *repository.Backup, r reach) error {
	limit := newReadLimit(x.env.ReadBytesPerSecond)
	for _, d := range x.disks {
		volume := d.volume()
		volume.Source = paced(ctx, d, limit)
		if err := x.track(ctx, d.config, &volume, r); err != nil {
			return fmt.Errorf("volume %q: %w", d.config.Name, err)
		}
		if _, err := backup.AddBlock(ctx, volume); err != nil {
			return fmt.Errorf("volume %q: %w", d.config.Name, err)
		}
	}
	for _, t := range x.trees {
		if _, err := backup.AddTree(ctx, t); err != nil {
			return fmt.Errorf("volume %q: %w", t.Name, err)
		}
	}
	return nil
}

// result adds to done what only this side knows.
func (x *export) result(done repository.Result) ExportResult {
	r := ExportResult{Result: done, ReadBytes: x.read}
	if x.config.State != nil {
		r.StateDigest = x.config.State.Digest
	}
	return r
}

// Final tells an error that another attempt with the same task cannot cure. Anything
// not known to be so may be worth one.
func Final(err error) bool {
	for _, kind := range finalErrors {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
