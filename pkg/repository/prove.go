package repository

import (
	"context"
	"fmt"

	"github.com/vmstate/vmstate/pkg/repository/commit"
)

// Prove reads all of a backup with an identity: it opens every frame that the backup needs
// and compares every unit with its content id. Unlike Verify it tells a damaged frame from
// the others of its pack. Damage is in the verdict; an error says nothing about the backup.
// progress is called as Begin's is; nil is allowed.
func (r *Repository) Prove(ctx context.Context, c *Commit, progress func(RestoreProgress)) (Verdict, error) {
	verdict := Verdict{CommitRef: c.CommitRef, VM: c.VM, Backup: c.Backup, Outcome: OutcomeVerified}
	if err := r.prove(ctx, &verdict, progress); err != nil {
		return verdict, fmt.Errorf("prove backup %q: %w", c.Key, err)
	}
	return verdict, nil
}

func (r *Repository) prove(ctx context.Context, verdict *Verdict, progress func(RestoreProgress)) error {
	o, err := r.readCommit(ctx, verdict.CommitRef)
	if err != nil {
		return err
	}
	if err := r.newChecker(o).all(ctx); isBroken(err) {
		verdict.Outcome, verdict.Reason = OutcomeDamaged, err.Error()
	} else if err != nil {
		return err
	}
	for i := range o.record.Volumes {
		v := &o.record.Volumes[i]
		bad, err := r.proveVolume(ctx, o, v, progress)
		if err != nil {
			return fmt.Errorf("volume %q: %w", v.Name, err)
		}
		if len(bad) == 0 {
			continue
		}
		if verdict.Outcome != OutcomeDamaged {
			verdict.Outcome, verdict.Reason = OutcomeDamaged, bad[0].Why
		}
		told := VolumeDamage{Name: v.Name, Role: v.Role, Kind: kindOfVolume(v)}
		for _, b := range bad {
			told.Bytes += b.Length
			if len(told.Ranges) < MaxRanges {
				told.Ranges = append(told.Ranges, Extent{Offset: b.Offset, Length: b.Length})
			}
		}
		verdict.Volumes = append(verdict.Volumes, told)
	}
	return nil
}

func (r *Repository) proveVolume(
	ctx context.Context, o *opened, v *commit.Volume, progress func(RestoreProgress),
) ([]BadRange, error) {
	run, err := r.newRestoreOf(ctx, o, v, RestoreSpec{Target: discard{}, Fresh: true, Progress: progress}, &badRanges{})
	if err != nil {
		return nil, err
	}
	if err := run.all(ctx, 0, v.Size); err != nil {
		return nil, err
	}
	return run.bad.list, nil
}

// discard is a target that keeps nothing.
type discard struct{}

func (discard) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (discard) ReadAt(p []byte, _ int64) (int, error)  { return len(p), nil }
func (discard) Zero(int64, int64) error                { return nil }
func (discard) Sync() error                            { return nil }
