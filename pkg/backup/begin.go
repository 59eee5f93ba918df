package backup

import (
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/conditions"
)

// begin records the next attempt, if nothing stands in its way and nothing of the last is left.
func begin(in Observed) Decision {
	if d, busy := tidyAttempt(in); busy {
		return d
	}
	if d, over := exhausted(in); over {
		return d
	}
	if in.Blocker != "" {
		return in.say(v1alpha1.ReasonWaitingForTurn, "backup %q of VM %q is taking its moment", in.Blocker, in.Backup.Spec.VMName)
	}
	out := Foresee(&in.Backup.Spec, *in.Machine, in.Storage)
	if len(out.Obstacles) > 0 {
		return refused(in, out)
	}
	if d, stop := storeWritable(in); stop {
		return d
	}
	if wait := pause(in); wait > 0 {
		d := in.say(v1alpha1.ReasonBinding, "%s; trying again", Last(in.Backup).Message)
		d.RequeueAfter = wait
		return d
	}
	inv := in.Machine.Inventory
	if escalates(in.Backup) && out.EscalatesTo > 0 {
		out.State = v1alpha1.StateFence
	}
	d := in.record(v1alpha1.ReasonWitnessing, "reading the firmware state", func(s *v1alpha1.VMStateBackupStatus) {
		vm := inv.VM
		s.VM, s.Volumes = &vm, inv.Recorded()
		s.Attempts = append(s.Attempts, v1alpha1.MomentAttempt{
			Number: int32(len(s.Attempts) + 1), StartedAt: *in.micro(), // at most maxAttempts
			Disks: out.Disks, State: out.State,
		})
	})
	if Last(in.Backup) == nil {
		d.Warnings = inv.Warnings
	}
	return d
}

// exhausted ends a backup that had its attempts.
func exhausted(in Observed) (Decision, bool) {
	last := Last(in.Backup)
	if last == nil || last.Number < maxAttempts {
		return Decision{}, false
	}
	if last.Verdict == v1alpha1.AttemptStateChanged {
		return in.fail(v1alpha1.ReasonStateChanged,
			"the firmware state changed during each of %d attempts (last: %s); try again when the guest is quieter, or stop the VM for the backup",
			last.Number, last.Message), true
	}
	return in.fail(v1alpha1.ReasonVMChanged, "none of %d attempts held (last: %s)", last.Number, last.Message), true
}

// waitingFrom is when the present wait began at the earliest.
func waitingFrom(in Observed) time.Time {
	if last := Last(in.Backup); last != nil {
		return last.StartedAt.Time
	}
	return in.Backup.CreationTimestamp.Time
}

// storeWritable looks at the store before the guest is touched.
func storeWritable(in Observed) (Decision, bool) {
	ref := in.Backup.Spec.StoreRef
	if ref == nil {
		return Decision{}, false
	}
	if in.Store == nil {
		return in.fail(v1alpha1.ReasonStoreNotFound, "there is no VMStateStore %q in this namespace", ref.Name), true
	}
	c := meta.FindStatusCondition(in.Store.Status.Conditions, v1alpha1.ConditionWritable)
	switch {
	case c != nil && c.Status == "True":
		return Decision{}, false
	case in.since(waitingFrom(in)) < waitLimit && c == nil:
		return in.say(v1alpha1.ReasonWaitingForStore, "store %q has not been probed yet", ref.Name), true
	case in.since(waitingFrom(in)) < waitLimit:
		return in.say(v1alpha1.ReasonWaitingForStore, "store %q is not writable: %s: %s", ref.Name, c.Reason, c.Message), true
	case c == nil:
		return in.fail(v1alpha1.ReasonStoreNotWritable, "store %q was not probed in time", ref.Name), true
	default:
		return in.fail(v1alpha1.ReasonStoreNotWritable, "store %q is not writable: %s: %s", ref.Name, c.Reason, c.Message), true
	}
}

// pause before the next attempt: longer from time to time, and never in step with a guest or
// with other backups. It follows from UID and number, so that every pass says the same.
func pause(in Observed) time.Duration {
	last := Last(in.Backup)
	if last != nil && last.CutEnded == nil && last.Fence != nil && last.Fence.ReleasedAt != nil {
		return afterOverrun - in.since(last.Fence.ReleasedAt.Time)
	}
	if last == nil || last.CutEnded == nil {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(Member(in.Backup, last.Number))) // a hash never fails
	wait := time.Duration(last.Number)*500*time.Millisecond + time.Duration(h.Sum32()%2000)*time.Millisecond
	return wait - in.since(last.CutEnded.Time)
}

// tidyAttempt removes what the last attempt made, and waits until its freeze is released.
func tidyAttempt(in Observed) (Decision, bool) {
	last := Last(in.Backup)
	if last == nil {
		return Decision{}, false
	}
	if anyHeld(&in.Backup.Status) {
		return in.act(v1alpha1.ReasonBinding, last.Message+"; "+thawing(&in.Backup.Status), undo(in)...), true
	}
	message := last.Message + "; removing what the attempt made"
	left := remains(in, func(c Child) bool { return !isAccount(c) })
	if left.waiting != "" && in.since(left.since) >= waitLimit {
		return in.fail(v1alpha1.ReasonSnapshotFailed, "what an attempt made could not be removed in %s, and no further one is begun: %s (last: %s)",
			waitLimit, left.waiting, last.Message), true
	}
	if len(left.actions) > 0 || left.waiting != "" {
		return in.act(v1alpha1.ReasonBinding, message, left.actions...), true
	}
	return Decision{}, false
}

// settled says again what was reached: a crash between the last two writes must not leave
// words of an earlier one.
func settled(in Observed) Decision {
	d := outcome(in)
	if d.State == conditions.Failing {
		d.State = conditions.Stalled
	} else {
		d.State = conditions.Done
	}
	d.Findings = findings(in)
	return d
}
