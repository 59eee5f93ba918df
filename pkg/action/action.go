// Package action is the closed list of effects that a plan may ask for.
//
// An action says what, never how: package controllers carries it out, one case a type. Names
// in it are fixed by the plan, so an action that runs twice meets its own object. Most actions
// either work or stop the pass with an error. A few ask somebody who may say no (the guest's
// agent): their answer is a fact that the plan records, see Answer.
package action

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
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

// AdoptBackup makes a VMStateBackup in the owner's namespace for a backup that the owner, a store,
// holds, and fills its status from what its record says. The owner does not control it: it outlives
// the store's object. One of that name for the same commit is met, and filled if it is empty.
type AdoptBackup struct {
	Name  string
	Entry v1alpha1.CatalogueEntry
}

// FillBackup fills the status of a VMStateBackup with spec.commit, if it is still the one with this
// UID and has come to nothing yet: from its record in the store, or with why there is none.
type FillBackup struct {
	Name    string
	UID     types.UID
	Entry   *v1alpha1.CatalogueEntry
	Failure *v1alpha1.Failure
}

// MarkBackup sets one condition of a VMStateBackup, if it is still the one with this UID.
type MarkBackup struct {
	Name      string
	UID       types.UID
	Condition metav1.Condition
	// VerifiedAt becomes status.verifiedAt, if it is not nil.
	VerifiedAt *metav1.Time
}

// ReleaseBackup takes v1alpha1.FinalizerStored off a VMStateBackup that is being deleted, if it is
// still the one with this UID.
type ReleaseBackup struct {
	Name string
	UID  types.UID
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
func (AdoptBackup) action()     {}
func (FillBackup) action()      {}
func (MarkBackup) action()      {}
func (ReleaseBackup) action()   {}
