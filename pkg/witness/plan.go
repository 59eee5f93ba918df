package witness

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/witness/config"
)

const (
	// InFlight bounds how long after a freeze or a pause was recorded it can still land,
	// and be seen in the instance's status: 20 s until the manager has sent it or given
	// up, 60 s of the API server's request time-out, 60 s of virt-handler's call to the
	// launcher (kubevirt.io/kubevirt 1.8 and later), and 10 s for the status.
	InFlight = 150 * time.Second
	// thawEvery is the time between two tries to release.
	thawEvery = time.Second
	// lookEvery bounds a wait that nothing else ends.
	lookEvery = 30 * time.Second
)

// Observed is all that a witness knows.
type Observed struct {
	Now    time.Time
	Config config.Config
	// Backup as last seen, also when it is gone since; nil before it was seen.
	Backup *v1alpha1.VMStateBackup
	// Gone says that the API answered that the backup does not exist, or not with our UID.
	Gone bool
	// Report is the witness's own report as recorded, never what is only about to be.
	Report v1alpha1.VMStateReportStatus
	// Freeze and Fence are what this process saw of the freeze and the pause of the attempt.
	Freeze, Fence Held
}

// Held is what cannot be read from any object of a freeze or a pause.
type Held struct {
	// At is when its record was first seen; zero if there is none.
	At time.Time
	// Live says that the record arrived by the watch, so At is when it was written.
	Live bool
	// LastTry is when the last try to release was begun; zero if none was.
	LastTry time.Time
	// Trying says that this last try has no answer yet.
	Trying bool
	// Answered says that this last try was a success, that the instance is gone, or, of a pause, that it runs.
	Answered bool
}

// Step is what a witness does next.
type Step string

const (
	// StepWait does nothing until WakeAt or news of the backup.
	StepWait Step = "Wait"
	// StepReadFirst captures the state and records the first reading.
	StepReadFirst Step = "ReadFirst"
	// StepReadOnce captures the state and records it as both readings.
	StepReadOnce Step = "ReadOnce"
	// StepGuard makes sure that the guest could be unpaused, and records it.
	StepGuard Step = "Guard"
	// StepReadFenced captures the state of the paused guest and records it in place of the first.
	StepReadFenced Step = "ReadFenced"
	// StepFinish records that nothing more is to be read.
	StepFinish Step = "Finish"
	// StepReadSecond reads again and records what changed.
	StepReadSecond Step = "ReadSecond"
	// StepThaw asks to thaw the guest.
	StepThaw Step = "Thaw"
	// StepRecordRelease records that the witness released the guest.
	StepRecordRelease Step = "RecordRelease"
	// StepUnpause asks to unpause the guest.
	StepUnpause Step = "Unpause"
	// StepRecordUnpause records that the witness unpaused the guest.
	StepRecordUnpause Step = "RecordUnpause"
	// StepFail records a failed outcome with Reason and Message.
	StepFail Step = "Fail"
	// StepExit ends the process.
	StepExit Step = "Exit"
)

// Decision is the next step.
type Decision struct {
	Step    Step
	Reason  string
	Message string
	// WakeAt ends a wait, or a reading of a paused guest; zero does not.
	WakeAt time.Time
}

// Plan decides the next step of a witness.
func Plan(in Observed) Decision {
	attempt := in.attempt()
	held := in.GuestHeld()
	if d, ok := release(in, attempt); ok {
		return d
	}
	switch {
	case in.Report.Outcome != "" && !held:
		return Decision{Step: StepExit}
	case in.Report.Outcome != "":
		return wait(in, attempt)
	case in.Gone || (attempt != nil && attempt.Verdict != ""):
		return fail("the backup gave this attempt up before the cut had ended")
	case in.Backup == nil:
		return wait(in, attempt)
	case in.Config.Fence && !guarding(in.Report):
		return Decision{Step: StepGuard}
	case first(in.Report) == nil && in.Config.StateDir != "":
		return readFirst(in, attempt)
	case in.Config.Fence:
		return fenced(in, attempt)
	case attempt == nil || attempt.CutEnded == nil:
		return wait(in, attempt)
	case attempt.FirstReading != first(in.Report).Digest:
		return fail("the backup's record of the first reading is not the one that this witness made")
	default:
		return Decision{Step: StepReadSecond}
	}
}

func readFirst(in Observed, attempt *v1alpha1.MomentAttempt) Decision {
	switch {
	case in.Config.Mode == config.Offline:
		return Decision{Step: StepReadOnce}
	case attempt != nil && attempt.CutStarted != nil:
		return fail("the cut began before a first reading was recorded")
	default:
		return Decision{Step: StepReadFirst}
	}
}

// fenced reads while the guest is paused, and not again: that it was paused until then, and that this
// reading is of the cut, is the manager's to see.
func fenced(in Observed, attempt *v1alpha1.MomentAttempt) Decision {
	done := in.Config.StateDir == "" || in.Report.Witness.Fenced != nil
	switch {
	case attempt == nil:
		return wait(in, attempt)
	case attempt.CutEnded != nil && !done:
		return fail("the cut ended before the state of the paused guest was recorded")
	case attempt.CutEnded != nil:
		return Decision{Step: StepFinish}
	case done || attempt.Fence == nil || attempt.Fence.PausedAt == nil || attempt.Fence.ReleasedAt != nil:
		return wait(in, attempt)
	case attempt.Fence.OwnersPause:
		return Decision{Step: StepReadFenced}
	default:
		// What reads does not release: it ends when that is due.
		return Decision{Step: StepReadFenced, WakeAt: unpauseDue(in.Fence, attempt)}
	}
}

func guarding(r v1alpha1.VMStateReportStatus) bool { return r.Witness != nil && r.Witness.Guarding }

// attempt is ours, as last seen; nil if it is not there yet.
func (in Observed) attempt() *v1alpha1.MomentAttempt {
	if in.Backup == nil {
		return nil
	}
	return Attempt(in.Backup, in.Config.Attempt)
}

// Attempt returns the attempt of that number; nil if it is not there.
func Attempt(b *v1alpha1.VMStateBackup, number int32) *v1alpha1.MomentAttempt {
	for i := range b.Status.Attempts {
		if b.Status.Attempts[i].Number == number {
			return &b.Status.Attempts[i]
		}
	}
	return nil
}

func first(r v1alpha1.VMStateReportStatus) *v1alpha1.WitnessReading {
	if r.Witness == nil {
		return nil
	}
	return r.Witness.First
}

// GuestHeld says that the guest may be frozen or paused for this attempt: that was recorded, and nobody
// recorded its release.
func (in Observed) GuestHeld() bool {
	return freezeHeld(in.attempt(), in.Report) || FenceHeld(in.attempt(), in.Report)
}

func freezeHeld(attempt *v1alpha1.MomentAttempt, report v1alpha1.VMStateReportStatus) bool {
	if attempt == nil || attempt.Freeze == nil || attempt.Freeze.ReleasedAt != nil {
		return false
	}
	return report.Witness == nil || report.Witness.ReleasedAt == nil
}

// FenceHeld says that a pause was recorded that is not the owner's, and nobody recorded its end.
func FenceHeld(attempt *v1alpha1.MomentAttempt, report v1alpha1.VMStateReportStatus) bool {
	if attempt == nil || attempt.Fence == nil || attempt.Fence.OwnersPause || attempt.Fence.ReleasedAt != nil {
		return false
	}
	return report.Witness == nil || report.Witness.UnpausedAt == nil
}

// release is the dead man's switch: first the pause, then the freeze, since a paused guest cannot be thawed.
// It leaves the pause between two tries to the other steps, as well as the time until an answer: a guest
// that cannot be released does not delay a reading.
func release(in Observed, attempt *v1alpha1.MomentAttempt) (Decision, bool) {
	if FenceHeld(attempt, in.Report) {
		steps := [2]Step{StepUnpause, StepRecordUnpause}
		if step, ok := next(in.Now, in.Fence, unpauseDue(in.Fence, attempt), countsFrom(in.Fence, attempt.Fence.PausedAt), steps); ok {
			return Decision{Step: step}, true
		}
		if !in.Fence.Answered {
			return Decision{}, false
		}
	}
	if freezeHeld(attempt, in.Report) {
		steps := [2]Step{StepThaw, StepRecordRelease}
		step, ok := next(in.Now, in.Freeze, thawDue(in, attempt), countsFrom(in.Freeze, attempt.Freeze.FrozenAt), steps)
		return Decision{Step: step}, ok
	}
	return Decision{}, false
}

// next is the first of steps while no answer counts, and the second when one does.
func next(now time.Time, seen Held, due, counts time.Time, steps [2]Step) (Step, bool) {
	switch {
	case seen.Trying || now.Before(due):
		return "", false
	case seen.Answered && !seen.LastTry.Before(counts):
		return steps[1], true
	case seen.LastTry.IsZero() || !now.Before(seen.LastTry.Add(thawEvery)):
		return steps[0], true
	default:
		return "", false
	}
}

func unpauseDue(seen Held, a *v1alpha1.MomentAttempt) time.Time {
	return dueAt(seen, a.Fence.RequestedAt.Time, a.Fence.Deadline.Time)
}

// thawDue is the deadline of the freeze, or that of a pause within it: past that the cut is given up.
func thawDue(in Observed, a *v1alpha1.MomentAttempt) time.Time {
	due := dueAt(in.Freeze, a.Freeze.RequestedAt.Time, a.Freeze.Deadline.Time)
	if a.Fence == nil || a.Fence.OwnersPause {
		return due
	}
	if earlier := unpauseDue(in.Fence, a); earlier.Before(due) {
		return earlier
	}
	return due
}

// dueAt is when the witness releases by itself, by its own clock.
func dueAt(seen Held, requested, deadline time.Time) time.Time {
	counted := seen.At.Add(deadline.Sub(requested))
	if seen.Live || counted.Before(deadline) {
		return counted
	}
	return deadline
}

// countsFrom is the earliest start of a release that no request can undo any more.
func countsFrom(seen Held, confirmed *metav1.MicroTime) time.Time {
	if confirmed != nil {
		return time.Time{}
	}
	return seen.At.Add(InFlight)
}

// wait ends at the next thing that is due by itself.
func wait(in Observed, attempt *v1alpha1.MomentAttempt) Decision {
	wake := in.Now.Add(lookEvery)
	sooner := func(seen Held, due time.Time) {
		if again := seen.LastTry.Add(thawEvery); again.After(due) {
			due = again
		}
		if !seen.Trying && due.Before(wake) {
			wake = due
		}
	}
	fence := FenceHeld(attempt, in.Report)
	if fence {
		sooner(in.Fence, unpauseDue(in.Fence, attempt))
	}
	if freezeHeld(attempt, in.Report) && (!fence || in.Fence.Answered) {
		sooner(in.Freeze, thawDue(in, attempt))
	}
	return Decision{Step: StepWait, WakeAt: wake}
}

func fail(message string) Decision {
	return Decision{Step: StepFail, Reason: v1alpha1.ReasonWitnessFailed, Message: message}
}
