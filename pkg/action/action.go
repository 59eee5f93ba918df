// Package action is the closed list of effects that a plan may ask for.
//
// An action says what, never how: package controllers carries it out, one case a type. Names
// in it are fixed by the plan, so an action that runs twice meets its own object. Most actions
// either work or stop the pass with an error. A few ask somebody who may say no (the guest's
// agent): their answer is a fact that the plan records, see Answer.
package action

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/pkg/job"
)

// Action is one effect on the cluster.
type Action interface{ action() }

// AddFinalizer puts a finalizer on the owner.
type AddFinalizer struct{ Finalizer string }

// RemoveFinalizer takes a finalizer off the owner.
type RemoveFinalizer struct{ Finalizer string }

// RunJob makes a Job, with its account, binding and report.
type RunJob struct{ Job job.Spec }

// CreateClaim makes a claim in the owner's namespace, controlled by the owner.
type CreateClaim struct{ Claim *corev1.PersistentVolumeClaim }

// CreateConfigMap makes an immutable ConfigMap in the owner's namespace, controlled by the owner.
type CreateConfigMap struct {
	Name string
	Data map[string][]byte
}

// Kind names the kinds that a plan may delete.
type Kind string

// Kinds that a plan may delete.
const (
	KindJob                 Kind = "Job"
	KindReport              Kind = "VMStateReport"
	KindClaim               Kind = "PersistentVolumeClaim"
	KindConfigMap           Kind = "ConfigMap"
	KindServiceAccount      Kind = "ServiceAccount"
	KindRoleBinding         Kind = "RoleBinding"
	KindVolumeSnapshot      Kind = "VolumeSnapshot"
	KindVolumeGroupSnapshot Kind = "VolumeGroupSnapshot"
)

// Delete removes one object in the owner's namespace, if it is still the one with this UID and
// the owner controls it. An object that is gone already is no error.
type Delete struct {
	Kind Kind
	Name string
	UID  types.UID
}

func (AddFinalizer) action()    {}
func (RemoveFinalizer) action() {}
func (RunJob) action()          {}
func (CreateClaim) action()     {}
func (CreateConfigMap) action() {}
func (Delete) action()          {}
