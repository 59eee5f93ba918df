package backup

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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

func refusedBy(r inventory.Refusal) func(*Observed) {
	return func(in *Observed) { in.Machine.Refusal = &r }
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
			in:     at(machine(agent)),
			want: func() Decision {
				d := records(v1alpha1.ReasonWitnessing, "reading the firmware state")
				d.Warnings = agent.Warnings
				return d
			}(),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				vm := agent.VM
				s.VM, s.Volumes = &vm, agent.Recorded()
				s.Attempts = []v1alpha1.MomentAttempt{{Number: 1, StartedAt: *micro(0)}}
			},
		},
		"Migrating": {
			reason: "it goes on by itself", in: at(refusedBy(passing), clock(59*time.Minute)), want: says(passing.Reason, passing.Message),
		},
		"MigratingForEver": seenAs(fails(passing.Reason, passing.Message), "every wait has a deadline", at(refusedBy(passing), clock(time.Hour))),
		"Refused":          seenAs(fails(final.Reason, final.Message), "a person must act", at(refusedBy(final))),
		"NoSnapshots": seenAs(fails(v1alpha1.ReasonNoSnapshotClass,
			`disk "root" (claim "root-db"): there is no VolumeSnapshotClass for driver "csi.example.com"; make one, or move the disk to a class whose driver can make snapshots`),
			"known before the guest is touched", at(func(in *Observed) { in.Storage.Classes = nil })),
		"NoGroups": seenAs(fails(v1alpha1.ReasonNoCommonInstant,
			`disks "root", "data" of the running VM cannot be cut at one instant: this cluster serves no group snapshots (groupsnapshot.storage.k8s.io v1 or v1beta2). Stop the VM for the backup, or put its disks on one driver that can`),
			"the fence is not there", at(machine(inv("data")))),
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
		"NoAgentRequired": seenAs(fails(v1alpha1.ReasonQuiesceFailed, `quiesce is Required, and no guest agent is connected in VM "db"`),
			"", at(quiesce(v1alpha1.QuiesceRequired))),
		"PausedRequired": seenAs(fails(v1alpha1.ReasonQuiesceFailed, `quiesce is Required, and VM "db" is paused: its agent cannot answer`),
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

func TestPlanCut(t *testing.T) {
	runPlan(t, map[string]planCase{
		"Missing": {
			reason: "made by name, so that a crash meets its own",
			in:     at(attempt(cutting), func(in *Observed) { in.Cut.Missing = []string{"root"} }),
			want: does(v1alpha1.ReasonTakingSnapshot, "cutting the snapshots",
				action.CreateSnapshot{Name: "vmstate-u1-snap-1-0", Claim: "root-db", Class: "snaps"}),
		},
		"NoHandle": {
			reason: "a driver's error is said, and tried again by the snapshotter",
			in:     at(attempt(cutting), func(in *Observed) { in.Cut.Trouble = `disk "root": busy` }),
			want:   says(v1alpha1.ReasonTakingSnapshot, `cutting the snapshots: disk "root": busy`),
		},
		"TooLong": seenAs(fails(v1alpha1.ReasonSnapshotFailed, `the storage did not cut the snapshots in 3m0s: disk "root": busy`),
			"no failure of the snapshotter is terminal: the deadline is ours",
			at(attempt(cutting), clock(cutLimit), func(in *Observed) { in.Cut.Trouble = `disk "root": busy` })),
		"Cut": {
			reason: "the handle is the cut, readiness is not waited for",
			in:     at(attempt(cutting), clock(time.Second), func(in *Observed) { in.Cut.Cut = true }),
			want:   records(v1alpha1.ReasonBinding, "reading the firmware state again"),
			status: func(s *v1alpha1.VMStateBackupStatus) { s.Attempts[0].CutEnded = micro(time.Second) },
		},
		"CutFrozen": {
			reason: "the guest is thawed before the record, not after it",
			in:     at(attempt(frozen, cutting), clock(time.Second), func(in *Observed) { in.Cut.Cut = true }),
			want: func() Decision {
				d := records(v1alpha1.ReasonBinding, "reading the firmware state again")
				d.Actions, d.RequeueAfter = []action.Action{action.Unfreeze{Instance: "db", UID: "vmi-db"}}, time.Second
				return d
			}(),
			status: func(s *v1alpha1.VMStateBackupStatus) { s.Attempts[0].CutEnded = micro(time.Second) },
		},
		"DeadlineFrozen": {
			reason: "no guest stays frozen past its deadline, whatever became of the snapshots",
			in:     at(attempt(frozen, cutting), clock(30*time.Second)),
			want: func() Decision {
				d := does(v1alpha1.ReasonTakingSnapshot, "cutting the snapshots", action.Unfreeze{Instance: "db", UID: "vmi-db"})
				d.RequeueAfter = time.Second
				return d
			}(),
		},
		"RestartedFrozen": {
			reason: "the new process thawed the guest first thing, so the snapshot is not of a frozen one",
			in:     at(attempt(frozen, cutting), clock(time.Second), func(in *Observed) { in.Process, in.Cut.Cut = "next", true }),
			want: func() Decision {
				d := records(v1alpha1.ReasonBinding, "the manager was restarted while the guest was frozen")
				d.Actions, d.RequeueAfter = []action.Action{action.Unfreeze{Instance: "db", UID: "vmi-db"}}, time.Second
				return d
			}(),
			status: verdict(v1alpha1.AttemptDiscarded, "the manager was restarted while the guest was frozen"),
		},
		"Foreign": {
			reason: "what was captured must be what was asked for",
			in:     at(attempt(cutting), func(in *Observed) { in.Cut.Foreign, in.Cut.Cut = "another claim", true }),
			want:   records(v1alpha1.ReasonBinding, "another claim"),
			status: verdict(v1alpha1.AttemptDiscarded, "another claim"),
		},
	})
}

func TestPlanProve(t *testing.T) {
	change := "the firmware state changed during the cut: nvram/db_VARS.fd: contents"
	runPlan(t, map[string]planCase{
		"Waiting": {
			in: at(attempt(ended1), reads(""), clock(time.Second)), want: says(v1alpha1.ReasonBinding, "reading the firmware state again"),
		},
		"Silent": {
			reason: "a witness that does not read again proves nothing",
			in:     at(attempt(ended1), reads(""), clock(time.Second+proveLimit)),
			want:   records(v1alpha1.ReasonBinding, "the witness did not read again in 1m0s"),
			status: verdict(v1alpha1.AttemptDiscarded, "the witness did not read again in 1m0s"),
		},
		"Changed": {
			reason: "a torn moment is never Ready",
			in:     at(attempt(ended1), reads(two, "nvram/db_VARS.fd: contents"), clock(2*time.Second)),
			want:   records(v1alpha1.ReasonBinding, change), status: verdict(v1alpha1.AttemptStateChanged, change),
		},
		"OtherFirst": {
			reason: "only the recorded reading counts",
			in:     at(attempt(ended1), reads(one), func(in *Observed) { in.Backup.Status.Attempts[0].FirstReading = two }),
			want:   records(v1alpha1.ReasonBinding, "the witness's first reading is not the recorded one"),
			status: verdict(v1alpha1.AttemptStateChanged, "the witness's first reading is not the recorded one"),
		},
		"Migrated": {
			reason: "a migration in the window leaves the old file untouched while the disks move on",
			in:     at(attempt(ended1), reads(one), func(in *Observed) { in.Machine.Inventory.VM.MigrationUID = "m" }),
			want:   records(v1alpha1.ReasonBinding, "the VM was migrated meanwhile"),
			status: verdict(v1alpha1.AttemptDiscarded, "the VM was migrated meanwhile"),
		},
		"Restarted": {
			in:     at(attempt(ended1), reads(one), func(in *Observed) { in.Machine.Inventory.VM.InstanceUID = "next" }),
			want:   records(v1alpha1.ReasonBinding, "the VM was started, stopped or restarted meanwhile"),
			status: verdict(v1alpha1.AttemptDiscarded, "the VM was started, stopped or restarted meanwhile"),
		},
		"Bound": {
			reason: "disks and state are of one moment",
			in:     at(attempt(ended1), reads(one), clock(2*time.Second)),
			want:   records(v1alpha1.ReasonExporting, "waiting until the snapshots can be read"),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				s.Attempts[0].Verdict = v1alpha1.AttemptBound
				s.Moment = &v1alpha1.Moment{
					Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness,
					Quiesce: v1alpha1.QuiesceNoAgent, QuiesceMessage: "no guest agent was connected",
					CutStarted: *micro(0), CutEnded: *micro(time.Second), StateDigest: five, WindowMilliseconds: 1300, Attempts: 1,
				}
				s.Summary = v1alpha1.BackupSummary{Moment: "SingleDisk+Witness", Size: "2.0 GiB"}
			},
		},
		"BoundFrozen": {
			reason: "the freeze lasted until the cut, and is over",
			in: at(attempt(frozen, ended1, func(a *v1alpha1.MomentAttempt) { a.Freeze.ReleasedAt = micro(1100 * time.Millisecond) }),
				reads(one), clock(2*time.Second), quiesce(v1alpha1.QuiesceRequired)),
			want: records(v1alpha1.ReasonExporting, "waiting until the snapshots can be read"),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				s.Attempts[0].Verdict = v1alpha1.AttemptBound
				s.Moment = &v1alpha1.Moment{
					Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceFrozen,
					CutStarted: *micro(0), CutEnded: *micro(time.Second), StateDigest: five,
					WindowMilliseconds: 1300, FrozenMilliseconds: 1100, Attempts: 1,
				}
				s.Summary = v1alpha1.BackupSummary{Moment: "SingleDisk+Witness", Size: "2.0 GiB"}
			},
		},
	})
}

func TestPlanExport(t *testing.T) {
	done := func(in *Observed) {
		in.Export = Task{Exists: true, Started: true, Created: noon, Report: &v1alpha1.VMStateReportStatus{
			Outcome: v1alpha1.OutcomeSucceeded,
			Export: &v1alpha1.ExportResult{
				Commit: v1alpha1.CommitRef{Key: "v/x/c/7", Digest: one, Sequence: 7}, StateDigest: five, SentBytes: 3 << 20, ReadBytes: 1 << 30,
				Volumes: []v1alpha1.ExportedVolume{
					{Name: "root", Role: v1alpha1.RoleDisk}, {Name: stateClaimOfDB, Role: v1alpha1.RoleFirmwareState}, {Name: "vmstate.spec", Role: v1alpha1.RoleSpec},
				},
			},
		}}
	}
	runPlan(t, map[string]planCase{
		"MarksFirst": {
			reason: "what we put on the VM goes before hours of export",
			in: at(momentOf, func(in *Observed) {
				in.Locked, in.Members = true, []ClaimRef{{Name: "root-db", UID: "claim-root-db"}}
			}),
			want: does(v1alpha1.ReasonExporting, "waiting until the snapshots can be read",
				action.UnlockVM{VM: "db", UID: "vm-db", Holder: "vmstate-u1"},
				action.UnlabelClaim{Claim: "root-db", UID: "claim-root-db", Member: "u1-1"}),
		},
		"NotReadable": {
			in:   at(momentOf, func(in *Observed) { in.Cut.Cut = true }),
			want: says(v1alpha1.ReasonExporting, "waiting until the snapshots can be read"),
		},
		"SnapshotGone": seenAs(fails(v1alpha1.ReasonSnapshotFailed, `the snapshot of disk "root" was removed before it was read`),
			"", at(momentOf, func(in *Observed) { in.Cut.Missing = []string{"root"} })),
		"CapturedStateGone": seenAs(fails(v1alpha1.ReasonWitnessFailed, "the report that holds the captured firmware state is gone"), "", at(momentOf, cutOf)),
		"CapturedStateChanged": seenAs(fails(v1alpha1.ReasonWitnessFailed, "the report of the witness was changed after the moment was bound"), "",
			at(momentOf, cutOf, reads(one), func(in *Observed) { in.Witness.Report.Witness.StateDigest = two })),
		"Pending": {
			in:   at(momentOf, func(in *Observed) { in.Export = Task{Exists: true, Created: noon, Pending: "secret not found"} }),
			want: says(v1alpha1.ReasonJobPending, "secret not found"),
		},
		"Progress": {
			in: at(momentOf, func(in *Observed) {
				in.Parent = &v1alpha1.CommitRef{Key: "p", Sequence: 6}
				in.Export = Task{Exists: true, Started: true, Report: &v1alpha1.VMStateReportStatus{
					Progress: &v1alpha1.ReportProgress{TotalBytes: 2 << 30, DoneBytes: 1 << 30, SentBytes: 1 << 20},
				}}
			}),
			want: says(v1alpha1.ReasonExporting, "sending 2 volumes of 2.0 GiB"),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				s.Export = &v1alpha1.ExportStatus{TotalBytes: 2 << 30, ReadBytes: 1 << 30, SentBytes: 1 << 20, Parent: &v1alpha1.CommitRef{Key: "p", Sequence: 6}}
			},
		},
		"Failed": seenAs(fails(v1alpha1.ReasonStoreFull, "the export failed: no room"), "the bucket filled up in the middle",
			at(momentOf, func(in *Observed) {
				in.Export = Task{Exists: true, Report: &v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeFailed, Reason: v1alpha1.ReasonStoreFull, Message: "no room"}}
			})),
		"VolumeMissing": seenAs(fails(v1alpha1.ReasonExportFailed, `the export does not hold volume "root"`), "never Ready in part",
			at(momentOf, done, func(in *Observed) {
				in.Export.Report.Export.Volumes = in.Export.Report.Export.Volumes[1:]
			})),
		"OtherState": seenAs(fails(v1alpha1.ReasonExportFailed, "the exported firmware state is not the one of the moment"), "",
			at(momentOf, done, func(in *Observed) { in.Export.Report.Export.StateDigest = two })),
		"Stored": {
			reason: "every volume is there",
			in:     at(momentOf, done),
			want:   Decision{State: conditions.Tidying, Reason: v1alpha1.ReasonStored, Message: "2 volumes of 2.0 GiB stored as commit 7"},
			status: func(s *v1alpha1.VMStateBackupStatus) {
				at := metav1.NewTime(noon)
				s.Export = &v1alpha1.ExportStatus{
					TotalBytes: 2 << 30, ReadBytes: 1 << 30, SentBytes: 3 << 20, Commit: &v1alpha1.CommitRef{Key: "v/x/c/7", Digest: one, Sequence: 7},
				}
				s.Summary.Sent, s.CompletedAt = "3.0 MiB", &at
			},
		},
	})
}

// TestPlanStartsExport looks at what the Job is told and sees.
func TestPlanStartsExport(t *testing.T) {
	in := at(momentOf, cutOf, reads(one), func(in *Observed) { in.Parent = &v1alpha1.CommitRef{Key: "p", Digest: two, Sequence: 6} })
	group, class, mode := "snapshot.storage.k8s.io", build.Class, corev1.PersistentVolumeFilesystem
	want := []action.Action{
		action.CreateClaim{Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "vmstate-u1-disk-0"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &mode, StorageClassName: &class,
				DataSource: &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "vmstate-u1-snap-1-0"},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceStorage: *resource.NewQuantity(2<<30, resource.BinarySI), // the snapshot's, which is more than the claim's
				}},
			},
		}},
		action.RunJob{Job: job.Spec{
			Name: "vmstate-u1-export", Task: v1alpha1.TaskExport, OwnVolumes: true, Retries: 6,
			Config: []byte(`{"store":{"endpoint":"https://s3.example.com","bucket":"vm-backups","region":"us-east-1","addressing":"Path","checksum":"CRC32C"},` +
				`"export":{"vm":{"namespace":"prod","name":"db","uid":"vm-db"},"backupName":"nightly","backupUID":"u1","created":"2026-11-30T12:00:01Z",` +
				`"parent":{"key":"p","digest":"` + two + `"},"recipients":["age1pq1first","age1pq1second"],"disks":[{"name":"root","mode":"Filesystem","sizeBytes":1073741824}],` +
				`"state":{"volumeName":"` + stateClaimOfDB + `","digest":"` + five + `"},` +
				`"moment":{"disks":"SingleDisk","state":"Witness","quiesce":"NoAgent","quiesceMessage":"no guest agent was connected",` +
				`"cutStarted":"2026-11-30T12:00:00.000000Z","cutEnded":"2026-11-30T12:00:01.000000Z","windowMilliseconds":1300,"stateDigest":"` + five + `","attempts":1}}}`),
			Mounts: []job.Mount{
				{Secret: "s3-write", Path: "/credentials", Optional: true},
				{Secret: "main-repository-keys", Path: "/repository-keys"},
				{ConfigMap: "vmstate-u1-spec", Path: "/spec"},
				{Secret: "vmstate-u1-witness-1-0", Path: "/state/0"},
				{Claim: "vmstate-u1-disk-0", Path: "/volumes/root"},
			},
		}},
	}
	if diff := cmp.Diff(want, Plan(in).Actions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

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
