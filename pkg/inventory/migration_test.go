package inventory

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/test/build"
)

const (
	sourceState = "persistent-state-for-db-abcde"
	targetState = "persistent-state-for-db-fghij"
)

// migrated adds the claim that a migration made for the state. KubeVirt gives it the VM's label, and takes the migration's
// off, when the guest runs at the target; then it deletes the source (pkg/storage/backend-storage, MigrationHandoff).
func migrated(handedOver bool) func(*Seen) {
	return func(s *Seen) {
		c := build.StateClaim("db", "fghij")
		if !handedOver {
			c.Labels = map[string]string{v1alpha1.LabelMigrationName: "m"}
		}
		s.Claims[c.Name] = c
		pv := build.PV(c)
		s.Volumes[pv.Name] = pv
	}
}

func mounts(claim string) func(*Seen) {
	return func(s *Seen) { s.Launchers[0].Spec.Volumes[0].PersistentVolumeClaim.ClaimName = claim }
}

func terminating(claim string) func(*Seen) {
	return func(s *Seen) {
		at := metav1.NewTime(time.Unix(1, 0))
		s.Claims[claim].DeletionTimestamp = &at
	}
}

func without(claim string) func(*Seen) { return func(s *Seen) { delete(s.Claims, claim) } }

// left is what the reader finds of a target while nothing runs: its name alone.
func leftTarget(s *Seen) { s.Targets = []string{targetState} }

func migration(phase kubevirtv1.VirtualMachineInstanceMigrationPhase) func(*Seen) {
	return func(s *Seen) {
		m := kubevirtv1.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
		m.Status.Phase = phase
		s.Migrations = append(s.Migrations, m)
	}
}

// TestMigrationRefusals: while nobody can know which claim holds the state, nothing is captured.
func TestMigrationRefusals(t *testing.T) {
	now := metav1.NewTime(time.Unix(1, 0))
	tests := map[string]struct {
		why  string
		in   Seen
		want Refusal // Message is a part of the message
	}{
		"Pending":   {"it has not touched anything, and may at any moment", runs(halted(), migration(kubevirtv1.MigrationPending)), Refusal{Reason: v1alpha1.ReasonMigrating, Passing: true, Message: `migration "m"`}},
		"HandsOver": {"two claims have the label", runs(halted(), migrated(true), migration(kubevirtv1.MigrationRunning)), Refusal{Reason: v1alpha1.ReasonMigrating, Passing: true, Message: `migration "m"`}},
		"Recovers": {
			"the instance is gone, and KubeVirt looks for the mark in the source",
			with(halted(), migration(kubevirtv1.MigrationRunning)), Refusal{Reason: v1alpha1.ReasonMigrating, Passing: true, Message: `migration "m"`},
		},
		"SecondBegins": {
			"one that ended says nothing of the next", runs(halted(), migration(kubevirtv1.MigrationSucceeded), migration(kubevirtv1.MigrationScheduling)),
			Refusal{Reason: v1alpha1.ReasonMigrating, Passing: true, Message: `migration "m"`},
		},
		"NotHandedOver": {
			"it ended and left the guest on a claim that the next start would not find", runs(halted(), migrated(false), mounts(targetState), migration(kubevirtv1.MigrationFailed)),
			Refusal{Reason: v1alpha1.ReasonMigrating, Passing: true, Message: `claim "persistent-state-for-db-fghij" of migration "m", which has not been put in the place`},
		},
		"BothLabelled": {
			"interrupted between label and removal, running: KubeVirt picks any at the next start", runs(halted(), migrated(true), mounts(targetState)),
			Refusal{Reason: v1alpha1.ReasonStateAmbiguous, Message: `the running pod keeps the firmware state in "persistent-state-for-db-fghij"; take the label off the others`},
		},
		"BothLabelledAtRest": {
			"nothing tells which one the guest used last", with(halted(), migrated(true)),
			Refusal{Reason: v1alpha1.ReasonStateAmbiguous, Message: "find out which one"},
		},
		"TargetAtRest": {
			"the migration may have worked before the guest stopped: the claim with the label may be out of date", with(halted(), leftTarget),
			Refusal{Reason: v1alpha1.ReasonMigrating, Passing: true, Message: `either it or "persistent-state-for-db-abcde" holds the firmware state`},
		},
		"TargetAloneAtRest": {
			"no claim has the label: it is not missing, it was not put in place", with(halted(), without(sourceState), leftTarget),
			Refusal{Reason: v1alpha1.ReasonMigrating, Passing: true, Message: "either it or the one before, which is gone,"},
		},
		"MountedBeingDeleted": {
			"the guest's own state goes when it stops: said as what it is", runs(halted(), terminating(sourceState)),
			Refusal{Reason: v1alpha1.ReasonVolumeNotReady, Message: `claim "persistent-state-for-db-abcde", in which the running pod keeps the firmware state, is being deleted`},
		},
		"MovesBetweenClusters": {
			"a receiving instance waits for its state", runs(halted(), func(s *Seen) { s.VMI.Status.Phase = kubevirtv1.WaitingForSync }),
			Refusal{Reason: v1alpha1.ReasonVMUnsettled, Passing: true, Message: "is starting"},
		},
		"StateWithoutObject": {
			"the object was deleted, the instance moves on", runs(halted(), func(s *Seen) {
				s.VMI.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{StartTimestamp: &now}
			}), Refusal{Reason: v1alpha1.ReasonMigrating, Passing: true, Message: "a migration of VM"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, found := Of(tc.in)
			if len(found) != 1 {
				t.Fatalf("%s: %d refusals: %v", tc.why, len(found), found)
			}
			got := found[0]
			if !strings.Contains(got.String(), tc.want.Message) {
				t.Errorf("%s\n%q does not say %q", tc.why, got.String(), tc.want.Message)
			}
			if diff := cmp.Diff(tc.want, Refusal{Reason: got.Reason, Passing: got.Passing, Message: tc.want.Message}); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

// TestMigratedState: the state is followed to the claim that holds it now, and is another one by UID.
func TestMigratedState(t *testing.T) {
	failedState := &kubevirtv1.VirtualMachineInstanceMigrationState{StartTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}
	tests := map[string]struct {
		why  string
		in   Seen
		want string
	}{
		"Never":      {"", runs(halted()), sourceState},
		"HandedOver": {"the source is gone", runs(halted(), migrated(true), without(sourceState), mounts(targetState), migration(kubevirtv1.MigrationSucceeded)), targetState},
		"SourceTerminating": {
			"the old pod holds up the source's removal", runs(halted(), migrated(true), terminating(sourceState), mounts(targetState), migration(kubevirtv1.MigrationSucceeded)), targetState,
		},
		"SourceTerminatingAtRest": {"and the guest has stopped since", with(halted(), migrated(true), terminating(sourceState)), targetState},
		"Aborted":                 {"the target is being removed", runs(halted(), migrated(false), terminating(targetState), migration(kubevirtv1.MigrationFailed)), sourceState},
		"NotAborted": {
			"a target that was left over is none of the state: the guest runs on the source", runs(halted(), migrated(false), migration(kubevirtv1.MigrationFailed)), sourceState,
		},
		"EndedWithTheInstance": {
			"the state of a migration in an instance that is final says nothing any more",
			with(halted(), func(s *Seen) {
				s.VMI = build.VMI(s.VM)
				s.VMI.Status.Phase, s.VMI.Status.MigrationState = kubevirtv1.Failed, failedState
			}), sourceState,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, found := Of(tc.in)
			if len(found) > 0 {
				t.Fatalf("%s: refused: %+v", tc.why, found)
			}
			want := v1alpha1.CapturedVM{StateClaimName: tc.want, StatePVCUID: build.Claim(tc.want).UID}
			if diff := cmp.Diff(want, v1alpha1.CapturedVM{StateClaimName: got.VM.StateClaimName, StatePVCUID: got.VM.StatePVCUID}); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
