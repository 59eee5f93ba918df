package restore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
	"github.com/vmstate/vmstate/test/build"
)

// switching: the switch of a new machine is recorded.
func switching(t *testing.T, s *story) {
	full(t, s)
	s.in.Restore.Status.Switch = &v1alpha1.RestoreSwitch{BegunAt: metav1.NewMicroTime(now)}
}

// appeared: the new machine was made, by whoever carries the label.
func appeared(owner string) option {
	return func(t *testing.T, s *story) {
		vm := build.VM("db", build.Disk("root"), build.TPM(), build.EFI())
		vm.Labels = map[string]string{v1alpha1.LabelOwnerUID: owner}
		exists(vm)(t, s)
		held, err := heldSpec(s.in.Target.Spec, hold)
		if err != nil {
			t.Fatal(err)
		}
		setSpec(t, s, held)
	}
}

func recorded(_ *testing.T, s *story) { s.in.Restore.Status.Switch.VMUID = "vm-db" }

func heldRecorded(_ *testing.T, s *story) { s.in.Restore.Status.Switch.HeldAt = at() }

// typed: the machine has an instancetype, whose revision was made.
func typed(_ *testing.T, s *story) {
	s.docs.VM.Spec.Instancetype = &kubevirtv1.InstancetypeMatcher{Name: "u1.medium", RevisionName: "db-u1"}
	s.docs.Revisions = []appsv1.ControllerRevision{{ObjectMeta: metav1.ObjectMeta{Name: "db-u1"}}}
	s.in.Revisions = map[string]*appsv1.ControllerRevision{"db-instancetype-n4cd4": {ObjectMeta: metav1.ObjectMeta{
		Name: "db-instancetype-n4cd4", UID: "revision-1", Labels: map[string]string{v1alpha1.LabelOwnerUID: string(restoreUID)},
	}}}
}

func TestPlanNew(t *testing.T) {
	held, err := heldMachine(seen(t, switching))
	if err != nil {
		t.Fatal(err)
	}
	findings := Preflight(seen(t, resolvedFrom))
	dry := spec(func(s *v1alpha1.VMStateRestoreSpec) { s.DryRun = true })
	testPlan(t, map[string]planCase{
		"Preflight": {
			reason: "admission is asked before anything is made; the names are recorded if it agrees",
			story:  []option{resolvedFrom},
			want: want{reason: v1alpha1.ReasonPreflight, message: "nothing stands in the way", after: soon,
				actions: []action.Action{action.CreateVM{Object: held, DryRun: true}},
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					s.Findings = findings
					s.Volumes = seen(t, planned).Restore.Status.Volumes
				}},
		},
		"DryRun": {
			reason: "a dry run ends with its findings",
			story:  []option{resolvedFrom, dry},
			want: want{state: conditions.Done, reason: v1alpha1.ReasonDryRun, message: "nothing stands in the way; nothing was changed", after: soon,
				actions: []action.Action{action.CreateVM{Object: held, DryRun: true}},
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					s.Findings = findings
					s.CompletedAt = &metav1.Time{Time: now}
				}},
		},
		"InTheWay": {
			reason: "all that is in the way is said at once, and the restore ends",
			story:  []option{resolvedFrom, func(_ *testing.T, s *story) { s.in.Cluster.StorageClasses = nil }},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonPreflightFailed, after: soon, message: noClass,
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					failure(v1alpha1.ReasonPreflightFailed, noClass)(s)
					s.Findings = Preflight(seen(t, resolvedFrom, func(_ *testing.T, s *story) { s.in.Cluster.StorageClasses = nil }))
				}},
		},
		"NotMade": {
			reason: "the new machine is made held: it cannot start",
			story:  []option{switching},
			want: want{reason: v1alpha1.ReasonSwitching, message: `making virtual machine "db"`, after: step,
				actions: []action.Action{action.CreateVM{Object: held}}},
		},
		"SomebodyElses": {
			reason: "a machine of that name which appeared meanwhile is not touched",
			story:  []option{switching, appeared("another")},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, after: soon,
				message: `virtual machine "db" appeared, which this restore did not make`,
				record:  failure(v1alpha1.ReasonSwitchFailed, `virtual machine "db" appeared, which this restore did not make`)},
		},
		"OursByLabelAlone": {
			reason: "a copy of our label on a machine that can start is no machine of ours",
			story:  []option{switching, exists(labelledVM())},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, after: soon,
				message: `virtual machine "db" appeared, which this restore did not make`,
				record:  failure(v1alpha1.ReasonSwitchFailed, `virtual machine "db" appeared, which this restore did not make`)},
		},
		"GivenUpOursByLabelAlone": {
			reason: "nor is it removed",
			story:  []option{switching, exists(labelledVM()), failedWith, filledGone},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, message: "it was not to be", after: soon,
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					s.CompletedAt = &metav1.Time{Time: now}
					s.Switch.RolledBackAt = at()
				}},
		},
		"Made": {
			reason: "which machine it is is recorded before anything depends on it",
			story:  []option{switching, appeared(string(restoreUID))},
			want: want{reason: v1alpha1.ReasonSwitching, message: `made virtual machine "db"`, after: soon,
				record: func(s *v1alpha1.VMStateRestoreStatus) { s.Switch.VMUID = "vm-db" }},
		},
		"Recorded": {
			reason: "admission denies starts of the new machine too",
			story:  []option{switching, appeared(string(restoreUID)), recorded},
			want: want{reason: v1alpha1.ReasonSwitching, message: `denying starts of virtual machine "db"`, after: step,
				actions: []action.Action{action.HoldVM{VM: "db", UID: "vm-db", Holder: holder}}},
		},
		"Revisions": {
			reason: "the revisions go with the machine that needs them, in the same step as its claims",
			story:  []option{switching, appeared(string(restoreUID)), recorded, denying, heldRecorded, handed, typed},
			want: want{reason: v1alpha1.ReasonSwitching, message: `giving the new volumes to virtual machine "db"`, after: step,
				actions: []action.Action{action.HandOver{Kind: action.KindRevision, Name: "db-instancetype-n4cd4", UID: "revision-1", Owner: ownedBy(build.VM("db"))}}},
		},
		"GivenUp": {
			reason: "a new machine that is given up is removed, if it is ours",
			story:  []option{switching, appeared(string(restoreUID)), recorded, failedWith},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, message: "it was not to be", after: step,
				actions: []action.Action{action.DeleteVM{VM: "db", UID: "vm-db"}}},
		},
		"GivenUpSomebodyElses": {
			reason: "somebody else's machine stays",
			story:  []option{switching, appeared("another"), failedWith},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, message: "it was not to be", after: step,
				actions: []action.Action{
					action.DeleteMade{Kind: action.KindClaim, Name: newRoot, UID: "claim-" + newRoot},
					action.DeleteMade{Kind: action.KindClaim, Name: newState, UID: "claim-" + newState},
				}},
		},
	})
}

const noClass = `nothing was changed; in the way: volume "root" needs storage class "fast", which this cluster does not have: map role Disk to one of (none) in spec.storage; ` +
	`volume "` + sourceState + `" needs storage class "fast", which this cluster does not have: map role FirmwareState to one of (none) in spec.storage`

// TestInterrupted: a refusal ends what can be undone; anything else is tried again, and
// nothing is recorded as if it had happened.
func TestInterrupted(t *testing.T) {
	refusal := fmt.Errorf("%w: no such network", action.ErrDenied)
	hiccup := errors.New("connection refused")
	quota := fmt.Errorf("%w: %w", action.ErrNoRoom, apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "import", errors.New("exceeded quota")))
	for name, tc := range map[string]struct {
		story []option
		err   error
		fails bool
	}{
		"refused before the commit": {[]option{begun, holding, unlabelled, handed}, refusal, true},
		"hiccup before the commit":  {[]option{begun, holding, unlabelled, handed}, hiccup, false},
		"a quota is used up":        {[]option{known}, quota, false},
		"refused after the commit":  {[]option{begun, holding, unlabelled, handed, committed}, refusal, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := seen(t, tc.story...)
			before := in.Restore.Status.DeepCopy()
			before.Conditions, before.Summary.VM = nil, "db"
			got := Plan(in).Interrupted(in, tc.err)
			if tc.fails {
				failure(v1alpha1.ReasonSwitchFailed, "denied: no such network; nothing was replaced")(before)
			}
			if diff := cmp.Diff(*before, got.Status); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if len(got.Actions) > 0 {
				t.Errorf("an interrupted decision has actions: %v", got.Actions)
			}
		})
	}
}

// labelledVM can start, and carries the restore's label.
func labelledVM() *kubevirtv1.VirtualMachine {
	vm := build.VM("db", build.Disk("root"), build.TPM(), build.EFI())
	vm.Labels = map[string]string{v1alpha1.LabelOwnerUID: string(restoreUID)}
	return vm
}

// filledGone: the claims that were made are gone.
func filledGone(_ *testing.T, s *story) {
	delete(s.in.Claims, newRoot)
	delete(s.in.Claims, newState)
}
