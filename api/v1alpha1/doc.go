// Package v1alpha1 is the API of vmstate: group vmstate.io, version v1alpha1.
//
//	kind            what it is
//	VMStateStore    where exports go, and who may read them
//	VMStateBackup   one captured moment of one virtual machine
//	VMStateRestore  one backup brought back as a virtual machine
//	VMStateReport   what a Job of vmstate's saw and did; written by that Job, read by the manager
//
// All kinds are namespaced. The package holds types, markers and their meaning; no logic.
//
// +kubebuilder:object:generate=true
// +groupName=vmstate.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "vmstate.io", Version: "v1alpha1"}

// AddToScheme adds the kinds of this package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&VMStateStore{}, &VMStateStoreList{},
		&VMStateBackup{}, &VMStateBackupList{},
		&VMStateRestore{}, &VMStateRestoreList{},
		&VMStateReport{}, &VMStateReportList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
