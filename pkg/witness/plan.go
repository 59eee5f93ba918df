package witness

import (
	"time"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/witness/config"
)

const (
	// InFlight bounds how long after a freeze was recorded it can still land: 20 s
	// until the manager has sent it or given up, 60 s of the API server's request
	// time-out and 60 s of virt-handler's call to the launcher (kubevirt.io/kubevirt
	// 1.8 and later).
	InFlight = 140 * time.Second
	// thawEvery is the pause between two tries to thaw.
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
	// Freeze is what this process saw of the freeze of the attempt.
	Freeze FreezeSeen
}

// FreezeSeen is what cannot be read from any object.
type FreezeSeen struct {
	// At is when the freeze's record was first seen; zero if there is none.
	At time.Time
	// Live says that the record arrived by the watch, so At is when it was written.
	Live bool
	// LastThaw is when the last try to thaw was begun; zero if none was.
	LastThaw time.Time
	// Thawing says that this last try has no answer yet.
	Thawing bool
	// ThawAnswered says that this last try was a success, or that the instance is gone.
	ThawAnswered bool
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
	// StepReadSecond reads again and records what changed.
	StepReadSecond Step = "ReadSecond"
	// StepThaw asks to thaw the guest.
	StepThaw Step = "Thaw"
	// StepRecordRelease records that the witness released the guest.
	StepRecordRelease Step = "RecordRelease"
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
	// WakeAt ends a wait.
	WakeAt time.Time
}

// Plan decides the next step of a witness.
func Plan(in Observed) Decision {
	attempt := in.attempt()
	held := freezeHeld(attempt, in.Report)
	if held {
		if d, ok := release(in, attempt.Freeze); ok {
			return d
		}
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
	case first(in.Report) == nil && in.Config.Mode == config.Offline:
		return Decision{Step: StepReadOnce}
	case first(in.Report) == nil && attempt != nil && attempt.CutStarted != nil:
		return fail("the cut began before a first reading was recorded")
	case first(in.Report) == nil:
		return Decision{Step: StepReadFirst}
	case attempt == nil || attempt.CutEnded == nil:
		return wait(in, attempt)
	case attempt.FirstReading != first(in.Report).Digest:
		return fail("the backup's record of the first reading is not the one that this witness made")
	default:
		return Decision{Step: StepReadSecond}
	}
}

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

// FreezeHeld says that the guest may be frozen for this attempt: a freeze was
// recorded, and nobody recorded its release.
func (in Observed) FreezeHeld() bool { return freezeHeld(in.attempt(), in.Report) }

// freezeHeld says that a freeze was recorded and nobody recorded its release.
func freezeHeld(attempt *v1alpha1.MomentAttempt, report v1alpha1.VMStateReportStatus) bool {
	if attempt == nil || attempt.Freeze == nil || attempt.Freeze.ReleasedAt != nil {
		return false
	}
	return report.Witness == nil || report.Witness.ReleasedAt == nil
}

// release is the dead man's switch. It leaves the pause between two tries to the
// other steps, as well as the time until an answer: a guest that cannot be thawed
// does not delay the second reading.
func release(in Observed, f *v1alpha1.FreezeRecord) (Decision, bool) {
	if in.Freeze.Thawing || in.Now.Before(dueAt(in.Freeze, f)) {
		return Decision{}, false
	}
	if in.Freeze.ThawAnswered && !in.Freeze.LastThaw.Before(countsFrom(in.Freeze, f)) {
		return Decision{Step: StepRecordRelease}, true
	}
	if in.Freeze.LastThaw.IsZero() || !in.Now.Before(in.Freeze.LastThaw.Add(thawEvery)) {
		return Decision{Step: StepThaw}, true
	}
	return Decision{}, false
}

// dueAt is when the witness thaws by itself, by its own clock.
func dueAt(seen FreezeSeen, f *v1alpha1.FreezeRecord) time.Time {
	counted := seen.At.Add(f.Deadline.Sub(f.RequestedAt.Time))
	if seen.Live || counted.Before(f.Deadline.Time) {
		return counted
	}
	return f.Deadline.Time
}

// countsFrom is the earliest start of a thaw that no freeze can undo any more.
func countsFrom(seen FreezeSeen, f *v1alpha1.FreezeRecord) time.Time {
	if f.FrozenAt != nil {
		return time.Time{}
	}
	return seen.At.Add(InFlight)
}

// wait ends at the next thing that is due by itself.
func wait(in Observed, attempt *v1alpha1.MomentAttempt) Decision {
	wake := in.Now.Add(lookEvery)
	if freezeHeld(attempt, in.Report) && !in.Freeze.Thawing {
		next := dueAt(in.Freeze, attempt.Freeze)
		if again := in.Freeze.LastThaw.Add(thawEvery); again.After(next) {
			next = again
		}
		if next.Before(wake) {
			wake = next
		}
	}
	return Decision{Step: StepWait, WakeAt: wake}
}

func fail(message string) Decision {
	return Decision{Step: StepFail, Reason: v1alpha1.ReasonWitnessFailed, Message: message}
}
