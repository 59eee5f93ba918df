// Package conditions is the only code that sets a condition.
//
// Ready is always there. Reconciling and Stalled are there while they are true, never
// together. Every condition carries the generation that it speaks of; its transition time
// changes with its status alone. A message holds no time and no random name: if nothing
// happened, nothing changes.
package conditions

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// State is how a plan stands.
type State int

const (
	// Working: the plan goes on by itself.
	Working State = iota
	// Done: what was asked for is there.
	Done
	// Tidying: what was asked for is there, and what was made on the way is still being removed.
	Tidying
	// Failing: it failed, and what was made on the way is still being removed.
	Failing
	// Stalled: a person must act; the message says what to do.
	Stalled
)

// Target is a list of conditions to write to.
type Target struct {
	// List of conditions; changed in place.
	List *[]metav1.Condition
	// Generation of the object that the conditions speak of.
	Generation int64
	// Now becomes the transition time of a condition whose status changes.
	Now metav1.Time
}

// Write sets Ready, Reconciling and Stalled as the state asks for.
func Write(t Target, state State, reason, message string) {
	switch state {
	case Done:
		Remove(t, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled)
		True(t, v1alpha1.ConditionReady, reason, message)
	case Tidying:
		Remove(t, v1alpha1.ConditionStalled)
		True(t, v1alpha1.ConditionReady, reason, message)
		True(t, v1alpha1.ConditionReconciling, v1alpha1.ReasonCleaningUp, "removing what was made on the way")
	case Stalled:
		Remove(t, v1alpha1.ConditionReconciling)
		False(t, v1alpha1.ConditionReady, reason, message)
		True(t, v1alpha1.ConditionStalled, reason, message)
	case Failing:
		Remove(t, v1alpha1.ConditionStalled)
		False(t, v1alpha1.ConditionReady, reason, message)
		True(t, v1alpha1.ConditionReconciling, v1alpha1.ReasonCleaningUp, "removing what was made on the way")
	default:
		Remove(t, v1alpha1.ConditionStalled)
		False(t, v1alpha1.ConditionReady, reason, message)
		True(t, v1alpha1.ConditionReconciling, reason, message)
	}
}

// True sets a condition to true.
func True(t Target, kind, reason, message string) {
	Set(t, kind, metav1.ConditionTrue, reason, message)
}

// False sets a condition to false.
func False(t Target, kind, reason, message string) {
	Set(t, kind, metav1.ConditionFalse, reason, message)
}

// Unknown sets a condition to unknown.
func Unknown(t Target, kind, reason, message string) {
	Set(t, kind, metav1.ConditionUnknown, reason, message)
}

// Remove takes conditions away.
func Remove(t Target, kinds ...string) {
	for _, kind := range kinds {
		meta.RemoveStatusCondition(t.List, kind)
	}
}

// Set sets a condition to a status.
func Set(t Target, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(t.List, metav1.Condition{
		Type:               kind,
		Status:             status,
		ObservedGeneration: t.Generation,
		LastTransitionTime: t.Now,
		Reason:             reason,
		Message:            message,
	})
}
