package witness

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/witness/config"
)

var start = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func micro(seconds int) *metav1.MicroTime { return &metav1.MicroTime{Time: at(seconds)} }

// observed is a running machine's witness at the start, then edited.
func observed(edits ...func(*Observed)) Observed {
	in := Observed{
		Now:    at(0),
		Config: config.Config{BackupName: "b", BackupUID: "u", Attempt: 2, Mode: config.Running, StateDir: "/s"},
		Backup: &v1alpha1.VMStateBackup{Status: v1alpha1.VMStateBackupStatus{Attempts: []v1alpha1.MomentAttempt{
			{Number: 1, FirstReading: "old", CutEnded: micro(-60), Verdict: v1alpha1.AttemptStateChanged},
			{Number: 2},
		}}},
	}
	for _, edit := range edits {
		edit(&in)
	}
	return in
}

func attempt(edit func(*v1alpha1.MomentAttempt)) func(*Observed) {
	return func(in *Observed) { edit(&in.Backup.Status.Attempts[1]) }
}

func now(seconds int) func(*Observed) { return func(in *Observed) { in.Now = at(seconds) } }

func offline(in *Observed) { in.Config.Mode = config.Offline }

func firstRead(in *Observed) {
	in.Report.Witness = &v1alpha1.WitnessResult{First: &v1alpha1.WitnessReading{Digest: "one"}}
	in.Backup.Status.Attempts[1].FirstReading = "one"
}

func outcome(o v1alpha1.ReportOutcome) func(*Observed) {
	return func(in *Observed) { in.Report.Outcome = o }
}

var cutEnded = attempt(func(a *v1alpha1.MomentAttempt) { a.CutStarted, a.CutEnded = micro(2), micro(5) })

var abandoned = attempt(func(a *v1alpha1.MomentAttempt) { a.Verdict = v1alpha1.AttemptDiscarded })

// frozen is a freeze of 30 s that was asked for at 0 and seen at once.
func frozen(in *Observed) {
	in.Backup.Status.Attempts[1].Freeze = &v1alpha1.FreezeRecord{RequestedAt: *micro(0), Deadline: *micro(30)}
	in.Freeze = Held{At: at(0), Live: true}
}

var confirmed = attempt(func(a *v1alpha1.MomentAttempt) { a.Freeze.FrozenAt = micro(1) })

var released = attempt(func(a *v1alpha1.MomentAttempt) { a.Freeze.ReleasedAt = micro(4) })

func thawed(seconds int, answered bool) func(*Observed) {
	return func(in *Observed) { in.Freeze.LastTry, in.Freeze.Answered = at(seconds), answered }
}

func thawing(in *Observed) { in.Freeze.Trying = true }

func TestPlan(t *testing.T) {
	waitUntil := func(seconds int) Decision { return Decision{Step: StepWait, WakeAt: at(seconds)} }
	givenUp := fail("the backup gave this attempt up before the cut had ended")
	cases := map[string]struct {
		reason string
		in     Observed
		want   Decision
	}{
		"Start":           {"nothing read yet", observed(), Decision{Step: StepReadFirst}},
		"StartOffline":    {"a machine that does not run is read once", observed(offline), Decision{Step: StepReadOnce}},
		"NotSeenYet":      {"the API does not answer: nothing can be recorded, so nothing is read", observed(func(in *Observed) { in.Backup = nil }), waitUntil(30)},
		"NoAttemptYet":    {"the manager records the attempt when it likes", observed(func(in *Observed) { in.Backup.Status.Attempts = nil }), Decision{Step: StepReadFirst}},
		"OtherAttempt":    {"the cut of an earlier attempt is not ours", observed(firstRead), waitUntil(30)},
		"CutEnded":        {"the last handle is known", observed(firstRead, cutEnded), Decision{Step: StepReadSecond}},
		"Restarted":       {"a new process goes on from the report alone", observed(firstRead, cutEnded, now(20)), Decision{Step: StepReadSecond}},
		"NotOurReading":   {"the manager cut against a reading that is not in our report", observed(firstRead, cutEnded, attempt(func(a *v1alpha1.MomentAttempt) { a.FirstReading = "two" })), fail("the backup's record of the first reading is not the one that this witness made")},
		"NotRecorded":     {"a cut without a recorded reading proves nothing", observed(firstRead, cutEnded, attempt(func(a *v1alpha1.MomentAttempt) { a.FirstReading = "" })), fail("the backup's record of the first reading is not the one that this witness made")},
		"CutWithoutFirst": {"a witness was killed before it recorded: a late reading proves nothing", observed(cutEnded), fail("the cut began before a first reading was recorded")},
		"CutOffline":      {"a machine that does not run keeps its state, whenever it is read", observed(offline, cutEnded), Decision{Step: StepReadOnce}},
		"Abandoned":       {"the manager discarded the attempt", observed(firstRead, abandoned), givenUp},
		"AbandonedEarly":  {"no reading for an attempt that is over", observed(abandoned), givenUp},
		"BackupGone":      {"deleted, or made again under the name", observed(firstRead, func(in *Observed) { in.Gone = true }), givenUp},
		"GoneWhileFrozen": {"somebody removed the finalizer: the guest is still frozen", observed(firstRead, frozen, now(30), func(in *Observed) { in.Gone = true }), Decision{Step: StepThaw}},
		"GoneBeforeSeen":  {"deleted before this process came", observed(func(in *Observed) { in.Gone, in.Backup = true, nil }), givenUp},
		"Done":            {"both readings recorded", observed(firstRead, cutEnded, outcome(v1alpha1.OutcomeSucceeded)), Decision{Step: StepExit}},
		"Failed":          {"a retry of the pod has nothing to add", observed(outcome(v1alpha1.OutcomeFailed)), Decision{Step: StepExit}},

		"Frozen":            {"the guest is the manager's until the deadline", observed(firstRead, frozen, now(10)), waitUntil(30)},
		"FrozenCutEnded":    {"a freeze that is not due does not delay the reading", observed(firstRead, frozen, cutEnded, now(10)), Decision{Step: StepReadSecond}},
		"DoneStillFrozen":   {"a witness does not leave a frozen guest", observed(firstRead, frozen, cutEnded, now(10), outcome(v1alpha1.OutcomeSucceeded)), waitUntil(30)},
		"DoneReleased":      {"the manager thawed it", observed(firstRead, frozen, released, cutEnded, now(10), outcome(v1alpha1.OutcomeSucceeded)), Decision{Step: StepExit}},
		"AbandonedFrozen":   {"given up, but the guest is still frozen: record, then guard", observed(firstRead, frozen, abandoned, now(10)), givenUp},
		"Deadline":          {"the manager is silent", observed(firstRead, frozen, confirmed, now(30)), Decision{Step: StepThaw}},
		"DeadlineAfterDone": {"the manager died between cut and thaw", observed(firstRead, frozen, confirmed, cutEnded, now(30), outcome(v1alpha1.OutcomeSucceeded)), Decision{Step: StepThaw}},
		"DeadlineBeforeAll": {"a witness that restarted thaws before it reads", observed(frozen, now(31)), Decision{Step: StepThaw}},
		"ReleasedLate":      {"the manager was slow, but it did it", observed(firstRead, frozen, released, now(40)), waitUntil(70)},
		"ThawRefused":       {"409 or no answer: again after a second", observed(firstRead, frozen, confirmed, thawed(30, false), now(30)), waitUntil(31)},
		"Thawing":           {"an agent may take its time: its answer is news", observed(firstRead, frozen, confirmed, thawed(30, false), thawing, now(35)), waitUntil(65)},
		"ThawingCutEnded":   {"and the reading does not wait for it", observed(firstRead, frozen, confirmed, cutEnded, thawed(30, false), thawing, now(35)), Decision{Step: StepReadSecond}},
		"ThawAgain":         {"the second is over", observed(firstRead, frozen, confirmed, thawed(30, false), now(31)), Decision{Step: StepThaw}},
		"ThawDoesNotBlock":  {"between two tries there is time for the reading", observed(firstRead, frozen, confirmed, cutEnded, thawed(30, false), now(30)), Decision{Step: StepReadSecond}},
		"ThawedConfirmed":   {"the freeze had been answered, so no request is under way", observed(firstRead, frozen, confirmed, thawed(30, true), now(30)), Decision{Step: StepRecordRelease}},
		"ThawedUnconfirmed": {"a freeze under way may land behind this thaw", observed(firstRead, frozen, thawed(30, true), now(30)), waitUntil(31)},
		"ThawRepeated":      {"so it is repeated", observed(firstRead, frozen, thawed(60, true), now(61)), Decision{Step: StepThaw}},
		"ThawedPastFlight":  {"until no request can be under way", observed(firstRead, frozen, thawed(150, true), now(150)), Decision{Step: StepRecordRelease}},
		"ReleasedByUs":      {"recorded: the process may end", observed(firstRead, frozen, now(121), outcome(v1alpha1.OutcomeFailed), func(in *Observed) { in.Report.Witness.ReleasedAt = micro(120) }), Decision{Step: StepExit}},

		"ClockAhead":         {"our clock is an hour ahead: a record that just arrived is not due", observed(firstRead, frozen, now(3601), func(in *Observed) { in.Freeze.At = at(3600) }), waitUntil(3630)},
		"ClockBehind":        {"our clock is an hour behind: the length is counted from its arrival", observed(firstRead, frozen, now(-3570), func(in *Observed) { in.Freeze.At = at(-3600) }), Decision{Step: StepThaw}},
		"FoundAtStart":       {"a record found at the start may be older than it looks", observed(firstRead, frozen, now(30), func(in *Observed) { in.Freeze = Held{At: at(25)} }), Decision{Step: StepThaw}},
		"FoundAtStartBehind": {"and our clock may be behind", observed(firstRead, frozen, now(-10), func(in *Observed) { in.Freeze = Held{At: at(-40)} }), Decision{Step: StepThaw}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Plan(tc.in)); diff != "" {
				t.Errorf("%s\nPlan() mismatch (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
