package backup

import (
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
)

// released puts the release before everything else where a recorded freeze or fence is due: first the
// fence, since a paused guest cannot be thawed. It looks at the status as it will be: a cut whose end is
// about to be recorded is released before the record.
func released(in Observed, d Decision) Decision {
	for i := range d.Status.Attempts {
		d = thawed(in, d, &d.Status.Attempts[i])
		d = unpaused(in, d, &d.Status.Attempts[i])
	}
	return d
}

func thawed(in Observed, d Decision, a *v1alpha1.MomentAttempt) Decision {
	if !held(a) {
		return d
	}
	switch {
	case !due(in, a):
		d.RequeueAfter = sooner(d.RequeueAfter, a.Freeze.Deadline.Sub(in.Now))
		return d
	case a.Freeze.FrozenAt == nil:
		d.RequeueAfter = sooner(d.RequeueAfter, lookAgain)
	default:
		d.RequeueAfter = sooner(d.RequeueAfter, time.Second)
	}
	d.Actions = append([]action.Action{unfreeze(in.Backup)}, d.Actions...)
	return d
}

func unpaused(in Observed, d Decision, a *v1alpha1.MomentAttempt) Decision {
	if !fenceHeld(a) {
		return d
	}
	if !fenceDue(in, a) {
		d.RequeueAfter = sooner(d.RequeueAfter, a.Fence.Deadline.Sub(in.Now))
		return d
	}
	// A pause that nobody has seen is in an event of the instance when it lands.
	again := lookAgain
	if a.Fence.PausedAt != nil || a.Fence.ReleaseFailure != "" {
		again = time.Second
	}
	d.RequeueAfter = sooner(d.RequeueAfter, again)
	d.Actions = append([]action.Action{unpause(in.Backup)}, d.Actions...)
	return d
}

func unfreeze(b *v1alpha1.VMStateBackup) action.Unfreeze {
	out := action.Unfreeze{Instance: b.Spec.VMName}
	if b.Status.VM != nil {
		out.UID = b.Status.VM.InstanceUID
	}
	return out
}

// held says that a freeze is recorded, its release is not, and that is still being seen to.
func held(a *v1alpha1.MomentAttempt) bool {
	return a.Freeze != nil && a.Freeze.ReleasedAt == nil && a.Freeze.UnconfirmedAt == nil
}

func anyHeld(s *v1alpha1.VMStateBackupStatus) bool {
	return slices.ContainsFunc(s.Attempts, func(a v1alpha1.MomentAttempt) bool { return held(&a) || fenceHeld(&a) })
}

// due says that a guest must not stay frozen: the cut is over or given up, or the deadline has
// passed, or that of the pause within it. A freeze that was never confirmed waits for the verdict: an
// agent that does not answer would hold up the cut and the second reading.
func due(in Observed, a *v1alpha1.MomentAttempt) bool {
	f := a.Freeze
	return a.Fence != nil && !in.Now.Before(a.Fence.Deadline.Time) || a.Verdict != "" || in.Backup.DeletionTimestamp != nil || !in.Now.Before(f.Deadline.Time) ||
		f.FrozenAt != nil && a.CutEnded != nil
}

// mayAsk says that this process wrote the record just now.
func mayAsk(in Observed, f *v1alpha1.FreezeRecord) bool {
	return f.Requester == in.Process && in.since(f.RequestedAt.Time) < sendWindow
}

// sooner is the shorter wait; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	b = max(b, time.Millisecond)
	if a == 0 {
		return b
	}
	return min(a, b)
}

// Settle records the answers of the actions that came to one.
func (d Decision) Settle(answers []action.Answer) Decision {
	for _, answer := range answers {
		switch answer.Action.(type) {
		case action.Freeze:
			d.settleFreeze(answer)
		case action.Unfreeze:
			d.settleThaw(answer)
		case action.Pause:
			d.settlePause(answer)
		case action.Unpause:
			d.settleUnpause(answer)
		}
	}
	return d
}

// settleFreeze also records the start of the cut, where the answer lets it begin: between a
// frozen guest and its cut there is no time for another pass. Where the guest is paused as well, the
// cut begins under the pause.
func (d Decision) settleFreeze(answer action.Answer) {
	a := &d.Status.Attempts[len(d.Status.Attempts)-1]
	at := metav1.NewMicroTime(answer.At)
	if answer.Failure != "" {
		a.Freeze.Failure = answer.Failure
		if answer.Refused {
			a.Freeze.ReleasedAt = &at // nothing was frozen, and nothing is under way
		}
		return
	}
	a.Freeze.FrozenAt = &at
	if a.Disks != v1alpha1.DisksFence && a.State != v1alpha1.StateFence {
		a.CutStarted = at.DeepCopy()
	}
}

// settleThaw records a release. A thaw counts only if no freeze can land after it: one that
// was confirmed was the last, any other may be under way for inFlight.
//
// KubeVirt's own timer is no proof: a thaw cancels it before the agent is asked (kubevirt.io/kubevirt
// v1.9.0, pkg/virt-launcher/virtwrap/storage/fsfreeze.go).
func (d Decision) settleThaw(answer action.Answer) {
	for i := range d.Status.Attempts {
		a := &d.Status.Attempts[i]
		if held(a) {
			settleFailure(a.Freeze, answer)
		}
		if answer.Failure != "" || !held(a) || a.Freeze.FrozenAt == nil && answer.At.Sub(a.Freeze.RequestedAt.Time) < inFlight {
			continue
		}
		at := metav1.NewMicroTime(answer.At)
		a.Freeze.ReleasedAt = &at
	}
}

// settleFailure records that a guest did not thaw, and ends the asking when it has gone on for too
// long: what was made for the backup does not stay for ever on a guest that never answers. Only an
// answer at which its instance could be seen ends it: an API that is away is no guest that is silent. One
// that is gone from the cluster will not come back by itself, and what it ran went with it.
func settleFailure(f *v1alpha1.FreezeRecord, answer action.Answer) {
	f.ReleaseFailure = answer.Failure
	at := metav1.NewMicroTime(answer.At)
	switch {
	case answer.KubeVirtGone && f.KubeVirtGoneSince == nil:
		f.KubeVirtGoneSince = &at
	case answer.KubeVirtGone && at.Sub(f.KubeVirtGoneSince.Time) >= goneLimit:
		f.UnconfirmedAt = &at
	case !answer.KubeVirtGone:
		f.KubeVirtGoneSince = nil
	}
	if answer.Failure == "" || !answer.GuestSeen {
		return
	}
	if f.ReleaseFailingSince == nil {
		f.ReleaseFailingSince = &at
	}
	limit := thawLimit
	if answer.GuestStatus != "" {
		limit = frozenLimit
	}
	if at.Sub(f.ReleaseFailingSince.Time) >= limit {
		f.UnconfirmedAt, f.GuestStatus = &at, answer.GuestStatus
	}
}

// unconfirmed warns of a guest that may still be frozen; "" if there is none. It never says that
// one is not: the status of the guest lags, and is empty where nobody looks.
func unconfirmed(s *v1alpha1.VMStateBackupStatus) string {
	for _, a := range s.Attempts {
		if f := a.Fence; f != nil && f.UnconfirmedAt != nil {
			return fmt.Sprintf("KubeVirt is gone from this cluster for %s or more, so nobody can be asked to unpause the guest, which was never seen to run again (%s); with KubeVirt its instance went: if its process still runs on a node, end it there",
				goneLimit, f.ReleaseFailure)
		}
		if a.Freeze == nil || a.Freeze.UnconfirmedAt == nil || a.Freeze.ReleasedAt != nil {
			continue
		}
		if a.Freeze.KubeVirtGoneSince != nil {
			return fmt.Sprintf("KubeVirt is gone from this cluster for %s or more, so nobody can be asked to thaw the guest, which was never confirmed to be thawed (%s); with KubeVirt its instance went: if its process still runs on a node, end it there",
				goneLimit, a.Freeze.ReleaseFailure)
		}
		seen := "KubeVirt does not report its filesystems as frozen, which is no proof"
		if status := a.Freeze.GuestStatus; status != "" {
			seen = fmt.Sprintf("KubeVirt reports its filesystems as %q", status)
		}
		return fmt.Sprintf("the guest was asked to thaw for %s and never confirmed it (%s); %s: see whether it still writes to its disks, and if it hangs, thaw it from its console (fsfreeze --unfreeze), restart its agent, or restart the VM",
			a.Freeze.UnconfirmedAt.Sub(a.Freeze.ReleaseFailingSince.Time).Round(time.Minute), a.Freeze.ReleaseFailure, seen)
	}
	return ""
}

// Unconfirmed warns of a guest of a backup that may still be frozen, and is not asked any more.
func Unconfirmed(b *v1alpha1.VMStateBackup) string { return unconfirmed(&b.Status) }

// Interrupted is the decision after an action failed: what it would have recorded did not
// happen, the thaw's answers apart. A snapshot that the API server refuses will be refused again:
// a frozen guest does not wait for that.
func (d Decision) Interrupted(in Observed, answers []action.Answer, err error) Decision {
	if StageOf(in.Backup) == StageCutting && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) {
		return in.fail(v1alpha1.ReasonSnapshotFailed, "the snapshot was refused: %s", err).Settle(answers)
	}
	d.Status = *in.Backup.Status.DeepCopy()
	if d.State == conditions.Working {
		d.Message = err.Error()
	}
	d.RequeueAfter = 0
	return d.Settle(answers)
}

// Blind is the decision of a pass that could not look: what is due is thawed, nothing else.
func Blind(in Observed) Decision {
	return released(in, Decision{Status: *in.Backup.Status.DeepCopy()})
}

// Held says that a guest may be frozen or paused for this backup.
func Held(b *v1alpha1.VMStateBackup) bool { return anyHeld(&b.Status) }

// Deadline is how long from now the next deadline of a guest that is held is away; 0 if there is none to come.
func Deadline(b *v1alpha1.VMStateBackup, now time.Time) (next time.Duration) {
	sooner := func(at metav1.MicroTime) {
		if d := at.Sub(now); d > 0 && (next == 0 || d < next) {
			next = d
		}
	}
	for i := range b.Status.Attempts {
		a := &b.Status.Attempts[i]
		if fenceHeld(a) {
			sooner(a.Fence.Deadline)
		}
		if held(a) {
			sooner(a.Freeze.Deadline)
		}
	}
	return next
}

// thawing says why a guest is not known to be released yet.
func thawing(s *v1alpha1.VMStateBackupStatus) string {
	for _, a := range s.Attempts {
		switch {
		case !fenceHeld(&a):
		case a.Fence.ReleaseFailure != "":
			return "the guest could not be unpaused yet: " + a.Fence.ReleaseFailure
		default:
			return "making sure that the guest is not paused"
		}
		if held(&a) && a.Freeze.ReleaseFailure != "" {
			return "the guest could not be thawed yet: " + a.Freeze.ReleaseFailure
		}
	}
	return "making sure that the guest is thawed"
}

// Release is what a process owes a backup when it starts: the end of a freeze or fence that another
// process recorded and nobody released.
func Release(b *v1alpha1.VMStateBackup, process string) (out []action.Action) {
	for i := range b.Status.Attempts {
		a := &b.Status.Attempts[i]
		if fenceHeld(a) && a.Fence.Requester != process {
			out = append(out, unpause(b))
		}
		if held(a) && a.Freeze.Requester != process {
			out = append(out, unfreeze(b))
		}
	}
	return out
}
