package backup

import (
	"testing"
	"time"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
)

// TestPlanRemains: what waits between two attempts has an end, whatever a driver does.
func TestPlanRemains(t *testing.T) {
	removing := func(since time.Duration) func(*Observed) {
		return func(in *Observed) {
			verdict(v1alpha1.AttemptStateChanged, "changed")(&in.Backup.Status)
			in.Children = []Child{{
				Kind: action.KindVolumeGroupSnapshot, Name: "g", UID: "ug", Bound: true, Deleting: true, DeletedAt: noon.Add(since),
			}}
		}
	}
	runPlan(t, map[string]planCase{
		"BeingRemoved": {
			reason: "its driver takes its time",
			in:     at(attempt(ended1), clock(waitLimit), removing(time.Second)),
			want:   says(v1alpha1.ReasonBinding, "changed; removing what the attempt made"),
		},
		"NotRemoved": seenAs(fails(v1alpha1.ReasonSnapshotFailed, "what an attempt made could not be removed in 10m0s, and no further one is begun: "+
			`VolumeGroupSnapshot "g" is being removed (last: changed)`),
			"attempts would pile up on a storage that removes nothing", at(attempt(ended1), clock(waitLimit), removing(0))),
	})
}
