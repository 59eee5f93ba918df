package backup

import (
	"testing"
	"time"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
)

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
		"Wrong": seenAs(fails(v1alpha1.ReasonSnapshotFailed, "no such snapshot"),
			"a driver that answers what cannot be true would do so again: no further attempt piles up on it",
			at(attempt(cutting), func(in *Observed) { in.Cut.Wrong = "no such snapshot" })),
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
		"ThawedByWitness": seenAs(fails(v1alpha1.ReasonQuiesceFailed,
			"quiesce is Required, and the guest was not frozen during the cut: the witness thawed the guest before the cut had ended"),
			"the dead man's switch had worked: that is no frozen cut",
			at(attempt(frozen, ended1, func(a *v1alpha1.MomentAttempt) { a.Freeze.ReleasedAt = micro(1100 * time.Millisecond) }),
				reads(one), clock(2*time.Second), quiesce(v1alpha1.QuiesceRequired),
				func(in *Observed) { in.Witness.Report.Witness.ReleasedAt = micro(500 * time.Millisecond) })),
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
