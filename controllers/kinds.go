package controllers

import (
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
)

// groupSnapshots is the API group of group snapshots. Its versions v1 and v1beta2 have the same
// fields; v1beta1 has others, and is refused.
const groupSnapshots = "groupsnapshot.storage.k8s.io"

// NewScheme knows every kind that the manager reads or writes as a type. Group snapshots are
// not among them: their version is found by discovery.
func NewScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(kubevirtv1.AddToScheme(s))
	utilruntime.Must(snapshotv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

// kindOf is the kind that a plan means, with its version.
func (e *executor) kindOf(kind action.Kind) (schema.GroupVersionKind, error) {
	switch kind {
	case action.KindJob:
		return batchv1.SchemeGroupVersion.WithKind("Job"), nil
	case action.KindReport:
		return v1alpha1.GroupVersion.WithKind("VMStateReport"), nil
	case action.KindClaim:
		return corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), nil
	case action.KindConfigMap:
		return corev1.SchemeGroupVersion.WithKind("ConfigMap"), nil
	case action.KindServiceAccount:
		return corev1.SchemeGroupVersion.WithKind("ServiceAccount"), nil
	case action.KindRoleBinding:
		return rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), nil
	case action.KindVolumeSnapshot:
		return snapshotv1.SchemeGroupVersion.WithKind("VolumeSnapshot"), nil
	case action.KindRevision:
		return appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), nil
	case action.KindVolumeGroupSnapshot:
		return groupKind(e.client.RESTMapper(), "VolumeGroupSnapshot")
	default:
		return schema.GroupVersionKind{}, fmt.Errorf("no kind is called %q", kind)
	}
}

// groupKind is a kind of the group snapshot API in the newest version that the cluster serves
// and vmstate reads. meta.IsNoMatchError tells that there is none.
func groupKind(mapper meta.RESTMapper, kind string) (schema.GroupVersionKind, error) {
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: groupSnapshots, Kind: kind}, "v1", "v1beta2")
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return mapping.GroupVersionKind, nil
}
