package backup

import (
	"fmt"
	"strings"
	"time"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
	"github.com/vmstate/vmstate/pkg/inventory"
	"github.com/vmstate/vmstate/pkg/snapshotset"
)

// cut makes the snapshots, and records the instant at which the storage holds all of them.
func cut(in Observed) Decision {
	a := Open(in.Backup)
	if fenced(in.Backup) {
		return cutFenced(in, a)
	}
	switch {
	case in.Cut.Wrong != "":
		return in.fail(v1alpha1.ReasonSnapshotFailed, "%s", in.Cut.Wrong)
	case in.Cut.Foreign != "":
		return in.discard(v1alpha1.AttemptDiscarded, "%s", in.Cut.Foreign)
	case a.Freeze != nil && held(a) && a.Freeze.FrozenAt != nil && a.Freeze.Requester != in.Process:
		// The new process thawed the guest first thing: it was not frozen for the whole cut.
		return in.discard(v1alpha1.AttemptDiscarded, "the manager was restarted while the guest was frozen")
	case in.Cut.Cut && len(in.Cut.Missing) == 0:
		return in.record(v1alpha1.ReasonBinding, "reading the firmware state again", func(s *v1alpha1.VMStateBackupStatus) {
			last := &s.Attempts[len(s.Attempts)-1]
			last.CutEnded, last.SkewMilliseconds = in.micro(), in.Cut.Skew.Milliseconds()
		})
	case in.since(a.CutStarted.Time) >= cutLimit:
		return in.fail(v1alpha1.ReasonSnapshotFailed, "the storage did not cut the snapshots in %s%s", cutLimit, because(in.Cut.Trouble))
	case len(in.Cut.Missing) > 0:
		return makeSnapshots(in, a)
	default:
		return in.say(v1alpha1.ReasonTakingSnapshot, "cutting the snapshots%s", because(in.Cut.Trouble))
	}
}

// because adds a driver's latest error to a message.
func because(trouble string) string {
	if trouble == "" {
		return ""
	}
	return ": " + trouble
}

func makeSnapshots(in Observed, a *v1alpha1.MomentAttempt) Decision {
	choice, missing := snapshotset.ByClass(Recorded(in.Backup), in.Storage, BindingOf(in.Backup))
	if len(missing) > 0 {
		return in.fail(missing[0].Reason, "%s", inWords(missing))
	}
	if choice.Binding == v1alpha1.DisksGroup {
		return in.act(v1alpha1.ReasonTakingSnapshot, "cutting the snapshots", action.CreateGroupSnapshot{
			Name: GroupName(in.Backup, a.Number), Class: choice.GroupClass, Member: Member(in.Backup, a.Number),
		})
	}
	var actions []action.Action
	for i, s := range choice.Snapshots {
		actions = append(actions, action.CreateSnapshot{Name: SnapshotName(in.Backup, a.Number, i), Claim: s.Claim, Class: s.Class})
	}
	return in.act(v1alpha1.ReasonTakingSnapshot, "cutting the snapshots", actions...)
}

// Recorded is the machine as it was recorded, so that nothing is read again between the first
// reading and the cut; that it is still so is proven afterwards.
func Recorded(b *v1alpha1.VMStateBackup) inventory.Inventory {
	out := inventory.Inventory{VM: *b.Status.VM, Running: b.Status.VM.InstanceUID != ""}
	for _, v := range b.Status.Volumes {
		out.Volumes = append(out.Volumes, inventory.Volume{BackupVolume: v})
	}
	return out
}

// prove says whether disks and state are of one moment.
func prove(in Observed) Decision {
	a := Open(in.Backup)
	if d, waiting := secondReading(in, a); waiting {
		return d
	}
	if why := changed(in, a); why != "" {
		return in.discard(v1alpha1.AttemptStateChanged, "%s", why)
	}
	if why := differs(in); why != "" {
		return in.discard(v1alpha1.AttemptDiscarded, "%s", why)
	}
	if BindingOf(in.Backup) == v1alpha1.DisksOffline && !in.Machine.Inventory.Locked {
		return in.discard(v1alpha1.AttemptDiscarded, "somebody took the lock off the halted VM during the cut")
	}
	if a.Freeze != nil && a.Freeze.FrozenAt != nil && held(a) || fenceHeld(a) {
		return in.say(v1alpha1.ReasonBinding, "%s", thawing(&in.Backup.Status))
	}
	m := moment(in, a)
	if in.Backup.Spec.Quiesce == v1alpha1.QuiesceRequired && m.Quiesce != v1alpha1.QuiesceFrozen && m.Quiesce != v1alpha1.QuiesceOffline {
		return in.fail(v1alpha1.ReasonQuiesceFailed, "quiesce is Required, and the guest was not frozen during the cut: %s", m.QuiesceMessage)
	}
	reason, message := v1alpha1.ReasonKeeping, "keeping snapshots and firmware state"
	if in.Backup.Spec.StoreRef != nil {
		reason, message = v1alpha1.ReasonExporting, "waiting until the snapshots can be read"
	}
	return in.record(reason, message, func(s *v1alpha1.VMStateBackupStatus) {
		s.Attempts[len(s.Attempts)-1].Verdict = v1alpha1.AttemptBound
		s.Moment = &m
		s.Summary.Moment = fmt.Sprintf("%s+%s", m.Disks, m.State)
		if m.PausedMilliseconds > 0 {
			s.Summary.Paused = (time.Duration(m.PausedMilliseconds) * time.Millisecond).String()
		}
		s.Summary.Size = bytesText(totalBytes(s))
	})
}

// secondReading waits for it; a witness that is gone or silent proves nothing.
func secondReading(in Observed, a *v1alpha1.MomentAttempt) (Decision, bool) {
	w := in.Witness
	switch {
	case in.ReadTwice():
		return Decision{}, false
	case w.outcome() == v1alpha1.OutcomeFailed:
		return in.discard(v1alpha1.AttemptDiscarded, "the second reading failed: %s", w.Report.Message), true
	case w.Failed != "":
		return in.discard(v1alpha1.AttemptDiscarded, "the witness ended before its second reading: %s", w.Failed), true
	case in.since(a.CutEnded.Time) >= proveLimit:
		return in.discard(v1alpha1.AttemptDiscarded, "the witness did not read again in %s", proveLimit), true
	default:
		return in.say(v1alpha1.ReasonBinding, "reading the firmware state again"), true
	}
}

// changed compares the recorded first reading with the second.
func changed(in Observed, a *v1alpha1.MomentAttempt) string {
	if !hasState(in.Backup) || fenced(in.Backup) {
		return ""
	}
	w := in.Witness.witness()
	switch {
	case w.First == nil || w.First.Digest != a.FirstReading:
		return "the witness's first reading is not the recorded one"
	case w.Second.Digest != a.FirstReading && len(w.Changed) > 0:
		return "the firmware state changed during the cut: " + strings.Join(w.Changed, ", ")
	case w.Second.Digest != a.FirstReading || len(w.Changed) > 0:
		return "the firmware state changed during the cut"
	default:
		return ""
	}
}

func moment(in Observed, a *v1alpha1.MomentAttempt) v1alpha1.Moment {
	b := in.Backup
	m := v1alpha1.Moment{
		Disks: BindingOf(b), State: v1alpha1.StateNone,
		CutStarted: *a.CutStarted, CutEnded: *a.CutEnded, SkewMilliseconds: a.SkewMilliseconds, Attempts: a.Number,
	}
	if f := a.Fence; f != nil && !f.OwnersPause && f.ReleasedAt != nil {
		m.PausedMilliseconds = f.ReleasedAt.Sub(f.RequestedAt.Time).Milliseconds()
	}
	m.Quiesce, m.QuiesceMessage = quiesced(in, a)
	if f := a.Freeze; f != nil && f.FrozenAt != nil && f.ReleasedAt != nil {
		m.FrozenMilliseconds = f.ReleasedAt.Sub(f.RequestedAt.Time).Milliseconds()
	}
	if !hasState(b) {
		return m
	}
	w := in.Witness.witness()
	m.StateDigest = w.StateDigest
	m.State = v1alpha1.StateOffline
	switch {
	case fenced(b):
		m.State = v1alpha1.StateFence
	case m.Disks != v1alpha1.DisksOffline:
		m.State = v1alpha1.StateWitness
		m.WindowMilliseconds = max(w.Second.StartedAt.Sub(w.First.EndedAt.Time), time.Duration(0)).Milliseconds()
	}
	return m
}

// quiesced says whether the guest was frozen during the cut, and why not.
func quiesced(in Observed, a *v1alpha1.MomentAttempt) (v1alpha1.QuiesceOutcome, string) {
	inv, f := in.Machine.Inventory, a.Freeze
	switch {
	case BindingOf(in.Backup) == v1alpha1.DisksOffline:
		return v1alpha1.QuiesceOffline, ""
	case in.Backup.Spec.Quiesce == v1alpha1.QuiesceNever:
		return v1alpha1.QuiesceNotAsked, ""
	case f != nil && f.Failure != "":
		return v1alpha1.QuiesceFailed, f.Failure
	case f != nil && thawedByWitness(in, a):
		return v1alpha1.QuiesceFailed, "the witness thawed the guest before the cut had ended"
	case f != nil && a.CutEnded.Before(&f.Deadline):
		return v1alpha1.QuiesceFrozen, ""
	case f != nil:
		return v1alpha1.QuiesceFailed, fmt.Sprintf("the cut took longer than the %s that the guest may stay frozen", freezeTimeout(in.Backup))
	case a.Fence != nil && a.Fence.OwnersPause, a.Fence == nil && inv.Paused:
		return v1alpha1.QuiesceNotAsked, "the VM was paused by its owner"
	default:
		return v1alpha1.QuiesceNoAgent, "no guest agent was connected"
	}
}

func thawedByWitness(in Observed, a *v1alpha1.MomentAttempt) bool {
	at := in.Witness.witness().ReleasedAt
	return at != nil && at.Before(a.CutEnded)
}

func totalBytes(s *v1alpha1.VMStateBackupStatus) int64 {
	var n int64
	for _, v := range s.Volumes {
		if v.Outcome == v1alpha1.VolumeIncluded {
			n += v.SizeBytes
		}
	}
	return n
}

// bytesText is a size with a binary unit, to one decimal.
func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}

// waitForJob waits, and says what keeps the Job's pod from starting.
func waitForJob(in Observed, t Task, reason, message string) Decision {
	if t.Pending != "" {
		return in.say(v1alpha1.ReasonJobPending, "%s", t.Pending)
	}
	d := in.say(reason, "%s", message)
	d.State = conditions.Working
	return d
}

// failJob says why a Job failed: its own words where it left any, its pod's otherwise.
func (in Observed) failJob(t Task, otherwise, doing string) Decision {
	if r := t.Report; r != nil && r.Message != "" {
		return in.fail(known(r.Reason, otherwise), "%s failed: %s", doing, r.Message)
	}
	return in.fail(otherwise, "%s failed: %s", doing, t.Failed)
}

// known is a report's reason if a backup may fail with it, else the other one: a report is
// written by a pod, whose account others in the namespace can borrow.
func known(reason, otherwise string) string {
	switch reason {
	case v1alpha1.ReasonStateDamaged, v1alpha1.ReasonStateMissing, v1alpha1.ReasonWitnessFailed, v1alpha1.ReasonExportFailed,
		v1alpha1.ReasonUnreachable, v1alpha1.ReasonAccessDenied, v1alpha1.ReasonBucketNotFound, v1alpha1.ReasonClockSkew,
		v1alpha1.ReasonNoConditionalWrites, v1alpha1.ReasonSecretNotFound, v1alpha1.ReasonStoreFull,
		v1alpha1.ReasonInvalidRecipients, v1alpha1.ReasonKeysElsewhere, v1alpha1.ReasonRepositoryDamaged,
		v1alpha1.ReasonBackupDamaged:
		return reason
	default:
		return otherwise
	}
}
