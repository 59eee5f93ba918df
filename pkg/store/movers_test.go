package store

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/queue"
)

func oneMover(in *Observed) {
	in.Store.Spec.Limits = &v1alpha1.StoreLimits{Movers: 1, MoversPerNode: 1}
}

func working(kind v1alpha1.MoverKind) func(*Observed) {
	return func(in *Observed) {
		in.Movers = append(in.Movers, queue.Mover{MoverTurn: v1alpha1.MoverTurn{Kind: kind, Name: "b", UID: "b-uid", Since: metav1.NewTime(noon)}})
	}
}

func queued(kind v1alpha1.MoverKind, ago time.Duration) func(*Observed) {
	return func(in *Observed) {
		in.Queued = append(in.Queued, queue.Candidate{MoverTurn: v1alpha1.MoverTurn{Kind: kind, Name: "q", UID: "q-uid", Since: metav1.NewTime(noon.Add(-ago))}})
	}
}

// TestMovers: what the store does for itself waits for a mover like all others, is told, and holds up nothing that is small.
func TestMovers(t *testing.T) {
	ready, gone := probed(time.Minute, "True"), deleted("x", ref(chainA, 2))
	for name, tc := range map[string]struct {
		reason          string
		in              Observed
		begun           bool
		atWork, waiting int
		soon            bool
	}{
		"Unlimited": {"", at(ready, listed, maintained, with(gone)), true, 0, 0, false},
		"Room":      {"", at(ready, listed, maintained, with(gone), oneMover), true, 1, 0, false},
		"Full": {"maintenance waits for a backup", at(ready, listed, maintained, with(gone), oneMover, working(v1alpha1.MoverBackup)),
			false, 1, 1, true},
		"Outranked": {"a backup that waits goes first", at(ready, listed, maintained, with(gone), oneMover, queued(v1alpha1.MoverBackup, 0)),
			false, 1, 1, true},
		"Overdue": {"not for ever: locks would lapse", at(ready, listed, maintained, with(gone), oneMover, queued(v1alpha1.MoverBackup, time.Hour), func(in *Observed) {
			in.Store.Status.Movers = &v1alpha1.MoversStatus{Waiting: []v1alpha1.MoverTurn{{
				Kind: v1alpha1.MoverMaintenance, Name: "main", UID: in.Store.UID, Since: metav1.NewTime(noon.Add(-24 * time.Hour)),
			}}}
		}), true, 1, 1, true},
		"NotReady": {"", at(probed(time.Minute, "False"), listed, maintained, with(gone), oneMover), false, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := Plan(tc.in)
			m := d.Status.Movers
			if begun := d.Status.Maintenance != nil && d.Status.Maintenance.JobName != ""; begun != tc.begun {
				t.Errorf("%s: begun is %t", tc.reason, begun)
			}
			if (m == nil) != (name == "Unlimited") || m != nil && (len(m.Working) != tc.atWork || len(m.Waiting) != tc.waiting) {
				t.Errorf("%s: %+v", tc.reason, m)
			}
			if tc.soon && (d.RequeueAfter == 0 || d.RequeueAfter > lookAgain) {
				t.Errorf("%s: looked at again in %s", tc.reason, d.RequeueAfter)
			}
		})
	}
	for _, a := range Plan(at(ready, listed, maintained, cleaning, oneMover, working(v1alpha1.MoverBackup))).Actions {
		if run, ok := a.(action.RunJob); !ok || run.Job.Store != "main" || run.Job.Slot != 1 {
			t.Errorf("maintenance that has begun: %+v", a)
		}
	}
}

// TestNoRoomIsNoFailure: a store stays as it is while a node is full, and its chores wait.
func TestNoRoomIsNoFailure(t *testing.T) {
	full := Task{Exists: true, Created: noon.Add(-100 * pendingLimit), Pending: "0/1 nodes are available: 1 Insufficient cpu.", NoRoom: true}
	setup := full
	setup.Created = noon.Add(-pendingLimit - time.Minute)
	if d := Plan(at(probed(2*time.Hour, "True"), listed, func(in *Observed) { in.Setup = setup })); d.Status.Conditions[0].Status != "True" || len(d.Actions) > 0 {
		t.Errorf("probe that waits for room: %+v, %+v", d.Status.Conditions, d.Actions)
	}
	if d := Plan(at(probed(time.Minute, "True"), listed, maintained, cleaning, func(in *Observed) { in.Chore = full })); d.Status.Maintenance.Failures > 0 {
		t.Errorf("maintenance that waits for room: %+v", d.Status.Maintenance)
	}
}
