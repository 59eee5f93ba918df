package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/restore"
)

// observeCluster reads what the preflight looks at, beside the restore's own objects.
func (r *RestoreReconciler) observeCluster(ctx context.Context, rs *v1alpha1.VMStateRestore, m restore.Machine) (*restore.Cluster, error) {
	out := &restore.Cluster{Present: map[restore.Need]bool{}}
	namespace := &corev1.Namespace{}
	found, err := r.get(ctx, "", rs.Namespace, namespace)
	if err != nil {
		return nil, err
	}
	if found {
		out.Namespace = namespace
	}
	machines, instances := &kubevirtv1.VirtualMachineList{}, &kubevirtv1.VirtualMachineInstanceList{}
	classes, quotas := &storagev1.StorageClassList{}, &corev1.ResourceQuotaList{}
	kubevirts := &kubevirtv1.KubeVirtList{}
	for _, list := range []client.ObjectList{machines, instances, classes, kubevirts} {
		if err := r.Live.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	if err := r.Live.List(ctx, quotas, client.InNamespace(rs.Namespace)); err != nil {
		return nil, fmt.Errorf("list quotas: %w", err)
	}
	out.Machines, out.Instances = machines.Items, instances.Items
	out.StorageClasses, out.Quotas = classes.Items, quotas.Items
	if len(kubevirts.Items) > 0 {
		out.KubeVirtVersion = kubevirts.Items[0].Status.ObservedKubeVirtVersion
	}
	if out.CPUModels, err = r.observeCPUModels(ctx); err != nil {
		return nil, err
	}
	for _, need := range append(restore.Needs(m, rs.Namespace), restore.MatcherNeeds(m, rs.Namespace)...) {
		if err := r.observeNeed(ctx, need, out.Present); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// observeCPUModels reads the labels that KubeVirt's node labeller puts on nodes.
func (r *RestoreReconciler) observeCPUModels(ctx context.Context) ([]string, error) {
	nodes := &metav1.PartialObjectMetadataList{}
	nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := r.Live.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	models := map[string]bool{}
	for _, n := range nodes.Items {
		for key, value := range n.Labels {
			if model, ok := strings.CutPrefix(key, kubevirtv1.CPUModelLabel); ok && value == "true" {
				models[model] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(models)), nil
}

// needKinds are the kinds that may be looked up. Secrets are not: the manager reads none.
var needKinds = map[string]schema.GroupVersionKind{
	restore.NeedConfigMap:           corev1.SchemeGroupVersion.WithKind("ConfigMap"),
	restore.NeedServiceAccount:      corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	restore.NeedNetwork:             {Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"},
	restore.NeedInstancetype:        {Group: "instancetype.kubevirt.io", Version: "v1beta1", Kind: "VirtualMachineInstancetype"},
	restore.NeedClusterInstancetype: {Group: "instancetype.kubevirt.io", Version: "v1beta1", Kind: "VirtualMachineClusterInstancetype"},
	restore.NeedPreference:          {Group: "instancetype.kubevirt.io", Version: "v1beta1", Kind: "VirtualMachinePreference"},
	restore.NeedClusterPreference:   {Group: "instancetype.kubevirt.io", Version: "v1beta1", Kind: "VirtualMachineClusterPreference"},
}

// observeNeed looks whether an object exists, by its metadata alone.
func (r *RestoreReconciler) observeNeed(ctx context.Context, n restore.Need, present map[restore.Need]bool) error {
	kind, looked := needKinds[n.Kind]
	if !looked {
		return nil
	}
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(kind)
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: n.Namespace, Name: n.Name}, obj)
	switch {
	case err == nil:
		present[n] = true
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		present[n] = false
	case apierrors.IsForbidden(err):
		// not known
	default:
		return fmt.Errorf("look for %s %q: %w", n.Kind, n.Name, err)
	}
	return nil
}
