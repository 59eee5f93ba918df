package backup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/inventory"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/test/build"
)

// since is what the Paused condition says.
var since = metav1.NewTime(noon.Add(time.Second))

// pausable may be paused for two seconds, and has two disks that need it.
func pausable(in *Observed) {
	in.Backup.Spec.Require.MaxPause = &metav1.Duration{Duration: 2 * time.Second}
	in.Machine.Inventory = inv("data")
}

func fencing(a *v1alpha1.MomentAttempt) {
	a.Disks, a.State = v1alpha1.DisksFence, v1alpha1.StateFence
}

// pausing records a pause at noon, asked by "me".
func pausing(a *v1alpha1.MomentAttempt) {
	fencing(a)
	a.FirstReading = one
	a.Fence = &v1alpha1.FenceRecord{RequestedAt: *micro(0), Deadline: *micro(2 * time.Second), Requester: "me"}
}

// paused is a pause that was seen, under which the cut began.
func paused(a *v1alpha1.MomentAttempt) {
	pausing(a)
	a.Fence.PausedAt, a.Fence.PausedSince, a.CutStarted = micro(200*time.Millisecond), &since, micro(200*time.Millisecond)
}

func ownersPaused(a *v1alpha1.MomentAttempt) {
	fencing(a)
	a.FirstReading, a.CutStarted = one, micro(0)
	a.Fence = &v1alpha1.FenceRecord{
		RequestedAt: *micro(0), Deadline: *micro(cutLimit), OwnersPause: true, PausedAt: micro(0), PausedSince: &since,
	}
}

func fencedEnd(a *v1alpha1.MomentAttempt) {
	paused(a)
	a.CutEnded = micro(time.Second)
}

func unpausedAt(after time.Duration) func(*v1alpha1.MomentAttempt) {
	return func(a *v1alpha1.MomentAttempt) { a.Fence.ReleasedAt = micro(after) }
}

// changedOnce is an attempt during which the firmware state changed.
func changedOnce(a *v1alpha1.MomentAttempt) {
	ended1(a)
	a.Disks, a.State, a.Verdict, a.Message = v1alpha1.DisksSingle, v1alpha1.StateWitness, v1alpha1.AttemptStateChanged, "changed"
}

// guards is a witness that could unpause, and has read first.
func guards(in *Observed) {
	reads("")(in)
	in.Witness.Report.Witness.Guarding = true
}

// readFenced is one that has read the paused guest's state.
func readFenced(in *Observed) {
	guards(in)
	in.Witness.Report.Witness.Fenced = &v1alpha1.WitnessReading{Digest: two, StartedAt: *micro(300 * time.Millisecond), EndedAt: *micro(310 * time.Millisecond)}
}

func wholeCut(in *Observed) {
	cutOf(in)
	in.Cut.Skew, in.PausedSince = 30*time.Millisecond, &since
}

// letGo adds the release of a guest that is paused, and frozen where thaw says so.
func letGo(d Decision, thaw bool) Decision {
	actions := []action.Action{action.Unpause{Instance: "db", UID: "vmi-db"}}
	if thaw {
		actions = append(actions, action.Unfreeze{Instance: "db", UID: "vmi-db"})
	}
	d.Actions, d.RequeueAfter = append(actions, d.Actions...), time.Second
	return d
}

func until(d Decision, wait time.Duration) Decision {
	d.RequeueAfter = wait
	return d
}

// Nothing is paused before the record of it, and before the witness could end it.
func TestPlanFence(t *testing.T) {
	theirs := func(reason string) func(*Observed) {
		return func(in *Observed) {
			in.Machine.Inventory.Paused, in.Machine.Inventory.PausedSince, in.Machine.Inventory.PauseReason = true, &since, reason
		}
	}
	runPlan(t, map[string]planCase{
		"NotGuarding": {
			reason: "the dead man's switch is proven before the guest is touched",
			in:     at(pausable, attempt(fencing), reads("")), want: says(v1alpha1.ReasonWitnessing, "reading the firmware state"),
		},
		"Recorded": {
			reason: "the pause, its deadline and the first reading are recorded before it is asked for",
			in:     at(pausable, attempt(fencing), guards),
			want:   until(records(v1alpha1.ReasonPausing, "pausing the guest"), 2*time.Second),
			status: func(s *v1alpha1.VMStateBackupStatus) { pausing(&s.Attempts[0]) },
		},
		"FreezeFirst": {
			reason: "an agent answers while the guest runs, and not after",
			in:     at(pausable, attempt(fencing), guards, func(in *Observed) { in.Machine.Inventory.Agent = true }),
			want:   until(records(v1alpha1.ReasonFreezing, "freezing the guest's filesystems"), 30*time.Second),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				asked(&s.Attempts[0])
			},
		},
		"Frozen": {
			reason: "a guest that is frozen is not paused longer than it may be frozen",
			in:     at(pausable, attempt(fencing, frozen), guards, clock(29*time.Second)),
			want:   until(records(v1alpha1.ReasonPausing, "pausing the guest"), time.Second),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				s.Attempts[0].Fence = &v1alpha1.FenceRecord{RequestedAt: *micro(29 * time.Second), Deadline: *micro(30 * time.Second), Requester: "me"}
			},
		},
		"ThawedBefore": {
			reason: "another process thawed it",
			in:     at(pausable, attempt(fencing, frozen), guards, func(in *Observed) { in.Process = "next" }),
			want: func() Decision {
				d := until(records(v1alpha1.ReasonBinding, "the guest was thawed before it was paused"), time.Second)
				d.Actions = []action.Action{action.Unfreeze{Instance: "db", UID: "vmi-db"}}
				return d
			}(),
			status: verdict(v1alpha1.AttemptDiscarded, "the guest was thawed before it was paused"),
		},
		"Asked": {
			in: at(pausable, attempt(pausing), guards, clock(500*time.Millisecond)),
			want: until(does(v1alpha1.ReasonPausing, "pausing the guest",
				action.Pause{Instance: "db", UID: "vmi-db", Limit: 1500 * time.Millisecond}), 1500*time.Millisecond),
		},
		"AnotherProcess": {
			reason: "nobody knows whether the request is under way: it is released until it must have ended",
			in:     at(pausable, attempt(pausing), guards, func(in *Observed) { in.Process = "next" }),
			want:   until(letGo(records(v1alpha1.ReasonBinding, "the manager was interrupted while it paused the guest"), false), lookAgain),
			status: verdict(v1alpha1.AttemptDiscarded, "the manager was interrupted while it paused the guest"),
		},
		"Refused": func() planCase {
			c := fails(v1alpha1.ReasonPauseFailed, `KubeVirt does not pause VM "db": it has a LivenessProbe`)
			c.in = at(pausable, attempt(pausing, unpausedAt(0), func(a *v1alpha1.MomentAttempt) { a.Fence.Failure = "it has a LivenessProbe" }), guards)
			return c
		}(),
		"NoAnswer": {
			reason: "it may land yet",
			in:     at(pausable, attempt(pausing, func(a *v1alpha1.MomentAttempt) { a.Fence.Failure = "timeout" }), guards),
			want:   until(letGo(records(v1alpha1.ReasonBinding, "the guest was not seen paused: timeout"), false), lookAgain),
			status: verdict(v1alpha1.AttemptDiscarded, "the guest was not seen paused: timeout"),
		},
		"OwnersPause": {
			reason: "a VM that its owner paused is not paused again, and never unpaused",
			in:     at(pausable, attempt(fencing), guards, theirs("PausedByUser")),
			want:   records(v1alpha1.ReasonTakingSnapshot, "cutting the snapshots"),
			status: func(s *v1alpha1.VMStateBackupStatus) { ownersPaused(&s.Attempts[0]) },
		},
		"PausedByDisk": {
			reason: "the last writes of a disk that is full are under way",
			in:     at(pausable, attempt(fencing), guards, theirs("PausedIOError")),
			want:   records(v1alpha1.ReasonBinding, "the guest is paused, and not by anybody's will (PausedIOError)"),
			status: verdict(v1alpha1.AttemptDiscarded, "the guest is paused, and not by anybody's will (PausedIOError)"),
		},
		"StateAlone": {
			reason: "a witness without state guards",
			in: at(pausable, func(in *Observed) { in.Machine.Inventory.VM.StateClaimName, in.Documents = "", true },
				attempt(func(a *v1alpha1.MomentAttempt) { a.Disks, a.State = v1alpha1.DisksFence, v1alpha1.StateNone })),
			want: does(v1alpha1.ReasonWitnessing, "reading the firmware state", action.RunJob{Job: job.Spec{
				Name: "vmstate-u1-witness-1", Task: v1alpha1.TaskWitness,
				Config: []byte(`{"backupName":"nightly","backupUID":"u1","attempt":1,"mode":"Running","machine":{"vmName":"db","firmwareUUID":"` + build.FirmwareUUID +
					`","persistentTPM":true,"persistentEFI":true},"fence":true}`),
				Placement: &job.Placement{NodeName: build.Node}, Deadline: witnessLife, Retries: 2,
			}}),
		},
	})
}

// The cut of a paused guest ends when everything is known, and never later than the pause may last.
func TestPlanCutFenced(t *testing.T) {
	after := clock(time.Second)
	otherPause := metav1.NewTime(since.Add(time.Second))
	within := until(says(v1alpha1.ReasonTakingSnapshot, "cutting the snapshots"), time.Second)
	tooLong := "within the 2s that the guest may be paused the storage did not cut the snapshots"
	runPlan(t, map[string]planCase{
		"NoHandle": {in: at(pausable, attempt(paused), after), want: within},
		"NoReading": {
			reason: "the state is read while the guest is paused, or not at all",
			in:     at(pausable, attempt(paused), after, guards, wholeCut),
			want:   until(says(v1alpha1.ReasonTakingSnapshot, "reading the firmware state of the paused guest"), time.Second),
		},
		"Whole": {
			reason: "the guest runs from the instant on at which all is known",
			in:     at(pausable, attempt(paused), after, readFenced, wholeCut),
			want:   letGo(records(v1alpha1.ReasonBinding, "looking whether the VM is still the same"), false),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				s.Attempts[0].CutEnded, s.Attempts[0].SkewMilliseconds = micro(time.Second), 30
			},
		},
		"WholeFrozen": {
			reason: "first it runs, then its agent can thaw it",
			in:     at(pausable, attempt(frozen, paused), after, readFenced, wholeCut),
			want:   letGo(records(v1alpha1.ReasonBinding, "looking whether the VM is still the same"), true),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				s.Attempts[0].CutEnded, s.Attempts[0].SkewMilliseconds = micro(time.Second), 30
			},
		},
		"WholeOwners": {
			reason: "what was paused before is paused after",
			in:     at(pausable, attempt(ownersPaused), after, readFenced, wholeCut),
			want:   records(v1alpha1.ReasonBinding, "looking whether the VM is still the same"),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				s.Attempts[0].CutEnded, s.Attempts[0].SkewMilliseconds = micro(time.Second), 30
			},
		},
		"RunsAgain": {
			reason: "snapshots of a guest that ran between them are torn",
			in:     at(pausable, attempt(paused), after, readFenced, wholeCut, func(in *Observed) { in.PausedSince = nil }),
			want:   letGo(records(v1alpha1.ReasonBinding, "somebody unpaused the guest during the cut"), false),
			status: verdict(v1alpha1.AttemptDiscarded, "somebody unpaused the guest during the cut"),
		},
		"PausedAgain": {
			reason: "and so are those of one that was paused twice",
			in:     at(pausable, attempt(ownersPaused), after, readFenced, wholeCut, func(in *Observed) { in.PausedSince = &otherPause }),
			want:   records(v1alpha1.ReasonBinding, "somebody unpaused the guest during the cut"),
			status: verdict(v1alpha1.AttemptDiscarded, "somebody unpaused the guest during the cut"),
		},
		"Restarted": {
			reason: "the new process unpaused it first thing",
			in:     at(pausable, attempt(paused), after, readFenced, wholeCut, func(in *Observed) { in.Process = "next" }),
			want:   letGo(records(v1alpha1.ReasonBinding, "the manager was restarted while the guest was paused"), false),
			status: verdict(v1alpha1.AttemptDiscarded, "the manager was restarted while the guest was paused"),
		},
		"Overrun": {
			reason: "a storage that was slow once gets another chance",
			in:     at(pausable, attempt(paused), clock(2*time.Second)),
			want:   letGo(records(v1alpha1.ReasonBinding, tooLong), false), status: verdict(v1alpha1.AttemptDiscarded, tooLong),
		},
		"WholeTooLate": {
			reason: "the witness may have unpaused it",
			in:     at(pausable, attempt(paused), readFenced, wholeCut, clock(2*time.Second)),
			want:   letGo(records(v1alpha1.ReasonBinding, "within the 2s that the guest may be paused it was not seen that all is there"), false),
			status: verdict(v1alpha1.AttemptDiscarded, "within the 2s that the guest may be paused it was not seen that all is there"),
		},
		"OverrunAgain": func() planCase {
			c := fails(v1alpha1.ReasonPauseExceeded, tooLong+`: disk "root": busy, 2 times: raise require.maxPause, stop the VM for the backup, or put its disks on a driver that cuts them together`)
			c.in = at(pausable, attempt(paused, unpausedAt(2*time.Second), func(a *v1alpha1.MomentAttempt) { a.Verdict = v1alpha1.AttemptDiscarded }),
				attempt(paused), clock(2*time.Second), func(in *Observed) { in.Cut.Trouble = `disk "root": busy` })
			c.want = letGo(c.want, false)
			return c
		}(),
		"WitnessFailed": {
			in: at(pausable, attempt(paused), after, guards, wholeCut, func(in *Observed) {
				in.Witness.Report.Outcome, in.Witness.Report.Message = v1alpha1.OutcomeFailed, "permall is cut"
			}),
			want:   letGo(records(v1alpha1.ReasonBinding, "the firmware state of the paused guest was not read: permall is cut"), false),
			status: verdict(v1alpha1.AttemptDiscarded, "the firmware state of the paused guest was not read: permall is cut"),
		},
		"StillPaused": {
			reason: "nothing goes on before the guest does",
			in: at(pausable, attempt(fencedEnd, func(a *v1alpha1.MomentAttempt) { a.Fence.ReleaseFailure = "snapshot in progress" }),
				readFenced, clock(1500*time.Millisecond)),
			want: letGo(says(v1alpha1.ReasonBinding, "the guest could not be unpaused yet: snapshot in progress"), false),
		},
		"Bound": {
			reason: "disks and state are of the pause",
			in:     at(pausable, attempt(fencedEnd, unpausedAt(1100*time.Millisecond), func(a *v1alpha1.MomentAttempt) { a.SkewMilliseconds = 30 }), readFenced, clock(2*time.Second)),
			want:   records(v1alpha1.ReasonExporting, "waiting until the snapshots can be read"),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				s.Attempts[0].Verdict = v1alpha1.AttemptBound
				s.Moment = &v1alpha1.Moment{
					Disks: v1alpha1.DisksFence, State: v1alpha1.StateFence, Quiesce: v1alpha1.QuiesceNoAgent, QuiesceMessage: "no guest agent was connected",
					CutStarted: *micro(200 * time.Millisecond), CutEnded: *micro(time.Second), StateDigest: five,
					PausedMilliseconds: 1100, SkewMilliseconds: 30, Attempts: 1,
				}
				s.Summary = v1alpha1.BackupSummary{Moment: "Fence+Fence", Size: "3.0 GiB", Paused: "1.1s"}
			},
		},
		"MovedMeanwhile": {
			in: at(pausable, attempt(fencedEnd, unpausedAt(1100*time.Millisecond)), readFenced, clock(2*time.Second),
				refusedBy(inventory.Refusal{Message: `snapshot "velero" of VM "db" is in progress`})),
			want:   records(v1alpha1.ReasonBinding, `snapshot "velero" of VM "db" is in progress`),
			status: verdict(v1alpha1.AttemptDiscarded, `snapshot "velero" of VM "db" is in progress`),
		},
	})
}

// Every answer, and every one that counts for nothing.
func TestSettleFence(t *testing.T) {
	ago := func(d time.Duration) time.Time { return noon.Add(d) }
	cases := map[string]struct {
		reason  string
		attempt func(*v1alpha1.MomentAttempt)
		answer  action.Answer
		want    func(*v1alpha1.MomentAttempt)
	}{
		"Paused": {"the cut begins under the pause, and without another pass", pausing,
			action.Answer{Action: action.Pause{}, At: ago(200 * time.Millisecond), PausedSince: &since}, paused},
		"Refused": {"nothing is under way", pausing,
			action.Answer{Action: action.Pause{}, At: ago(time.Second), Failure: "forbidden", Refused: true},
			func(a *v1alpha1.MomentAttempt) { a.Fence.Failure, a.Fence.ReleasedAt = "forbidden", micro(time.Second) }},
		"TimedOut": {"it may land yet", pausing,
			action.Answer{Action: action.Pause{}, At: ago(time.Second), Failure: "timeout"},
			func(a *v1alpha1.MomentAttempt) { a.Fence.Failure = "timeout" }},
		"Unpaused": {"the pause was seen, so none is under way", paused,
			action.Answer{Action: action.Unpause{}, At: ago(time.Second)},
			func(a *v1alpha1.MomentAttempt) { a.Fence.ReleasedAt = micro(time.Second) }},
		"Conflict": {"409 is never a success", paused,
			action.Answer{Action: action.Unpause{}, At: ago(time.Second), Failure: "snapshot in progress"},
			func(a *v1alpha1.MomentAttempt) { a.Fence.ReleaseFailure = "snapshot in progress" }},
		"UnpausedTooEarly": {"a pause that was not seen may land behind this look", pausing,
			action.Answer{Action: action.Unpause{}, At: ago(inFlight + pauseSeen - time.Second)}, func(*v1alpha1.MomentAttempt) {}},
		"UnpausedPastFlight": {"until none can", pausing,
			action.Answer{Action: action.Unpause{}, At: ago(inFlight + pauseSeen)},
			func(a *v1alpha1.MomentAttempt) { a.Fence.ReleasedAt = micro(inFlight + pauseSeen) }},
		"KubeVirtGone": {"it may come back", paused,
			action.Answer{Action: action.Unpause{}, At: ago(time.Minute), Failure: "no answer", KubeVirtGone: true},
			func(a *v1alpha1.MomentAttempt) {
				a.Fence.ReleaseFailure, a.Fence.KubeVirtGoneSince = "no answer", micro(time.Minute)
			}},
		"KubeVirtGoneForGood": {"nobody is left to be asked", func(a *v1alpha1.MomentAttempt) { paused(a); a.Fence.KubeVirtGoneSince = micro(0) },
			action.Answer{Action: action.Unpause{}, At: ago(goneLimit), Failure: "no answer", KubeVirtGone: true},
			func(a *v1alpha1.MomentAttempt) {
				a.Fence.ReleaseFailure, a.Fence.UnconfirmedAt = "no answer", micro(goneLimit)
			}},
		"Owners": {"it is not ours to end", ownersPaused, action.Answer{Action: action.Unpause{}, At: ago(time.Hour)}, func(*v1alpha1.MomentAttempt) {}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := at(pausable, attempt(tc.attempt))
			want := in.Backup.Status.DeepCopy()
			tc.want(&want.Attempts[0])
			got := Decision{Status: *in.Backup.Status.DeepCopy()}.Settle([]action.Answer{tc.answer})
			if diff := cmp.Diff(*want, got.Status); diff != "" {
				t.Errorf("%s\nSettle() mismatch (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// What a process owes a guest when it starts.
func TestReleaseAtStart(t *testing.T) {
	unpause, thaw := action.Unpause{Instance: "db", UID: "vmi-db"}, action.Unfreeze{Instance: "db", UID: "vmi-db"}
	cases := map[string]struct {
		attempt []func(*v1alpha1.MomentAttempt)
		process string
		want    []action.Action
	}{
		"PausedAndFrozen": {[]func(*v1alpha1.MomentAttempt){frozen, paused}, "next", []action.Action{unpause, thaw}},
		"AskedOnly":       {[]func(*v1alpha1.MomentAttempt){pausing}, "next", []action.Action{unpause}},
		"Unpaused":        {[]func(*v1alpha1.MomentAttempt){frozen, paused, unpausedAt(time.Second)}, "next", []action.Action{thaw}},
		"Own":             {[]func(*v1alpha1.MomentAttempt){frozen, paused}, "me", nil},
		"Owners":          {[]func(*v1alpha1.MomentAttempt){ownersPaused}, "next", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Release(at(pausable, attempt(tc.attempt...)).Backup, tc.process)); diff != "" {
				t.Errorf("Release() mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

// A pass that cannot look releases a guest at its deadline all the same: its freeze with the pause, since
// what they were for is lost.
func TestBlindFence(t *testing.T) {
	in := at(pausable, attempt(frozen, paused), clock(2*time.Second))
	want := letGo(Decision{Status: in.Backup.Status}, true)
	if diff := cmp.Diff(want, Blind(in)); diff != "" {
		t.Errorf("Blind() mismatch (-want +got):\n%s", diff)
	}
	if d := Deadline(in.Backup, noon); d != 2*time.Second {
		t.Errorf("a pass may take %s, want the 2s until the fence's deadline", d)
	}
	if d := Deadline(in.Backup, in.Now); d != 28*time.Second {
		t.Errorf("a pass may take %s, want the 28s until the freeze's deadline", d)
	}
}
