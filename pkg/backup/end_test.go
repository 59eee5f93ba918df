package backup

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
)

func TestPlanEnd(t *testing.T) {
	failed := func(in *Observed) {
		attempt(ended1)(in)
		in.Backup.Status.Attempts[0].Verdict = v1alpha1.AttemptDiscarded
		in.Backup.Status.Failure = &v1alpha1.Failure{Reason: v1alpha1.ReasonExportFailed, Message: "why"}
	}
	failing := Decision{State: conditions.Failing, Reason: v1alpha1.ReasonExportFailed, Message: "why"}
	withActions := func(d Decision, state conditions.State, after time.Duration, actions ...action.Action) Decision {
		d.State, d.RequeueAfter, d.Actions = state, after, actions
		return d
	}
	completed := metav1.NewTime(noon)
	runPlan(t, map[string]planCase{
		"Order": {
			reason: "claims wait for pods: the next group follows when this one is gone",
			in: at(failed, func(in *Observed) {
				in.Children = []Child{
					{Kind: action.KindClaim, Name: "c", UID: "uc"},
					{Kind: action.KindVolumeSnapshot, Name: "s", UID: "us", Bound: true},
				}
			}),
			want: withActions(failing, conditions.Failing, lookAgain, action.Delete{Kind: action.KindClaim, Name: "c", UID: "uc"}),
		},
		"UnboundGroup": {
			reason: "deleting a group that does not know its content leaves the content behind",
			in: at(failed, func(in *Observed) {
				in.Children = []Child{{Kind: action.KindVolumeGroupSnapshot, Name: "g", UID: "ug", Created: noon}}
			}),
			want: func() Decision {
				d := withActions(failing, conditions.Failing, lookAgain)
				d.Waiting = `VolumeGroupSnapshot "g" is not bound to its content yet, which its removal would leave behind`
				return d
			}(),
		},
		"UnboundGroupWithoutContent": {
			reason: "one that the snapshot controller never looked at has nothing to leave",
			in: at(failed, clock(bindGrace), func(in *Observed) {
				in.Children = []Child{{Kind: action.KindVolumeGroupSnapshot, Name: "g", UID: "ug", Created: noon}}
			}),
			want: withActions(failing, conditions.Failing, lookAgain, action.Delete{Kind: action.KindVolumeGroupSnapshot, Name: "g", UID: "ug"}),
		},
		"UnboundGroupWithContent": {
			reason: "the snapshot controller was killed between the two writes: when it is back, it binds them",
			in: at(failed, clock(removeLimit-1), func(in *Observed) {
				in.Children = []Child{{Kind: action.KindVolumeGroupSnapshot, Name: "g", UID: "ug", Created: noon, Unnamed: true}}
			}),
			want: func() Decision {
				d := withActions(failing, conditions.Failing, lookAgain)
				d.Waiting = `VolumeGroupSnapshot "g" is not bound to its content yet, which its removal would leave behind`
				return d
			}(),
		},
		"NeverRemoved": {
			reason: "a driver that refuses the removal for ever holds up neither the backup nor its namespace: a person is told, once",
			in: at(failed, clock(removeLimit), func(in *Observed) {
				in.Backup.Status.CompletedAt = &completed
				in.Children = []Child{
					{Kind: action.KindVolumeGroupSnapshot, Name: "g", UID: "ug", Bound: true, Deleting: true, DeletedAt: noon},
				}
			}),
			want: func() Decision {
				d := withActions(failing, conditions.Stalled, 0, action.RemoveFinalizer{Finalizer: v1alpha1.FinalizerRelease})
				d.LeftBehind = `VolumeGroupSnapshot "g": being removed for more than 1h0m0s, and not waited for any more; the events of what it is bound to say what its driver answers`
				return d
			}(),
		},
		"BeingRemoved": {
			reason: "until then it is waited for, and what is used by nothing else as well",
			in: at(failed, clock(removeLimit-1), func(in *Observed) {
				in.Children = []Child{
					{Kind: action.KindVolumeGroupSnapshot, Name: "g", UID: "ug", Bound: true, Deleting: true, DeletedAt: noon},
					{Kind: action.KindConfigMap, Name: "c", UID: "uc"},
				}
			}),
			want: func() Decision {
				d := withActions(failing, conditions.Failing, lookAgain)
				d.Waiting = `VolumeGroupSnapshot "g" is being removed`
				return d
			}(),
		},
		"Clean": {
			reason: "one terminal condition, when all is gone",
			in:     at(failed), want: withActions(failing, conditions.Stalled, 0),
			status: func(s *v1alpha1.VMStateBackupStatus) { s.CompletedAt = &completed },
		},
		"LetGo": {
			in:   at(failed, func(in *Observed) { in.Backup.Status.CompletedAt = &completed }),
			want: withActions(failing, conditions.Stalled, 0, action.RemoveFinalizer{Finalizer: v1alpha1.FinalizerRelease}),
		},
		"Settled": {
			reason: "a crash between the last two writes leaves no words of an earlier one",
			in: at(failed, func(in *Observed) {
				in.Backup.Status.CompletedAt, in.Backup.Finalizers = &completed, nil
			}),
			want: withActions(failing, conditions.Stalled, 0),
		},
		"FrozenAndFailed": {
			reason: "the guest is released first; the witness, which would release it in our place, stays until then",
			in: at(failed, clock(time.Second), func(in *Observed) {
				frozen(&in.Backup.Status.Attempts[0])
				in.Children = []Child{{Kind: action.KindJob, Name: "j", UID: "uj"}}
			}),
			want: func() Decision {
				d := withActions(failing, conditions.Failing, time.Second, action.Unfreeze{Instance: "db", UID: "vmi-db"})
				d.Waiting = "making sure that the guest is thawed"
				return d
			}(),
		},
		"CannotBeThawed": {
			reason: "a thaw that keeps failing is said",
			in: at(failed, clock(time.Second), func(in *Observed) {
				frozen(&in.Backup.Status.Attempts[0])
				in.Backup.Status.Attempts[0].Freeze.ReleaseFailure = "no answer"
			}),
			want: func() Decision {
				d := withActions(failing, conditions.Failing, time.Second, action.Unfreeze{Instance: "db", UID: "vmi-db"})
				d.Waiting = "the guest could not be thawed yet: no answer"
				return d
			}(),
		},
		"NeverConfirmed": {
			reason: "KubeVirt's timer is no proof: a thaw that fails has cancelled it",
			in: at(failed, clock(time.Hour), func(in *Observed) {
				asked(&in.Backup.Status.Attempts[0])
				in.Backup.Status.Attempts[0].Freeze.ReleaseFailure = "no answer"
			}),
			want: func() Decision {
				d := withActions(failing, conditions.Failing, lookAgain, action.Unfreeze{Instance: "db", UID: "vmi-db"})
				d.Waiting = "the guest could not be thawed yet: no answer"
				return d
			}(),
		},
		"ReleaseNotConfirmed": {
			reason: "a guest that never answers does not keep everything for ever; a person is told, and nobody says that it is thawed",
			in: at(failed, clock(time.Hour), func(in *Observed) {
				silent(&in.Backup.Status.Attempts[0])
				in.Children = []Child{{Kind: action.KindJob, Name: "j", UID: "uj"}}
			}),
			want: func() Decision {
				d := withActions(failing, conditions.Failing, lookAgain, action.Delete{Kind: action.KindJob, Name: "j", UID: "uj"})
				d.Message += "; the guest was asked to thaw for 30m0s and never confirmed it (no answer); KubeVirt does not report its filesystems as frozen, which is no proof: " +
					"see whether it still writes to its disks, and if it hangs, thaw it from its console (fsfreeze --unfreeze), restart its agent, or restart the VM"
				return d
			}(),
		},
		"KeptStays": {
			reason: "a backup without a store consists of these",
			in: at(momentOf, func(in *Observed) {
				in.Backup.Status.Local = &v1alpha1.LocalCopy{
					Snapshots: []v1alpha1.CutSnapshot{{SnapshotName: "vmstate-u1-snap-1-0"}}, StateClaimName: "vmstate-u1-state",
				}
				in.Children = []Child{
					{Kind: action.KindVolumeSnapshot, Name: "vmstate-u1-snap-1-0", UID: "1", Bound: true},
					{Kind: action.KindClaim, Name: "vmstate-u1-state", UID: "2"},
					{Kind: action.KindConfigMap, Name: "vmstate-u1-spec", UID: "3"},
					{Kind: action.KindReport, Name: "r", UID: "4"},
				}
			}),
			want: withActions(Decision{Reason: v1alpha1.ReasonKept, Message: "2 volumes of 2.0 GiB kept as snapshots on the storage"},
				conditions.Tidying, lookAgain, action.Delete{Kind: action.KindReport, Name: "r", UID: "4"}),
		},
		"Deleted": {
			reason: "our marks on the VM go first",
			in: at(momentOf, func(in *Observed) {
				in.Backup.DeletionTimestamp = &completed
				in.Locked = true
				in.Children = []Child{{Kind: action.KindVolumeSnapshot, Name: "vmstate-u1-snap-1-0", UID: "1", Bound: true}}
			}),
			want: does(v1alpha1.ReasonCleaningUp, "removing what was made",
				action.UnlockVM{VM: "db", UID: "vm-db", Holder: "vmstate-u1"}),
		},
		"DeletedUnlocked": {
			reason: "mid-way: everything goes, what is kept as well",
			in: at(momentOf, func(in *Observed) {
				in.Backup.DeletionTimestamp = &completed
				in.Children = []Child{{Kind: action.KindVolumeSnapshot, Name: "vmstate-u1-snap-1-0", UID: "1", Bound: true}}
			}),
			want: does(v1alpha1.ReasonCleaningUp, "removing what was made",
				action.Delete{Kind: action.KindVolumeSnapshot, Name: "vmstate-u1-snap-1-0", UID: "1"}),
		},
	})
}

// failingSince: the guest is frozen, and has not thawed when it was asked to.
func failingSince(after time.Duration) func(*v1alpha1.MomentAttempt) {
	return func(a *v1alpha1.MomentAttempt) {
		frozen(a)
		a.Freeze.ReleaseFailure, a.Freeze.ReleaseFailingSince = "no answer", micro(after)
	}
}

// silent: it was not asked any more.
func silent(a *v1alpha1.MomentAttempt) {
	failingSince(0)(a)
	a.Freeze.UnconfirmedAt = micro(thawLimit)
}

// goneSince: the guest is frozen, and the cluster has no KubeVirt any more.
func goneSince(after time.Duration) func(*v1alpha1.MomentAttempt) {
	return func(a *v1alpha1.MomentAttempt) {
		frozen(a)
		a.Freeze.ReleaseFailure, a.Freeze.KubeVirtGoneSince = "no answer", micro(after)
	}
}

func goneAt(after time.Duration) []action.Answer {
	return []action.Answer{{Action: action.Unfreeze{}, At: noon.Add(after), Failure: "no answer", KubeVirtGone: true}}
}

func unanswered(after time.Duration, status string) []action.Answer {
	return []action.Answer{{Action: action.Unfreeze{}, At: noon.Add(after), Failure: "no answer", GuestSeen: true, GuestStatus: status}}
}

// TestSettle: an answer is a fact, and a thaw counts only if no freeze can land after it.
func TestSettle(t *testing.T) {
	thawed := func(after time.Duration) []action.Answer {
		return []action.Answer{{Action: action.Unfreeze{}, At: noon.Add(after)}}
	}
	frozenAt := []action.Answer{{Action: action.Freeze{}, At: noon.Add(time.Second)}}
	refused := []action.Answer{{Action: action.Freeze{}, At: noon.Add(time.Second), Failure: "no"}}
	tests := map[string]struct {
		attempt func(*v1alpha1.MomentAttempt)
		answers []action.Answer
		want    func(*v1alpha1.MomentAttempt)
	}{
		"Frozen": {asked, frozenAt, func(a *v1alpha1.MomentAttempt) {
			a.Freeze.FrozenAt, a.CutStarted = micro(time.Second), micro(time.Second)
		}},
		"RefusedForGood": {asked, []action.Answer{{Action: action.Freeze{}, At: noon.Add(time.Second), Failure: "no", Refused: true}}, func(a *v1alpha1.MomentAttempt) {
			a.Freeze.Failure, a.Freeze.ReleasedAt = "no", micro(time.Second)
		}},
		"Refused":          {asked, refused, func(a *v1alpha1.MomentAttempt) { a.Freeze.Failure = "no" }},
		"Thawed":           {frozen, thawed(2 * time.Second), func(a *v1alpha1.MomentAttempt) { a.Freeze.ReleasedAt = micro(2 * time.Second) }},
		"ThawedTooEarly":   {asked, thawed(inFlight - time.Second), func(*v1alpha1.MomentAttempt) {}},
		"ThawedPastFlight": {asked, thawed(inFlight), func(a *v1alpha1.MomentAttempt) { a.Freeze.ReleasedAt = micro(inFlight) }},
		"ThawRefused":      {frozen, []action.Answer{{Action: action.Unfreeze{}, At: noon, Failure: "409"}}, func(a *v1alpha1.MomentAttempt) { a.Freeze.ReleaseFailure = "409" }},
		"ThawUnanswered": {frozen, unanswered(time.Minute, ""), func(a *v1alpha1.MomentAttempt) {
			a.Freeze.ReleaseFailure, a.Freeze.ReleaseFailingSince = "no answer", micro(time.Minute)
		}},
		"ThawUnansweredForLong": {failingSince(0), unanswered(thawLimit, ""), func(a *v1alpha1.MomentAttempt) { a.Freeze.UnconfirmedAt = micro(thawLimit) }},
		"ThawUnansweredFrozen":  {failingSince(0), unanswered(thawLimit, "frozen"), func(*v1alpha1.MomentAttempt) {}},
		"ThawUnansweredFrozenForLong": {failingSince(0), unanswered(frozenLimit, "frozen"), func(a *v1alpha1.MomentAttempt) {
			a.Freeze.UnconfirmedAt, a.Freeze.GuestStatus = micro(frozenLimit), "frozen"
		}},
		"APIAway":             {failingSince(0), []action.Answer{{Action: action.Unfreeze{}, At: noon.Add(frozenLimit), Failure: "no answer"}}, func(*v1alpha1.MomentAttempt) {}},
		"KubeVirtGone":        {frozen, goneAt(time.Minute), func(a *v1alpha1.MomentAttempt) { goneSince(time.Minute)(a) }},
		"KubeVirtGoneForGood": {goneSince(0), goneAt(goneLimit), func(a *v1alpha1.MomentAttempt) { a.Freeze.UnconfirmedAt = micro(goneLimit) }},
		"KubeVirtComesBack":   {goneSince(0), []action.Answer{{Action: action.Unfreeze{}, At: noon.Add(frozenLimit), Failure: "no answer"}}, func(a *v1alpha1.MomentAttempt) { a.Freeze.KubeVirtGoneSince = nil }},
		"KubeVirtBackAndAsked": {goneSince(0), thawed(time.Minute), func(a *v1alpha1.MomentAttempt) {
			a.Freeze.KubeVirtGoneSince, a.Freeze.ReleaseFailure, a.Freeze.ReleasedAt = nil, "", micro(time.Minute)
		}},
		"ThawedAfterAll": {failingSince(0), thawed(frozenLimit), func(a *v1alpha1.MomentAttempt) {
			a.Freeze.ReleaseFailure, a.Freeze.ReleasedAt = "", micro(frozenLimit)
		}},
		"NothingWasAsked":  {frozen, nil, func(*v1alpha1.MomentAttempt) {}},
		"ReleasedOnceOnly": {func(a *v1alpha1.MomentAttempt) { frozen(a); a.Freeze.ReleasedAt = micro(1) }, thawed(time.Minute), func(*v1alpha1.MomentAttempt) {}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := at(attempt(tc.attempt))
			want := *in.Backup.Status.DeepCopy()
			tc.want(&want.Attempts[0])
			for how, got := range map[string]Decision{
				"Settle":      Decision{Status: *in.Backup.Status.DeepCopy()}.Settle(tc.answers),
				"Interrupted": Decision{}.Interrupted(in, tc.answers, errors.New("x")),
			} {
				if diff := cmp.Diff(want, got.Status); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

// A snapshot that is refused will be refused again: the guest does not wait for retries.
func TestInterruptedByRefusal(t *testing.T) {
	in := at(attempt(frozen, cutting))
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "volumesnapshots"}, "s", errors.New("quota"))
	want := in.fail(v1alpha1.ReasonSnapshotFailed, "the snapshot was refused: %s", refused)
	if diff := cmp.Diff(want, Decision{}.Interrupted(in, nil, fmt.Errorf("create: %w", refused)), cmpopts.IgnoreFields(Decision{}, "Message", "Status")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGoesFirst(t *testing.T) {
	waiting := func(change ...func(*Observed)) *v1alpha1.VMStateBackup { return at(change...).Backup }
	later := func(change ...func(*Observed)) *v1alpha1.VMStateBackup {
		b := at(change...).Backup
		b.UID, b.CreationTimestamp = "u2", metav1.NewTime(noon.Add(time.Minute))
		return b
	}
	discarded := func(a *v1alpha1.MomentAttempt) { ended1(a); a.Verdict = v1alpha1.AttemptDiscarded }
	stuck := func(a *v1alpha1.MomentAttempt) { frozen(a); discarded(a) }
	tests := map[string]struct {
		a, b *v1alpha1.VMStateBackup
		want bool
	}{
		"BothWait":               {waiting(), later(), false}, // whoever begins first
		"OlderBetweenAttempts":   {waiting(attempt(discarded)), later(), true},
		"YoungerBetweenAttempts": {later(attempt(discarded)), waiting(), false},
		"Cutting":                {later(attempt(cutting)), waiting(), true},
		"YoungerPrepares":        {later(attempt()), waiting(), true},
		"BothPrepareOlder":       {waiting(attempt()), later(attempt()), true},
		"BothPrepareYounger":     {later(attempt()), waiting(attempt()), false},
		"FrozenStill":            {later(attempt(stuck)), waiting(), true},
		"NeverAnswered":          {later(attempt(silent, discarded)), waiting(), false},
		"Exports":                {waiting(momentOf), later(), false},
	}
	for name, tc := range tests {
		if got := GoesFirst(tc.a, tc.b); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
