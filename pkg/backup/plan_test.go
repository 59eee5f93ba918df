package backup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
	"github.com/vmstate/vmstate/pkg/inventory"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/test/build"
)

// planCase is one row of doc.go. status changes the status that was seen into the one that is wanted.
type planCase struct {
	reason string
	in     Observed
	want   Decision
	status func(*v1alpha1.VMStateBackupStatus)
}

func runPlan(t *testing.T, tests map[string]planCase) {
	t.Helper()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.want.Status = *tc.in.Backup.Status.DeepCopy()
			if tc.status != nil {
				tc.status(&tc.want.Status)
			}
			before := tc.in.Backup.DeepCopy()
			if diff := cmp.Diff(tc.want, Plan(tc.in)); diff != "" {
				t.Errorf("%s\nPlan() mismatch (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, tc.in.Backup); diff != "" {
				t.Errorf("Plan() changed what it was given:\n%s", diff)
			}
		})
	}
}

func says(reason, message string) Decision {
	return Decision{State: conditions.Working, Reason: reason, Message: message, RequeueAfter: lookAgain}
}

func does(reason, message string, actions ...action.Action) Decision {
	d := says(reason, message)
	d.Actions = actions
	return d
}

func records(reason, message string) Decision {
	return Decision{State: conditions.Working, Reason: reason, Message: message}
}

func fails(reason, message string) planCase {
	return planCase{
		want: Decision{State: conditions.Failing, Reason: reason, Message: message},
		status: func(s *v1alpha1.VMStateBackupStatus) {
			s.Failure = &v1alpha1.Failure{Reason: reason, Message: message}
			if n := len(s.Attempts); n > 0 && s.Attempts[n-1].Verdict == "" {
				s.Attempts[n-1].Verdict, s.Attempts[n-1].Message = v1alpha1.AttemptDiscarded, message
			}
		},
	}
}

func seenAs(c planCase, reason string, in Observed) planCase {
	c.reason, c.in = reason, in
	return c
}

func verdict(v v1alpha1.AttemptVerdict, message string) func(*v1alpha1.VMStateBackupStatus) {
	return func(s *v1alpha1.VMStateBackupStatus) {
		a := &s.Attempts[len(s.Attempts)-1]
		a.Verdict, a.Message = v, message
	}
}

func refusedBy(found ...inventory.Refusal) func(*Observed) {
	return func(in *Observed) { in.Machine.Refusals = found }
}

func writable(status metav1.ConditionStatus, reason, message string) func(*Observed) {
	return func(in *Observed) {
		in.Store.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionWritable, Status: status, Reason: reason, Message: message}}
	}
}

// Everything that is refused here leaves the guest untouched: no action has been asked for yet.
func TestPlanBegin(t *testing.T) {
	passing := inventory.Refusal{Reason: v1alpha1.ReasonMigrating, Message: "migration \"m\" is under way", Passing: true}
	final := inventory.Refusal{Reason: v1alpha1.ReasonStateMissing, Message: "no state"}
	agent := altered(inv(), func(i *inventory.Inventory) { i.Agent, i.Warnings = true, []string{"the TPM is not persistent"} })
	runPlan(t, map[string]planCase{
		"NoFinalizer": {
			reason: "nothing is made before something holds the backup until it is removed again",
			in:     at(func(in *Observed) { in.Backup.Finalizers = nil }),
			want:   does(v1alpha1.ReasonWitnessing, "starting", action.AddFinalizer{Finalizer: v1alpha1.FinalizerRelease}),
		},
		"Attempt": {
			reason: "the machine is recorded with the attempt, and what does not persist is said",
			in:     at(machine(agent), func(in *Observed) { in.Backup.Spec.Require.FirmwareState = v1alpha1.FirmwareStateRequired }),
			want: func() Decision {
				d := records(v1alpha1.ReasonWitnessing, "reading the firmware state")
				d.Warnings = agent.Warnings
				return d
			}(),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				vm := agent.VM
				s.VM, s.Volumes = &vm, agent.Recorded()
				s.Attempts = []v1alpha1.MomentAttempt{{Number: 1, StartedAt: *micro(0), Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness}}
			},
		},
		"Migrating": {
			reason: "it goes on by itself", in: at(refusedBy(passing), clock(59*time.Minute)), want: says(passing.Reason, passing.Message),
		},
		"MigratingForEver": seenAs(fails(passing.Reason, passing.Message), "every wait has a deadline", at(refusedBy(passing), clock(time.Hour))),
		"Refused":          seenAs(fails(final.Reason, final.Message), "a person must act", at(refusedBy(final))),
		"PassingAndFinal": seenAs(fails(final.Reason, "2 obstacles: (1) claim \"a\" is not bound (2) no state"),
			"a machine at rest with a fault that a person must repair is not waited for, and all is said at once",
			at(refusedBy(inventory.Refusal{Reason: v1alpha1.ReasonVolumeNotReady, Volume: "a", Message: "claim \"a\" is not bound", Passing: true}, final))),
		"MovingAndFinal": {
			reason: "what is found of a machine that moves may be right a moment later",
			in:     at(refusedBy(passing, final), clock(59*time.Minute)),
			want:   says(passing.Reason, `2 obstacles: (1) migration "m" is under way (2) no state`),
		},
		"MovingForEverAndFinal": seenAs(fails(final.Reason, `2 obstacles: (1) migration "m" is under way (2) no state`), "", at(refusedBy(passing, final), clock(time.Hour))),
		"EveryObstacle": {
			reason: "machine, storage and what is required are judged together",
			in: at(quiesce(v1alpha1.QuiesceRequired), func(in *Observed) {
				in.Storage.Served, in.Storage.Classes = true, nil
				in.Machine.Refusals = []inventory.Refusal{{Reason: v1alpha1.ReasonMigrating, Message: "moving", Passing: true}}
			}),
			want: says(v1alpha1.ReasonMigrating, `3 obstacles: (1) moving (2) disk "root" (claim "root-db"): there is no VolumeSnapshotClass for driver "csi.example.com"; `+
				`make one, or move the disk to a class whose driver can make snapshots (3) quiesce is Required, and no guest agent is connected in VM "db"; `+
				`start qemu-guest-agent in the guest, or do not require it`),
		},
		"FrozenByAnother": {
			reason: "its freeze must not be ended by our thaw",
			in:     at(machine(altered(agent, func(i *inventory.Inventory) { i.Frozen = true }))),
			want: says(v1alpha1.ReasonVMUnsettled, `the guest of VM "db" is frozen, and not by this backup: by another tool, or by a backup that could not thaw it; `+
				`wait for the end of that, or thaw it (virtctl unfreeze db)`),
		},
		"FrozenByAnotherAndNeverAsked": {
			reason: "who freezes nothing thaws nothing",
			in:     at(quiesce(v1alpha1.QuiesceNever), machine(altered(inv(), func(i *inventory.Inventory) { i.Frozen = true }))),
			want:   records(v1alpha1.ReasonWitnessing, "reading the firmware state"),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				vm := inv().VM
				s.VM, s.Volumes = &vm, inv().Recorded()
				s.Attempts = []v1alpha1.MomentAttempt{{Number: 1, StartedAt: *micro(0), Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness}}
			},
		},
		"NoSnapshots": seenAs(fails(v1alpha1.ReasonNoSnapshotClass,
			`disk "root" (claim "root-db"): there is no VolumeSnapshotClass for driver "csi.example.com"; make one, or move the disk to a class whose driver can make snapshots`),
			"known before the guest is touched", at(func(in *Observed) { in.Storage.Served, in.Storage.Classes = true, nil })),
		"NoGroups": seenAs(fails(v1alpha1.ReasonNoCommonInstant,
			`disks "root", "data" of the running VM cannot be cut at one instant: this cluster serves no group snapshots (groupsnapshot.storage.k8s.io v1 or v1beta2); stop the VM for the backup, or put its disks on one driver that can, or allow a pause of the guest (require.maxPause)`),
			"the guest is not paused by somebody who forbids it", at(machine(inv("data")))),
		"Fence": {
			reason: "no driver must cut them together",
			in:     at(pausable),
			want:   records(v1alpha1.ReasonWitnessing, "reading the firmware state"),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				vm := inv("data").VM
				s.VM, s.Volumes = &vm, inv("data").Recorded()
				s.Attempts = []v1alpha1.MomentAttempt{{Number: 1, StartedAt: *micro(0), Disks: v1alpha1.DisksFence, State: v1alpha1.StateFence}}
			},
		},
		"FrozenByOthers": {
			reason: "another tool's thaw does not reach a paused guest",
			in:     at(pausable, quiesce(v1alpha1.QuiesceNever), func(in *Observed) { in.Machine.Inventory.Frozen = true }),
			want: says(v1alpha1.ReasonVMUnsettled, `the guest of VM "db" is frozen, and not by this backup: by another tool, or by a backup that could not thaw it; `+
				`wait for the end of that, or thaw it (virtctl unfreeze db)`),
		},
		"Escalates": {
			reason: "the state changed during three attempts: the guest is paused for the fourth",
			in: at(func(in *Observed) { in.Backup.Spec.Require.MaxPause = &metav1.Duration{Duration: time.Second} },
				attempt(changedOnce), attempt(changedOnce), attempt(changedOnce), clock(time.Minute)),
			want: records(v1alpha1.ReasonWitnessing, "reading the firmware state"),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				s.Attempts = append(s.Attempts, v1alpha1.MomentAttempt{Number: 4, StartedAt: *micro(time.Minute), Disks: v1alpha1.DisksSingle, State: v1alpha1.StateFence})
			},
		},
		"EscalatesNot": {
			reason: "it may not be paused",
			in: at(func(in *Observed) { in.Backup.Spec.Require.MaxPause = &metav1.Duration{} },
				attempt(changedOnce), attempt(changedOnce), attempt(changedOnce), clock(time.Minute)),
			want: records(v1alpha1.ReasonWitnessing, "reading the firmware state"),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				s.Attempts = append(s.Attempts, v1alpha1.MomentAttempt{Number: 4, StartedAt: *micro(time.Minute), Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness})
			},
		},
		"AfterOverrun": {
			reason: "a guest that was paused for nothing runs for a while",
			in: at(pausable, attempt(paused, unpausedAt(2*time.Second), func(a *v1alpha1.MomentAttempt) {
				a.Verdict, a.Message = v1alpha1.AttemptDiscarded, "too slow"
			}), clock(5*time.Second)),
			want: until(says(v1alpha1.ReasonBinding, "too slow; trying again"), 7*time.Second),
		},
		"Blocked": {
			reason: "two backups cannot label one claim",
			in:     at(func(in *Observed) { in.Blocker = "other" }),
			want:   says(v1alpha1.ReasonWaitingForTurn, `backup "other" of VM "db" is taking its moment`),
		},
		"NoStore": seenAs(fails(v1alpha1.ReasonStoreNotFound, `there is no VMStateStore "main" in this namespace`),
			"", at(func(in *Observed) { in.Store = nil })),
		"StoreNotProbed": {
			in:   at(func(in *Observed) { in.Store.Status.Conditions = nil }),
			want: says(v1alpha1.ReasonWaitingForStore, `store "main" has not been probed yet`),
		},
		"StoreDown": {
			reason: "it may come back",
			in:     at(writable(metav1.ConditionFalse, v1alpha1.ReasonUnreachable, "no answer")),
			want:   says(v1alpha1.ReasonWaitingForStore, `store "main" is not writable: Unreachable: no answer`),
		},
		"StoreDownForLong": seenAs(fails(v1alpha1.ReasonStoreNotWritable, `store "main" is not writable: AccessDenied: 403`),
			"", at(writable(metav1.ConditionFalse, v1alpha1.ReasonAccessDenied, "403"), clock(waitLimit))),
		"NoAgentRequired": seenAs(fails(v1alpha1.ReasonQuiesceFailed, `quiesce is Required, and no guest agent is connected in VM "db"; start qemu-guest-agent in the guest, or do not require it`),
			"", at(quiesce(v1alpha1.QuiesceRequired))),
		"StateRequired": seenAs(fails(v1alpha1.ReasonStateMissing,
			`firmwareState is Required, and VM "db" keeps neither TPM nor EFI variables; make them persistent again (in its spec or its preference), or do not require them`),
			"FC-007: a preference that stops to persist is noticed", at(machine(altered(inv(), func(i *inventory.Inventory) { i.VM.StateClaimName = "" })), func(in *Observed) {
				in.Backup.Spec.Require.FirmwareState = v1alpha1.FirmwareStateRequired
			})),
		"PausedRequired": seenAs(fails(v1alpha1.ReasonQuiesceFailed, `quiesce is Required, and VM "db" is paused: its agent cannot answer; unpause it, or do not require it`),
			"", at(quiesce(v1alpha1.QuiesceRequired), machine(altered(inv(), func(i *inventory.Inventory) { i.Agent, i.Paused = true, true })))),
		"RemainsOfLast": {
			reason: "what the last attempt made goes first: Jobs before snapshots",
			in: at(attempt(ended1), func(in *Observed) {
				verdict(v1alpha1.AttemptStateChanged, "changed")(&in.Backup.Status)
				in.Children = []Child{
					{Kind: action.KindVolumeSnapshot, Name: "s", UID: "us", Bound: true},
					{Kind: action.KindServiceAccount, Name: "a", UID: "ua"},
					{Kind: action.KindJob, Name: "j", UID: "uj"},
				}
			}),
			want: does(v1alpha1.ReasonBinding, "changed; removing what the attempt made", action.Delete{Kind: action.KindJob, Name: "j", UID: "uj"}),
		},
		"Pause": {
			reason: "attempts are not in step with the guest",
			in: at(attempt(ended1), clock(time.Second), func(in *Observed) {
				verdict(v1alpha1.AttemptStateChanged, "changed")(&in.Backup.Status)
			}),
			want: func() Decision {
				d := says(v1alpha1.ReasonBinding, "changed; trying again")
				d.RequeueAfter = 549 * time.Millisecond
				return d
			}(),
		},
	})
}

func TestPlanPrepare(t *testing.T) {
	witness := job.Spec{
		Name: "vmstate-u1-witness-1", Task: v1alpha1.TaskWitness,
		Config: []byte(`{"backupName":"nightly","backupUID":"u1","attempt":1,"mode":"Running","machine":{"vmName":"db","firmwareUUID":"` + build.FirmwareUUID +
			`","persistentTPM":true,"persistentEFI":true},"stateDir":"/volumes/state"}`),
		Mounts:    []job.Mount{{Claim: stateClaimOfDB, Path: "/volumes/state", ReadOnly: true}},
		Placement: &job.Placement{NodeName: "node-1"}, Deadline: witnessLife, Retries: 2,
	}
	documents := action.CreateConfigMap{Name: "vmstate-u1-spec", Data: map[string][]byte{"documents.json": []byte("{}")}}
	agent := altered(inv(), func(i *inventory.Inventory) { i.Agent = true })
	halted := altered(inv(), func(i *inventory.Inventory) {
		i.Running, i.Placement, i.VM.InstanceUID, i.VM.NodeName, i.VM.LauncherUID = false, nil, "", "", ""
	})
	offline := witness
	offline.Placement = nil
	offline.Config = []byte(`{"backupName":"nightly","backupUID":"u1","attempt":1,"mode":"Offline","machine":{"vmName":"db","firmwareUUID":"` + build.FirmwareUUID +
		`","persistentTPM":true,"persistentEFI":true},"stateDir":"/volumes/state"}`)
	runPlan(t, map[string]planCase{
		"Nothing": {
			reason: "the live state is mounted read-only, and nothing may change its owners",
			in:     at(attempt()), want: does(v1alpha1.ReasonWitnessing, "reading the firmware state", documents, action.RunJob{Job: witness}),
		},
		"Halted": {
			reason: "the lock comes before the reading: nothing may start the VM after it",
			in:     at(machine(halted), attempt()),
			want: does(v1alpha1.ReasonWitnessing, "reading the firmware state",
				action.LockVM{VM: "db", UID: "vm-db", Holder: "vmstate-u1"}, documents, action.RunJob{Job: offline}),
		},
		"OneLabelMissing": {
			reason: "every claim is labelled before the cut, and listed",
			in:     at(machine(inv("data")), attempt(), reads(""), func(in *Observed) { in.Members = []ClaimRef{{Name: "root-db", UID: "claim-root-db"}} }),
			want: does(v1alpha1.ReasonWitnessing, "reading the firmware state",
				action.LabelClaim{Claim: "data-db", UID: "claim-data-db", Member: "u1-1"}),
		},
		"ForeignLabel": {
			reason: "a copied label would put a foreign disk into the group",
			in:     at(machine(inv("data")), attempt(), reads(""), func(in *Observed) { in.Members = []ClaimRef{{Name: "copy", UID: "x"}} }),
			want:   records(v1alpha1.ReasonBinding, `claim "copy" carries the label of this backup's group, and is none of its disks`),
			status: verdict(v1alpha1.AttemptDiscarded, `claim "copy" carries the label of this backup's group, and is none of its disks`),
		},
		"Pending": {
			reason: "a person sees what keeps the pod",
			in: at(attempt(), func(in *Observed) {
				in.Documents, in.Witness = true, Task{Exists: true, Created: noon, Pending: "0/1 nodes are available"}
			}),
			want: says(v1alpha1.ReasonJobPending, "0/1 nodes are available"),
		},
		"NotPreparedInTime": seenAs(fails(v1alpha1.ReasonSnapshotFailed,
			"the cut could not be prepared in 5m0s; the events of this backup and the manager's log say what failed"),
			"a halted VM does not stay locked for ever",
			at(machine(altered(halted, func(i *inventory.Inventory) { i.VM.StateClaimName = "" })), attempt(), clock(prepareLimit))),
		"AnotherBegan": {
			reason: "of two that begin at once the older goes on",
			in:     at(attempt(), func(in *Observed) { in.Blocker = "older" }),
			want:   records(v1alpha1.ReasonBinding, `backup "older" of the VM began its attempt first`),
			status: verdict(v1alpha1.AttemptDiscarded, `backup "older" of the VM began its attempt first`),
		},
		"PendingForLong": seenAs(fails(v1alpha1.ReasonWitnessFailed, "the witness did not start in 5m0s: quota"), "every wait has a deadline and a diagnosis",
			at(attempt(), clock(prepareLimit), func(in *Observed) {
				in.Documents, in.Witness = true, Task{Exists: true, Created: noon, Pending: "quota"}
			})),
		"Damaged": seenAs(fails(v1alpha1.ReasonStateDamaged, "permall is empty"), "a reading is checked before it is trusted",
			at(attempt(), func(in *Observed) {
				in.Witness = Task{Exists: true, Report: &v1alpha1.VMStateReportStatus{
					Outcome: v1alpha1.OutcomeFailed, Reason: v1alpha1.ReasonStateDamaged, Message: "permall is empty",
				}}
			})),
		"ForgedReason": seenAs(fails(v1alpha1.ReasonWitnessFailed, "ha"), "a report is written by a pod: it cannot make a backup Stored",
			at(attempt(), func(in *Observed) {
				in.Witness = Task{Exists: true, Report: &v1alpha1.VMStateReportStatus{
					Outcome: v1alpha1.OutcomeFailed, Reason: v1alpha1.ReasonStored, Message: "ha",
				}}
			})),
		"ForgedSecret": seenAs(fails(v1alpha1.ReasonWitnessFailed, `the witness's report names the Secret "admin", which is not its own`),
			"the export must not mount another's Secret",
			at(attempt(), reads(""), func(in *Observed) { in.Witness.Report.Witness.SecretNames = []string{"admin"} })),
		"Moved": {
			reason: "what was prepared is for another pod",
			in:     at(attempt(), reads(""), func(in *Observed) { in.Machine.Inventory.VM.LauncherUID = "other" }),
			want:   records(v1alpha1.ReasonBinding, "the VM was migrated meanwhile"),
			status: verdict(v1alpha1.AttemptDiscarded, "the VM was migrated meanwhile"),
		},
		"Read": {
			reason: "the first reading is recorded before the first snapshot: one that is not recorded never happened",
			in:     at(attempt(), reads("")),
			want:   records(v1alpha1.ReasonTakingSnapshot, "cutting the snapshots"),
			status: func(s *v1alpha1.VMStateBackupStatus) { cutting(&s.Attempts[0]) },
		},
		"ReadWithAgent": {
			reason: "the freeze is recorded before it is asked for",
			in:     at(machine(agent), attempt(), reads("")),
			want: func() Decision {
				d := records(v1alpha1.ReasonFreezing, "freezing the guest's filesystems")
				d.RequeueAfter = 30 * time.Second
				return d
			}(),
			status: func(s *v1alpha1.VMStateBackupStatus) { asked(&s.Attempts[0]) },
		},
		"FreezeRecorded": {
			reason: "this process wrote the record, just now",
			in:     at(machine(agent), attempt(asked), reads(""), clock(time.Second)),
			want: does(v1alpha1.ReasonFreezing, "freezing the guest's filesystems",
				action.Freeze{Instance: "db", UID: "vmi-db", Timeout: 29 * time.Second}),
		},
		"FreezeOfAnotherProcess": {
			reason: "nobody knows whether the request is under way: the guest is thawed",
			in:     at(machine(agent), attempt(asked), reads(""), clock(time.Second), func(in *Observed) { in.Process = "next" }),
			want: func() Decision {
				d := records(v1alpha1.ReasonBinding, "the manager was interrupted while it froze the guest")
				d.Actions, d.RequeueAfter = []action.Action{action.Unfreeze{Instance: "db", UID: "vmi-db"}}, lookAgain
				return d
			}(),
			status: verdict(v1alpha1.AttemptDiscarded, "the manager was interrupted while it froze the guest"),
		},
		"FreezeRefused": {
			reason: "IfAvailable goes on crash-consistent",
			in:     at(machine(agent), attempt(asked, func(a *v1alpha1.MomentAttempt) { a.Freeze.Failure = "no answer" }), reads("")),
			want: func() Decision {
				d := records(v1alpha1.ReasonTakingSnapshot, "cutting the snapshots")
				d.RequeueAfter = 30 * time.Second
				return d
			}(),
			status: func(s *v1alpha1.VMStateBackupStatus) { s.Attempts[0].CutStarted = micro(0) },
		},
		"FreezeRefusedRequired": func() planCase {
			c := fails(v1alpha1.ReasonQuiesceFailed, "quiesce is Required, and the guest was not frozen: no answer")
			c.in = at(quiesce(v1alpha1.QuiesceRequired), machine(agent), attempt(asked, func(a *v1alpha1.MomentAttempt) { a.Freeze.Failure = "no answer" }), reads(""))
			c.want.Actions, c.want.RequeueAfter = []action.Action{action.Unfreeze{Instance: "db", UID: "vmi-db"}}, lookAgain
			return c
		}(),
		"OwnersPause": {
			reason: "a paused VM needs no freeze, and stays paused",
			in:     at(machine(altered(inv(), func(i *inventory.Inventory) { i.Agent, i.Paused = true, true })), attempt(), reads("")),
			want:   records(v1alpha1.ReasonTakingSnapshot, "cutting the snapshots"),
			status: func(s *v1alpha1.VMStateBackupStatus) { cutting(&s.Attempts[0]) },
		},
	})
}
