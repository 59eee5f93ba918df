package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/mover"
	"github.com/vmstate/vmstate/pkg/repository"
)

func maintain(ctx context.Context, p *program) (status v1alpha1.VMStateReportStatus, err error) {
	if p.config.Maintain == nil {
		return status, errNotTold
	}
	if _, err := p.open(); err != nil {
		return status, err
	}
	keeper := secretKeeper{p.objects, p.config.Maintain.KeySecretName}
	r, err := mover.Maintain(ctx, p.env, *p.config.Maintain, time.Now(), keeper)
	if err != nil {
		return status, err
	}
	out := &v1alpha1.MaintenanceResult{
		Sessions: r.Sessions[:min(len(r.Sessions), maxFaults)], DeletedObjects: int64(r.Deleted.Objects), FreedBytes: r.Deleted.Bytes,
		WaitingBytes: r.Waiting.Bytes, LockedBytes: r.Locked.Bytes, UnexplainedBytes: r.Unexplained.Bytes,
		RetainedObjects: r.Retention.Reached, ExtendedObjects: r.Retention.Extended,
	}
	for _, c := range r.Removed {
		out.Removed = append(out.Removed, v1alpha1.CommitRef{Key: c.Key, Digest: c.Digest})
	}
	for _, s := range r.Refused {
		out.Stay = fault(out.Stay, s.Key, s.Err.Error())
	}
	for _, s := range r.Pinned {
		out.Stay = fault(out.Stay, s.Key, fmt.Sprintf("%d sessions stand on it: %s", len(s.Sessions), strings.Join(s.Sessions, ", ")))
	}
	for _, h := range r.Held {
		out.Held = fault(out.Held, h.VM, h.Err.Error())
	}
	for _, h := range r.Retention.Hurt {
		out.Held = fault(out.Held, h.Key, "the locks of what it needs are not extended: "+h.Err.Error())
	}
	status.Maintenance = out
	return status, nil
}

// fault adds one, up to what a report takes.
func fault(list []v1alpha1.CatalogueFault, key, message string) []v1alpha1.CatalogueFault {
	if len(list) >= maxFaults {
		return list
	}
	return append(list, v1alpha1.CatalogueFault{Key: shortened(key), Message: shortened(message)})
}

// maxVerdicts bounds the backups that one report judges; the others are judged in the next round.
const maxVerdicts = 1000

func verify(ctx context.Context, p *program) (status v1alpha1.VMStateReportStatus, err error) {
	if p.config.Verify == nil {
		return status, errNotTold
	}
	if _, err := p.open(); err != nil {
		return status, err
	}
	r, err := mover.Verify(ctx, p.env, *p.config.Verify)
	if err != nil {
		return status, err
	}
	out := &v1alpha1.VerificationResult{Cursor: r.State, RoundDone: r.RoundDone, CheckedBytes: r.Bytes}
	for _, v := range r.Backups {
		if v.Outcome == repository.OutcomeUnknown || len(out.Backups) >= maxVerdicts {
			continue
		}
		out.Backups = append(out.Backups, v1alpha1.BackupVerdict{
			Commit: v1alpha1.CommitRef{Key: v.Key, Digest: v.Digest}, Damaged: v.Outcome == repository.OutcomeDamaged, Message: shortened(hurtBy(v)),
		})
	}
	for _, d := range r.Damaged {
		out.Damaged = fault(out.Damaged, d.Key, d.Why)
	}
	status.Verification = out
	return status, nil
}

// hurtBy names the volumes that a damaged backup has lost something of.
func hurtBy(v repository.Verdict) string {
	if v.Outcome != repository.OutcomeDamaged {
		return ""
	}
	var names []string
	for _, d := range v.Volumes {
		names = append(names, fmt.Sprintf("volume %q lost up to %d bytes", d.Name, d.Bytes))
	}
	return strings.Join(append(names, v.Reason), "; ")
}
