package witness

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// fence is a witness that guards a guest which is paused for its cut.
func fence(in *Observed) {
	in.Config.Fence = true
	in.Report.Witness = &v1alpha1.WitnessResult{Guarding: true, First: &v1alpha1.WitnessReading{Digest: "one"}}
	in.Backup.Status.Attempts[1].FirstReading = "one"
}

func stateless(in *Observed) { in.Config.StateDir, in.Report.Witness.First = "", nil }

// asked is a pause of 2 s that was recorded at 0 and seen at once.
func asked(in *Observed) {
	in.Backup.Status.Attempts[1].Fence = &v1alpha1.FenceRecord{RequestedAt: *micro(0), Deadline: *micro(2)}
	in.Fence = Held{At: at(0), Live: true}
}

func paused(in *Observed) {
	asked(in)
	in.Backup.Status.Attempts[1].Fence.PausedAt = micro(1)
}

func unpaused(seconds int, answered bool) func(*Observed) {
	return func(in *Observed) { in.Fence.LastTry, in.Fence.Answered = at(seconds), answered }
}

func readFenced(in *Observed) { in.Report.Witness.Fenced = &v1alpha1.WitnessReading{Digest: "two"} }

func letGo(in *Observed) { in.Backup.Status.Attempts[1].Fence.ReleasedAt = micro(2) }

var endedAt2 = attempt(func(a *v1alpha1.MomentAttempt) { a.CutStarted, a.CutEnded = micro(1), micro(2) })

func TestPlanFence(t *testing.T) {
	waitUntil := func(seconds int) Decision { return Decision{Step: StepWait, WakeAt: at(seconds)} }
	owners := func(in *Observed) {
		paused(in)
		in.Backup.Status.Attempts[1].Fence.OwnersPause = true
	}
	cases := map[string]struct {
		reason string
		in     Observed
		want   Decision
	}{
		"Guard":            {"before anything is read it is seen that the guest could be released", observed(func(in *Observed) { in.Config.Fence = true }), Decision{Step: StepGuard}},
		"First":            {"that the state can be read is shown before the guest is paused", observed(fence, func(in *Observed) { in.Report.Witness.First = nil }), Decision{Step: StepReadFirst}},
		"FirstTooLate":     {"no witness begins under a pause", observed(fence, paused, attempt(func(a *v1alpha1.MomentAttempt) { a.CutStarted = micro(1) }), func(in *Observed) { in.Report.Witness.First = nil }), fail("the cut began before a first reading was recorded")},
		"Stateless":        {"there is nothing to read, and a guest to guard", observed(fence, stateless), waitUntil(30)},
		"Asked":            {"it is not paused yet", observed(fence, asked), waitUntil(2)},
		"Paused":           {"now nothing writes", observed(fence, paused), Decision{Step: StepReadFenced, WakeAt: at(2)}},
		"PausedByOwner":    {"and no deadline is kept", observed(fence, owners), Decision{Step: StepReadFenced}},
		"PausedStateless":  {"guarded alone", observed(fence, stateless, paused, now(1)), waitUntil(2)},
		"ReadFenced":       {"what is recorded is not read again", observed(fence, paused, readFenced, now(1)), waitUntil(2)},
		"LetGoUnread":      {"a guest that runs again is not read as a paused one", observed(fence, paused, letGo, now(3)), waitUntil(33)},
		"Ended":            {"the manager has all it needs", observed(fence, paused, letGo, readFenced, endedAt2, now(3)), Decision{Step: StepFinish}},
		"EndedStateless":   {"also without a state", observed(fence, stateless, paused, letGo, endedAt2, now(3)), Decision{Step: StepFinish}},
		"EndedUnread":      {"no reading of the pause", observed(fence, paused, letGo, endedAt2, now(3)), fail("the cut ended before the state of the paused guest was recorded")},
		"Deadline":         {"the manager is silent", observed(fence, paused, now(2)), Decision{Step: StepUnpause}},
		"OwnersDeadline":   {"an owner's pause is not ended", observed(fence, owners, readFenced, now(1000)), waitUntil(1030)},
		"Conflict":         {"again after a second", observed(fence, paused, readFenced, unpaused(2, false), now(2)), waitUntil(3)},
		"Again":            {"the second is over", observed(fence, paused, unpaused(2, false), now(3)), Decision{Step: StepUnpause}},
		"Unpaused":         {"the pause had been seen, so none is under way", observed(fence, paused, unpaused(2, true), now(2)), Decision{Step: StepRecordUnpause}},
		"UnpausedAskedFor": {"a pause that nobody saw may land yet", observed(fence, asked, unpaused(2, true), now(2)), waitUntil(3)},
		"UnpausedPast":     {"until none can", observed(fence, asked, unpaused(150, true), now(150)), Decision{Step: StepRecordUnpause}},
		"FrozenInside":     {"a paused guest cannot be thawed", observed(fence, frozen, confirmed, paused, readFenced, unpaused(2, false), now(2)), waitUntil(3)},
		"FrozenTrying":     {"nor while the answer is out", observed(fence, frozen, confirmed, paused, readFenced, unpaused(2, false), func(in *Observed) { in.Fence.Trying = true }, now(40)), waitUntil(70)},
		"ThawInside":       {"the pause ends before the freeze's deadline, and the freeze with it", observed(fence, frozen, confirmed, paused, now(3), func(in *Observed) { in.Report.Witness.UnpausedAt = micro(2) }), Decision{Step: StepThaw}},
		"ThawBeforeCounts": {"the guest runs, though that does not count yet: it is not left frozen for that", observed(fence, frozen, confirmed, asked, unpaused(2, true), now(2)), Decision{Step: StepThaw}},
		"GoneWhilePaused":  {"somebody removed the finalizer", observed(fence, paused, now(2), func(in *Observed) { in.Gone = true }), Decision{Step: StepUnpause}},
		"DoneStillPaused":  {"a witness does not leave a paused guest", observed(fence, paused, readFenced, endedAt2, outcome(v1alpha1.OutcomeSucceeded), now(1)), waitUntil(2)},
		"ClockBehind":      {"the length is counted from its arrival", observed(fence, paused, now(-3598), func(in *Observed) { in.Fence.At = at(-3600) }), Decision{Step: StepUnpause}},
		"FoundAtStart":     {"a record found at the start may be older than it looks", observed(fence, paused, now(2), func(in *Observed) { in.Fence = Held{At: at(1)} }), Decision{Step: StepUnpause}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Plan(tc.in)); diff != "" {
				t.Errorf("%s\nPlan() mismatch (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
