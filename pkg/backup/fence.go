package backup

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/snapshotset"
)

const (
	// escalateAfter attempts during which the firmware state changed, the guest is paused for the next.
	escalateAfter = 3
	// maxOverruns bounds the attempts whose cut took longer than the guest may be paused: each of them
	// cost the guest a pause.
	maxOverruns = 2
	// afterOverrun is how long a guest runs that was paused for nothing, before it is paused again.
	afterOverrun = 10 * time.Second
	// pauseSeen is how much later than it landed a pause is in the instance's status.
	pauseSeen = 10 * time.Second
)

// fenced says that the last attempt reads and cuts while the guest is paused.
func fenced(b *v1alpha1.VMStateBackup) bool {
	a := Last(b)
	return a != nil && (a.Disks == v1alpha1.DisksFence || a.State == v1alpha1.StateFence)
}

// Fenced says that the last attempt of a backup reads and cuts while the guest is paused.
func Fenced(b *v1alpha1.VMStateBackup) bool { return fenced(b) }

// maxPause is how long the guest may be paused; 0 is not at all.
func maxPause(spec *v1alpha1.VMStateBackupSpec) time.Duration {
	if spec.Require.MaxPause == nil {
		return 0
	}
	return spec.Require.MaxPause.Duration
}

// escalates says that the firmware state changed too often for a witness alone, and that the guest may be
// paused for it.
func escalates(b *v1alpha1.VMStateBackup) bool {
	changes := 0
	for _, a := range b.Status.Attempts {
		if a.Verdict == v1alpha1.AttemptStateChanged {
			changes++
		}
	}
	return changes >= escalateAfter && maxPause(&b.Spec) > 0
}

// openFence records the pause, asks for it, and goes on when it is seen. The guest's freeze is over with.
func openFence(in Observed, a *v1alpha1.MomentAttempt, first string) Decision {
	const pausing = "pausing the guest"
	f := a.Fence
	switch {
	case a.Freeze != nil && a.Freeze.FrozenAt != nil && (!held(a) || a.Freeze.Requester != in.Process):
		return in.discard(v1alpha1.AttemptDiscarded, "the guest was thawed before it was paused")
	case f == nil && a.Freeze == nil && in.Machine.Inventory.Frozen:
		return in.discard(v1alpha1.AttemptDiscarded, "the guest is frozen by another tool")
	case f == nil && in.Machine.Inventory.Paused && in.Machine.Inventory.PauseReason != snapshotset.PausedByUser:
		return in.discard(v1alpha1.AttemptDiscarded, "the guest is paused, and not by anybody's will (%s)", in.Machine.Inventory.PauseReason)
	case f == nil && in.Machine.Inventory.Paused:
		return in.record(v1alpha1.ReasonTakingSnapshot, "cutting the snapshots", func(s *v1alpha1.VMStateBackupStatus) {
			last := &s.Attempts[len(s.Attempts)-1]
			last.FirstReading, last.Fence = first, ownersPause(in)
			last.CutStarted = in.micro()
		})
	case f == nil:
		return in.record(v1alpha1.ReasonPausing, pausing, func(s *v1alpha1.VMStateBackupStatus) {
			last := &s.Attempts[len(s.Attempts)-1]
			last.FirstReading, last.Fence = first, fence(in, a)
		})
	case f.Failure != "" && f.ReleasedAt != nil:
		return in.fail(v1alpha1.ReasonPauseFailed, "KubeVirt does not pause VM %q: %s", in.Backup.Spec.VMName, f.Failure)
	case f.Failure != "":
		return in.discard(v1alpha1.AttemptDiscarded, "the guest was not seen paused: %s", f.Failure)
	case f.Requester != in.Process || in.since(f.RequestedAt.Time) >= sendWindow || !in.Now.Before(f.Deadline.Time):
		return in.discard(v1alpha1.AttemptDiscarded, "the manager was interrupted while it paused the guest")
	default:
		return in.act(v1alpha1.ReasonPausing, pausing, action.Pause{
			Instance: in.Backup.Spec.VMName, UID: in.Backup.Status.VM.InstanceUID, Limit: f.Deadline.Sub(in.Now),
		})
	}
}

// fence is the record of a pause that is about to be asked for. A guest that is paused cannot be thawed,
// so the end of its freeze ends the pause too.
func fence(in Observed, a *v1alpha1.MomentAttempt) *v1alpha1.FenceRecord {
	out := &v1alpha1.FenceRecord{
		RequestedAt: *in.micro(), Deadline: metav1.NewMicroTime(in.Now.Add(maxPause(&in.Backup.Spec))), Requester: in.Process,
	}
	if f := a.Freeze; f != nil && f.FrozenAt != nil && f.Deadline.Before(&out.Deadline) {
		out.Deadline = f.Deadline
	}
	return out
}

// ownersPause is the record of a pause that is not ours: its end is not ours to bring about.
func ownersPause(in Observed) *v1alpha1.FenceRecord {
	return &v1alpha1.FenceRecord{
		RequestedAt: *in.micro(), Deadline: metav1.NewMicroTime(in.Now.Add(cutLimit)), OwnersPause: true,
		PausedAt: in.micro(), PausedSince: in.Machine.Inventory.PausedSince,
	}
}

// cutFenced waits for what must be there before the guest runs again: every handle, and the reading of its
// firmware state. That it was paused all the time is looked at after both.
func cutFenced(in Observed, a *v1alpha1.MomentAttempt) Decision {
	f, w := a.Fence, in.Witness
	whole := in.Cut.Cut && len(in.Cut.Missing) == 0
	switch {
	case in.Cut.Wrong != "":
		return in.fail(v1alpha1.ReasonSnapshotFailed, "%s", in.Cut.Wrong)
	case in.Cut.Foreign != "":
		return in.discard(v1alpha1.AttemptDiscarded, "%s", in.Cut.Foreign)
	case !f.OwnersPause && f.Requester != in.Process:
		return in.discard(v1alpha1.AttemptDiscarded, "the manager was restarted while the guest was paused")
	case !in.Now.Before(f.Deadline.Time):
		return overrun(in, f)
	case len(in.Cut.Missing) > 0:
		return makeSnapshots(in, a)
	case !whole:
		return in.say(v1alpha1.ReasonTakingSnapshot, "cutting the snapshots%s", because(in.Cut.Trouble))
	case hasState(in.Backup) && w.outcome() == v1alpha1.OutcomeFailed:
		return in.discard(v1alpha1.AttemptDiscarded, "the firmware state of the paused guest was not read: %s", w.Report.Message)
	case hasState(in.Backup) && w.Failed != "":
		return in.discard(v1alpha1.AttemptDiscarded, "the witness ended before it read the paused guest's firmware state: %s", w.Failed)
	case hasState(in.Backup) && w.witness().Fenced == nil:
		return in.say(v1alpha1.ReasonTakingSnapshot, "reading the firmware state of the paused guest")
	case in.PausedSince == nil || !in.PausedSince.Equal(f.PausedSince):
		return in.discard(v1alpha1.AttemptDiscarded, "somebody unpaused the guest during the cut")
	}
	if why := distrust(in); why != "" {
		return in.fail(v1alpha1.ReasonWitnessFailed, "%s", why)
	}
	return in.record(v1alpha1.ReasonBinding, "looking whether the VM is still the same", func(s *v1alpha1.VMStateBackupStatus) {
		last := &s.Attempts[len(s.Attempts)-1]
		last.CutEnded, last.SkewMilliseconds = in.micro(), in.Cut.Skew.Milliseconds()
	})
}

// overrun gives up a cut that takes longer than the guest may be paused. A storage that was slow once is
// given another chance, and no third one.
func overrun(in Observed, f *v1alpha1.FenceRecord) Decision {
	waited := f.Deadline.Sub(f.RequestedAt.Time).Round(time.Millisecond)
	what := "the storage did not cut the snapshots" + because(in.Cut.Trouble)
	switch {
	case in.Cut.Cut && hasState(in.Backup) && in.Witness.witness().Fenced == nil:
		what = "the witness did not read the firmware state"
	case in.Cut.Cut:
		what = "it was not seen that all is there"
	}
	if f.OwnersPause {
		return in.fail(v1alpha1.ReasonSnapshotFailed, "%s in %s", what, waited)
	}
	overruns := 1
	for _, a := range in.Backup.Status.Attempts {
		if a.Fence != nil && a.Verdict != "" && a.Fence.PausedAt != nil && a.CutEnded == nil && !a.Fence.OwnersPause {
			overruns++
		}
	}
	if overruns < maxOverruns {
		return in.discard(v1alpha1.AttemptDiscarded, "within the %s that the guest may be paused %s", waited, what)
	}
	return in.fail(v1alpha1.ReasonPauseExceeded,
		"within the %s that the guest may be paused %s, %d times: raise require.maxPause, stop the VM for the backup, or put its disks on a driver that cuts them together",
		waited, what, overruns)
}

// fenceHeld says that a pause of ours is recorded, its release is not, and that is still being seen to. It
// is for as long as KubeVirt is there: what is paused is seen in the instance's status, by everybody.
func fenceHeld(a *v1alpha1.MomentAttempt) bool {
	return a.Fence != nil && !a.Fence.OwnersPause && a.Fence.ReleasedAt == nil && a.Fence.UnconfirmedAt == nil
}

// fenceDue says that a guest must not stay paused.
func fenceDue(in Observed, a *v1alpha1.MomentAttempt) bool {
	return a.Verdict != "" || a.CutEnded != nil || in.Backup.DeletionTimestamp != nil || !in.Now.Before(a.Fence.Deadline.Time)
}

func unpause(b *v1alpha1.VMStateBackup) action.Unpause {
	return action.Unpause(unfreeze(b))
}

// settlePause also records the start of the cut: between a paused guest and its cut there is no time for
// another pass.
func (d Decision) settlePause(answer action.Answer) {
	a := &d.Status.Attempts[len(d.Status.Attempts)-1]
	at := metav1.NewMicroTime(answer.At)
	if answer.Failure != "" {
		a.Fence.Failure = answer.Failure
		if answer.Refused {
			a.Fence.ReleasedAt = &at // nothing was paused, and nothing is under way
		}
		return
	}
	a.Fence.PausedAt, a.Fence.PausedSince = &at, answer.PausedSince
	a.CutStarted = at.DeepCopy()
}

// settleUnpause records a release: the instance runs. After a pause that was never seen that counts only
// when no request to pause can land any more, and would be in the status if it had.
func (d Decision) settleUnpause(answer action.Answer) {
	for i := range d.Status.Attempts {
		a := &d.Status.Attempts[i]
		if !fenceHeld(a) {
			continue
		}
		f := a.Fence
		f.ReleaseFailure = answer.Failure
		gone(f, answer)
		if answer.Failure != "" || f.PausedAt == nil && answer.At.Sub(f.RequestedAt.Time) < inFlight+pauseSeen {
			continue
		}
		at := metav1.NewMicroTime(answer.At)
		f.ReleasedAt = &at
	}
}

// gone ends the asking when KubeVirt has been gone from the cluster for long: what it ran went with it.
func gone(f *v1alpha1.FenceRecord, answer action.Answer) {
	at := metav1.NewMicroTime(answer.At)
	switch {
	case !answer.KubeVirtGone:
		f.KubeVirtGoneSince = nil
	case f.KubeVirtGoneSince == nil:
		f.KubeVirtGoneSince = &at
	case at.Sub(f.KubeVirtGoneSince.Time) >= goneLimit:
		f.UnconfirmedAt = &at
	}
}
