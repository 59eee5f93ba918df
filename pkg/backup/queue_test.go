package backup

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
)

// limited is a store that lets one mover work, with these at work and waiting.
func limited(working, waiting []types.UID) func(*Observed) {
	return func(in *Observed) {
		turns := func(uids []types.UID) (out []v1alpha1.MoverTurn) {
			for _, uid := range uids {
				out = append(out, v1alpha1.MoverTurn{Kind: v1alpha1.MoverBackup, Name: "b", UID: uid, Slot: 1})
			}
			return out
		}
		in.Store.Spec.Limits = &v1alpha1.StoreLimits{Movers: 1, MoversPerNode: 1}
		in.Store.Status.Movers = &v1alpha1.MoversStatus{Working: turns(working), Waiting: turns(waiting), WaitingCount: int32(len(waiting))}
	}
}

func queuedAt(at time.Time) func(*Observed) {
	return func(in *Observed) {
		when := metav1.NewTime(at)
		in.Backup.Status.QueuedAt = &when
	}
}

func TestPlanQueue(t *testing.T) {
	u := func(uids ...types.UID) []types.UID { return uids }
	runPlan(t, map[string]planCase{
		"Asks": {
			reason: "a turn is asked for when nothing else is waited for",
			in:     at(momentOf, cutOf, reads(one), limited(u("x"), nil)),
			want:   records(v1alpha1.ReasonWaitingForMover, `waiting for a mover of store "main"`),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				when := metav1.NewTime(noon)
				s.QueuedAt = &when
			},
		},
		"NotReadable": {
			reason: "a turn is not taken from others while the storage is at work",
			in:     at(momentOf, limited(u("x"), nil), func(in *Observed) { in.Cut.Cut = true }),
			want:   says(v1alpha1.ReasonExporting, "waiting until the snapshots can be read"),
		},
		"Waits": {
			reason: "however long, and nothing but the store is looked at",
			in:     at(momentOf, limited(u("x"), u("a", "b", "u1", "c")), queuedAt(noon), clock(1000*time.Hour)),
			want:   says(v1alpha1.ReasonWaitingForMover, `3rd of 4 waiting for a mover of store "main"`),
		},
		"StoreGone": {
			reason: "nobody waits for what is gone",
			in:     at(momentOf, cutOf, reads(one), queuedAt(noon), func(in *Observed) { in.Store = nil }),
			want:   fails(v1alpha1.ReasonStoreNotFound, `VMStateStore "main" was removed`).want,
			status: func(s *v1alpha1.VMStateBackupStatus) {
				fails(v1alpha1.ReasonStoreNotFound, `VMStateStore "main" was removed`).status(s)
				s.QueuedAt = nil
			},
		},
		"HasItsMover": {
			reason: "whose Job is there does not wait",
			in:     at(momentOf, limited(u("u1"), nil), queuedAt(noon), func(in *Observed) { in.Export = Task{Exists: true, Created: noon} }),
			want:   says(v1alpha1.ReasonExporting, "sending 2 volumes of 2.0 GiB"),
			status: func(s *v1alpha1.VMStateBackupStatus) { s.QueuedAt = nil },
		},
		"NoRoom": {
			reason: "a full node, or a quota, is no failure",
			in: at(momentOf, clock(100*time.Hour), func(in *Observed) {
				in.Export = Task{Exists: true, Created: noon, Pending: "0/1 nodes are available: 1 Insufficient memory.", NoRoom: true}
			}),
			want: says(v1alpha1.ReasonJobPending, "0/1 nodes are available: 1 Insufficient memory."),
		},
		"NoRoomAfterDrain": {
			reason: "nor for a pod in the place of one that was evicted: the time without progress does not count",
			in: at(momentOf, clock(stallLimit), func(in *Observed) {
				when := metav1.NewTime(noon)
				in.Backup.Status.Export = &v1alpha1.ExportStatus{ReadBytes: 7, ProgressedAt: &when}
				in.Export = Task{Exists: true, Started: true, Created: noon, Pending: "0/1 nodes are available: 1 Insufficient cpu.", NoRoom: true}
			}),
			want: says(v1alpha1.ReasonJobPending, "0/1 nodes are available: 1 Insufficient cpu."),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				when := metav1.NewTime(noon.Add(stallLimit))
				s.Export.ProgressedAt = &when
			},
		},
	})
	for name, tc := range map[string]struct {
		in   Observed
		slot int32
	}{
		"LetIn":   {at(momentOf, cutOf, reads(one), queuedAt(noon), limited(u("u1"), nil)), 1},
		"JobGone": {at(momentOf, cutOf, reads(one), limited(u("u1"), nil)), 1},
		"NoLimit": {at(momentOf, cutOf, reads(one), queuedAt(noon)), 0},
	} {
		actions := Plan(tc.in).Actions
		if len(actions) == 0 {
			t.Errorf("%s: nothing is done", name)
			continue
		}
		run, ok := actions[len(actions)-1].(action.RunJob)
		if !ok || run.Job.Store != "main" || run.Job.Slot != tc.slot {
			t.Errorf("%s: %+v", name, run.Job)
		}
	}
}
