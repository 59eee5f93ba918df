package backup

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
			want: withActions(failing, conditions.Failing, lookAgain),
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
			reason: "the guest is released first",
			in: at(failed, clock(time.Second), func(in *Observed) {
				frozen(&in.Backup.Status.Attempts[0])
				in.Children = []Child{{Kind: action.KindJob, Name: "j", UID: "uj"}}
			}),
			want: withActions(failing, conditions.Failing, time.Second,
				action.Unfreeze{Instance: "db", UID: "vmi-db"}, action.Delete{Kind: action.KindJob, Name: "j", UID: "uj"}),
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
		"Refused":          {asked, refused, func(a *v1alpha1.MomentAttempt) { a.Freeze.Failure = "no" }},
		"Thawed":           {frozen, thawed(2 * time.Second), func(a *v1alpha1.MomentAttempt) { a.Freeze.ReleasedAt = micro(2 * time.Second) }},
		"ThawedTooEarly":   {asked, thawed(inFlight - time.Second), func(*v1alpha1.MomentAttempt) {}},
		"ThawedPastFlight": {asked, thawed(inFlight), func(a *v1alpha1.MomentAttempt) { a.Freeze.ReleasedAt = micro(inFlight) }},
		"ThawRefused":      {frozen, []action.Answer{{Action: action.Unfreeze{}, At: noon, Failure: "409"}}, func(*v1alpha1.MomentAttempt) {}},
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
				"Interrupted": Decision{}.Interrupted(in.Backup.Status, tc.answers, errors.New("x")),
			} {
				if diff := cmp.Diff(want, got.Status); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}
