package restore

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
	"github.com/vmstate/vmstate/test/build"
)

type want struct {
	state   conditions.State
	reason  string
	message string
	actions []action.Action
	after   time.Duration
	// record is what the status gets beside what it had.
	record func(*v1alpha1.VMStateRestoreStatus)
}

func failure(reason, message string) func(*v1alpha1.VMStateRestoreStatus) {
	return func(s *v1alpha1.VMStateRestoreStatus) {
		s.Failure = &v1alpha1.RestoreFailure{At: metav1.NewMicroTime(now), Reason: reason, Message: message}
	}
}

func at() *metav1.MicroTime {
	t := metav1.NewMicroTime(now)
	return &t
}

type planCase struct {
	reason string
	story  []option
	want   want
}

func testPlan(t *testing.T, cases map[string]planCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := seen(t, tc.story...)
			expected := Decision{
				State: tc.want.state, Reason: tc.want.reason, Message: tc.want.message,
				Actions: tc.want.actions, RequeueAfter: tc.want.after, Status: *in.Restore.Status.DeepCopy(),
			}
			expected.Status.Conditions = nil
			expected.Status.Summary.VM = "db"
			if tc.want.record != nil {
				tc.want.record(&expected.Status)
			}
			if diff := cmp.Diff(expected, Plan(in)); diff != "" {
				t.Errorf("%s\nPlan() mismatch (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

const meanwhile = `meanwhile, claim "root-db", which would be replaced, is used by instance rescue as well: detach it there first, or restore as a new virtual machine; nothing was replaced`

func TestPlanSwitch(t *testing.T) {
	testPlan(t, map[string]planCase{
		"Filled": {
			reason: "a restore that is deleted from here on must be undone, so its finalizer comes first",
			story:  []option{full, inPlace, func(_ *testing.T, s *story) { s.in.Restore.Finalizers = nil }},
			want: want{reason: v1alpha1.ReasonSwitching, message: "about to put the new volumes in place", after: step,
				actions: []action.Action{action.AddFinalizer{Finalizer: v1alpha1.FinalizerSwitch}}},
		},
		"Runs": {
			reason: "the machine is stopped by its run strategy, which is recorded",
			story:  []option{begun, runs, spec(func(s *v1alpha1.VMStateRestoreSpec) { s.StopPolicy = v1alpha1.StopStop })},
			want: want{reason: v1alpha1.ReasonStopping, message: `stopping virtual machine "db"`, after: step,
				actions: []action.Action{action.SetRunStrategy{VM: "db", UID: "vm-db", Strategy: "Halted"}}},
		},
		"StartedMeanwhile": {
			reason: "stopPolicy Refuse also holds for a machine that is started during the fill",
			story:  []option{begun, runs},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, after: soon,
				message: `virtual machine "db" was started meanwhile, and stopPolicy is Refuse; the virtual machine is put back as it was`,
				record:  failure(v1alpha1.ReasonSwitchFailed, `virtual machine "db" was started meanwhile, and stopPolicy is Refuse; the virtual machine is put back as it was`)},
		},
		"InstanceMadeMeanwhile": {
			reason: "what the preflight looked at is looked at again before anything is replaced",
			story:  []option{full, inPlace, direct("rescue", "root-db")},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonPreflightFailed, after: soon, message: meanwhile,
				record: failure(v1alpha1.ReasonPreflightFailed, meanwhile)},
		},
		"NotLookedAround": {
			reason: "the switch does not begin without that look",
			story:  []option{full, inPlace, func(_ *testing.T, s *story) { s.in.Cluster = nil }},
			want:   want{reason: v1alpha1.ReasonSwitching, message: "looking for what could stand in the way", after: patience},
		},
		"Stopped": {
			reason: "admission denies starts before anything moves",
			story:  []option{begun},
			want: want{reason: v1alpha1.ReasonSwitching, message: `denying starts of virtual machine "db"`, after: step,
				actions: []action.Action{action.HoldVM{VM: "db", UID: "vm-db", Holder: holder}}},
		},
		"OldStateLabelled": {
			reason: "with two labelled claims KubeVirt picks at random: the old one goes first",
			story:  []option{begun, holding},
			want: want{reason: v1alpha1.ReasonSwitching, message: "setting the old firmware state aside", after: step,
				actions: []action.Action{action.UnlabelState{Claim: "persistent-state-for-db-fghij", UID: "claim-persistent-state-for-db-fghij"}}},
		},
		"NewStateUnlabelled": {
			reason: "label and owner change in one write",
			story:  []option{begun, holding, unlabelled},
			want: want{reason: v1alpha1.ReasonSwitching, message: `giving the new volumes to virtual machine "db"`, after: step,
				actions: []action.Action{
					action.HandOver{Kind: action.KindClaim, Name: newRoot, UID: "claim-" + newRoot},
					action.HandOver{Kind: action.KindClaim, Name: newState, UID: "claim-" + newState, Owner: ownedBy(build.VM("db")), StateOf: "db"},
				}},
		},
		"ForeignState": {
			reason: "a blank state that appeared must not be picked instead of ours",
			story: []option{begun, holding, unlabelled, handed, func(_ *testing.T, s *story) {
				c := build.StateClaim("db", "blank")
				s.in.Claims[c.Name] = c
			}},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, after: soon,
				message: "claim persistent-state-for-db-blank appeared with the label persistent-state-for=db: KubeVirt would pick it or the restored one at random; the virtual machine is put back as it was",
				record:  failure(v1alpha1.ReasonSwitchFailed, "claim persistent-state-for-db-blank appeared with the label persistent-state-for=db: KubeVirt would pick it or the restored one at random; the virtual machine is put back as it was")},
		},
		"InstanceOfAnotherStart": {
			reason: "an instance keeps the spec that it was made with: it would come up with old disks",
			story: []option{begun, holding, func(_ *testing.T, s *story) {
				s.in.Instance = build.VMI(s.in.Target.VM)
			}},
			want: want{reason: v1alpha1.ReasonStopping, message: `waiting until instance "db" is gone`, after: step,
				actions: []action.Action{action.DeleteInstance{Instance: "db", UID: "vmi-db"}}},
		},
		"AnotherRestore": {
			reason: "two restores of one machine must not meet",
			story: []option{begun, func(_ *testing.T, s *story) {
				other := "kubevirt-restore"
				s.in.Target.VM.Status.RestoreInProgress = &other
			}},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, after: soon,
				message: `restore "kubevirt-restore" of virtual machine "db" began meanwhile; the virtual machine is put back as it was`,
				record:  failure(v1alpha1.ReasonSwitchFailed, `restore "kubevirt-restore" of virtual machine "db" began meanwhile; the virtual machine is put back as it was`)},
		},
		"ClaimLost": {
			reason: "a machine without one of its volumes is no restore",
			story:  []option{begun, holding, func(_ *testing.T, s *story) { delete(s.in.Claims, newRoot) }},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, after: soon,
				message: `claim "` + newRoot + `" of volume "root" was deleted; nothing was replaced`,
				record:  failure(v1alpha1.ReasonSwitchFailed, `claim "`+newRoot+`" of volume "root" was deleted; nothing was replaced`)},
		},
	})
}

func TestPlanFinish(t *testing.T) {
	started := func(_ *testing.T, s *story) { s.in.Restore.Status.Switch.StartedAt = at() }
	noVolumes := func(_ *testing.T, s *story) { s.in.Volumes = nil }
	aside := func(_ *testing.T, s *story) {
		delete(s.in.Claims, "root-db")
		delete(s.in.Claims, "persistent-state-for-db-fghij")
	}
	done := func(_ *testing.T, s *story) { s.in.Restore.Status.Switch.DoneAt = at() }
	restored := func(t *testing.T, s *story) {
		m := &Machine{Documents: s.docs, Raw: rawVM(t, s.docs.VM), Held: s.in.Restore.Status.From.Volumes}
		in := s.in
		in.Machine = m
		final, err := finalSpec(*m, wanted(in))
		if err != nil {
			t.Fatal(err)
		}
		setSpec(t, s, final)
	}
	testPlan(t, map[string]planCase{
		"DeletedAfterCommit": {
			reason: "after the point of no return a deleted restore goes forward, not back",
			story: []option{begun, holding, unlabelled, handed, committed, restored, aside, func(_ *testing.T, s *story) {
				s.in.Restore.DeletionTimestamp = &metav1.Time{Time: now}
			}},
			want: want{reason: v1alpha1.ReasonSwitching, message: `allowing starts of virtual machine "db"`, after: step,
				actions: []action.Action{action.ReleaseVM{VM: "db", UID: "vm-db", Holder: holder}}},
		},
		"Done": {
			reason: "the start is asked for once the machine is seen whole, while the replaced volumes get their new names",
			story:  []option{begun, holding, unlabelled, handed, committed, restored, aside, retained, done},
			want: want{reason: v1alpha1.ReasonStarting, message: `starting virtual machine "db"`, after: step,
				actions: []action.Action{
					action.SetRunStrategy{VM: "db", UID: "vm-db", Strategy: "Always"},
					action.ReserveVolume{Volume: "pv-persistent-state-for-db-fghij", ClaimUID: "claim-persistent-state-for-db-fghij", For: "persistent-state-for-db-fghij-replaced-0b1c2d3e"},
					action.ReserveVolume{Volume: "pv-root-db", ClaimUID: "claim-root-db", For: "root-db-replaced-0b1c2d3e"},
				}},
		},
		"Edited": {
			reason: "a machine that somebody moved back to other volumes is not started on them",
			story:  []option{begun, holding, unlabelled, handed, committed, done},
			want: want{state: conditions.Stalled, reason: v1alpha1.ReasonSwitchFailed, after: step,
				message: `virtual machine "db" is restored and not started: somebody changed its volumes or its firmware UUID since; start it by hand if that was meant`,
				actions: []action.Action{
					action.SetReclaimPolicy{Volume: "pv-persistent-state-for-db-fghij", ClaimUID: "claim-persistent-state-for-db-fghij", Policy: "Retain"},
					action.SetReclaimPolicy{Volume: "pv-root-db", ClaimUID: "claim-root-db", Policy: "Retain"},
				}},
		},
		"OldNamesResolve": {
			reason: "a tool that writes the old spec back must not find the old disks once starts are allowed",
			story:  []option{begun, holding, unlabelled, handed, committed, restored},
			want: want{reason: v1alpha1.ReasonSwitching, message: `putting the replaced volumes of virtual machine "db" out of reach`, after: step,
				actions: []action.Action{
					action.SetReclaimPolicy{Volume: "pv-persistent-state-for-db-fghij", ClaimUID: "claim-persistent-state-for-db-fghij", Policy: "Retain"},
					action.SetReclaimPolicy{Volume: "pv-root-db", ClaimUID: "claim-root-db", Policy: "Retain"},
				}},
		},
		"StoppedBySomebody": {
			reason: "a machine that its owner stops meanwhile is restored all the same",
			story:  []option{begun, holding, unlabelled, handed, committed, restored, aside, noVolumes, done, started},
			want: want{state: conditions.Done, reason: v1alpha1.ReasonRestored, after: soon,
				message: `virtual machine "db" is whole again, as of backup "nightly"; it is stopped`,
				record:  func(s *v1alpha1.VMStateRestoreStatus) { s.CompletedAt = &metav1.Time{Time: now} }},
		},
	})
}

const lostDocuments = "what was recorded of the backup cannot be read (cut short): create the restore again; nothing was replaced"

func TestPlanUndo(t *testing.T) {
	nothing := func(_ *testing.T, s *story) {
		delete(s.in.Claims, newRoot)
		delete(s.in.Claims, newState)
	}
	testPlan(t, map[string]planCase{
		"StateMoved": {
			reason: "the new state loses its label before the old one gets it back",
			story:  []option{begun, holding, unlabelled, handed, failedWith},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, message: "it was not to be", after: step,
				actions: []action.Action{action.UnlabelState{Claim: newState, UID: "claim-" + newState}}},
		},
		"NoState": {
			reason: "the old state has its label back before the machine can start",
			story:  []option{begun, holding, unlabelled, failedWith},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, message: "it was not to be", after: step,
				actions: []action.Action{action.LabelState{Claim: "persistent-state-for-db-fghij", UID: "claim-persistent-state-for-db-fghij", VM: "db"}}},
		},
		"AnotherState": {
			reason: "a machine is not let go while a start would take another firmware state than its own",
			story: []option{begun, holding, failedWith, func(_ *testing.T, s *story) {
				c := build.StateClaim("db", "blank")
				s.in.Claims[c.Name] = c
			}},
			want: want{state: conditions.Stalled, reason: v1alpha1.ReasonSwitchFailed, after: patience,
				message: "it was not to be; the virtual machine stays held, and nothing more is undone: claim persistent-state-for-db-blank carries the label persistent-state-for=db as well: take it off, or delete the claim"},
		},
		"RecordUnreadable": {
			reason: "what its volumes were is not guessed: the machine stays held, and a person is told what to do",
			story: []option{begun, holding, failedWith, func(_ *testing.T, s *story) {
				s.in.Restore.Status.Switch.Previous = &runtime.RawExtension{Raw: []byte("{")}
			}},
			want: want{state: conditions.Stalled, reason: v1alpha1.ReasonSwitchFailed, after: patience,
				message: "it was not to be; the virtual machine stays held, and nothing more is undone: what its volumes were cannot be read (decode the recorded spec: unexpected end of JSON input): " +
					"put them back in its spec by hand, on its claims (persistent-state-for-db-fghij, root-db); the rest is undone then"},
		},
		"RecordGone": {
			reason: "nor is it where there is no record at all",
			story:  []option{begun, holding, failedWith, func(_ *testing.T, s *story) { s.in.Restore.Status.Switch.Previous = nil }},
			want: want{state: conditions.Stalled, reason: v1alpha1.ReasonSwitchFailed, after: patience,
				message: "it was not to be; the virtual machine stays held, and nothing more is undone: what its volumes were cannot be read (the virtual machine's spec was not recorded): " +
					"put them back in its spec by hand, on its claims (persistent-state-for-db-fghij, root-db); the rest is undone then"},
		},
		"PutBackByHand": {
			reason: "once a person has put them back, the rest is undone",
			story: []option{begun, denying, failedWith, func(_ *testing.T, s *story) {
				s.in.Restore.Status.Switch.Previous = &runtime.RawExtension{Raw: []byte("{")}
			}},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, message: "it was not to be", after: step,
				actions: []action.Action{action.ReleaseVM{VM: "db", UID: "vm-db", Holder: holder}}},
		},
		"DocumentsUnreadable": {
			reason: "what was recorded of the backup is not needed to undo",
			story:  []option{begun, denying, failedWith, documentsLost},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, message: "it was not to be", after: step,
				actions: []action.Action{action.ReleaseVM{VM: "db", UID: "vm-db", Holder: holder}}},
		},
		"DocumentsUnreadableBefore": {
			reason: "before the point of no return the restore is given up",
			story:  []option{begun, denying, documentsLost},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonBackupDamaged, after: soon, message: lostDocuments,
				record: failure(v1alpha1.ReasonBackupDamaged, lostDocuments)},
		},
		"DocumentsUnreadableAfter": {
			reason: "after it a person is told which claim is whose",
			story:  []option{begun, holding, unlabelled, handed, committed, documentsLost},
			want: want{state: conditions.Stalled, reason: v1alpha1.ReasonSwitching, after: patience,
				message: `virtual machine "db" is past the point of no return, and what was recorded of the backup cannot be read (cut short): ` +
					"put its volumes on the restored claims by hand (root on " + newRoot + ", " + sourceState + " on " + newState + "), or delete it and restore again as a new virtual machine"},
		},
		"Denied": {
			reason: "the machine may start again only on its old claims",
			story:  []option{begun, denying, failedWith},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, message: "it was not to be", after: step,
				actions: []action.Action{action.ReleaseVM{VM: "db", UID: "vm-db", Holder: holder}}},
		},
		"Halted": {
			reason: "its run strategy comes back",
			story:  []option{begun, failedWith},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, message: "it was not to be", after: step,
				actions: []action.Action{action.SetRunStrategy{VM: "db", UID: "vm-db", Strategy: "Always"}}},
		},
		"Made": {
			reason: "what was made is removed, by the UIDs that were recorded",
			story:  []option{known, failedWith},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, message: "it was not to be", after: step,
				actions: []action.Action{
					action.DeleteMade{Kind: action.KindClaim, Name: newRoot, UID: "claim-" + newRoot},
					action.DeleteMade{Kind: action.KindClaim, Name: newState, UID: "claim-" + newState},
				}},
		},
		"MadeBySomebody": {
			reason: "a claim that only carries our label and name, and is not the recorded one or ours to control, stays",
			story: []option{planned, failedWith, func(_ *testing.T, s *story) {
				c := build.Claim(newRoot)
				c.Labels = map[string]string{v1alpha1.LabelOwnerUID: string(restoreUID)}
				s.in.Claims[newRoot] = c
				s.in.Revisions = map[string]*appsv1.ControllerRevision{"theirs": {ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: c.Labels}}}
			}},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, message: "it was not to be", after: soon,
				record: func(s *v1alpha1.VMStateRestoreStatus) { s.CompletedAt = &metav1.Time{Time: now} }},
		},
		"Undone": {
			reason: "only what is seen undone is said to be",
			story:  []option{known, nothing, failedWith},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, message: "it was not to be", after: soon,
				record: func(s *v1alpha1.VMStateRestoreStatus) { s.CompletedAt = &metav1.Time{Time: now} }},
		},
		"OldStateGone": {
			reason: "a claim of the same name that somebody made is not ours to label",
			story: []option{begun, unlabelled, failedWith, func(_ *testing.T, s *story) {
				s.in.Claims["persistent-state-for-db-fghij"].UID = "another"
				s.in.Restore.Status.Switch.PreviousRunStrategy = "Halted"
			}},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, message: "it was not to be", after: step,
				actions: []action.Action{
					action.DeleteMade{Kind: action.KindClaim, Name: newRoot, UID: "claim-" + newRoot},
					action.DeleteMade{Kind: action.KindClaim, Name: newState, UID: "claim-" + newState},
				}},
		},
	})
}
