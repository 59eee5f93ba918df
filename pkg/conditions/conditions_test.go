package conditions

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// Every state leaves Ready, and never Reconciling and Stalled together, wherever it came from.
func TestWrite(t *testing.T) {
	now := metav1.NewTime(time.Unix(1, 0))
	c := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: 3, LastTransitionTime: now}
	}
	const tidying = "removing what was made on the way"
	want := map[State][]metav1.Condition{
		Working: {c("Ready", "False", "R", "m"), c("Reconciling", "True", "R", "m")},
		Done:    {c("Ready", "True", "R", "m")},
		Tidying: {c("Ready", "True", "R", "m"), c("Reconciling", "True", v1alpha1.ReasonCleaningUp, tidying)},
		Failing: {c("Ready", "False", "R", "m"), c("Reconciling", "True", v1alpha1.ReasonCleaningUp, tidying)},
		Stalled: {c("Ready", "False", "R", "m"), c("Stalled", "True", "R", "m")},
	}
	for from := range want {
		for to, conditions := range want {
			var got []metav1.Condition
			target := Target{List: &got, Generation: 3, Now: now}
			Write(target, from, "before", "before")
			Write(target, to, "R", "m")
			if diff := cmp.Diff(conditions, got); diff != "" {
				t.Errorf("from %d to %d (-want +got):\n%s", from, to, diff)
			}
		}
	}
}
