package controllers

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/restore"
)

// observe reads what one restore needs, all of it live.
func (r *RestoreReconciler) observe(ctx context.Context, rs *v1alpha1.VMStateRestore) (restore.Observed, error) {
	in := restore.Observed{Now: r.now(), Restore: rs}
	steps := []func(context.Context, *restore.Observed) error{
		r.observeSource, r.observeJobs, r.observeTarget, r.observeClaims, r.observeNamespace,
	}
	for _, step := range steps {
		if err := step(ctx, &in); err != nil {
			return in, err
		}
	}
	if rs.Status.From == nil {
		return in, nil
	}
	machine, err := restore.MachineOf(rs.Status.From)
	if err != nil {
		in.Unreadable = err.Error() // nothing reads it again: what it means now is for the plan
		return in, nil
	}
	in.Machine = machine
	if restore.LooksAround(rs) {
		in.Cluster, err = r.observeCluster(ctx, rs, *machine)
	}
	return in, err
}

func (r *RestoreReconciler) observeSource(ctx context.Context, in *restore.Observed) error {
	source := in.Restore.Spec.Source
	store := source.StoreRef
	if source.BackupRef != nil {
		b := &v1alpha1.VMStateBackup{}
		found, err := r.get(ctx, in.Restore.Namespace, source.BackupRef.Name, b)
		if err != nil {
			return err
		}
		if found {
			in.Backup, store = b, b.Spec.StoreRef
		}
	}
	if store == nil {
		return r.observeDocuments(ctx, in)
	}
	s := &v1alpha1.VMStateStore{}
	found, err := r.get(ctx, in.Restore.Namespace, store.Name, s)
	if found {
		in.Store = s
	}
	return err
}

// get reads one object live; false if it does not exist.
func (r *RestoreReconciler) get(ctx context.Context, namespace, name string, obj client.Object) (bool, error) {
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, obj)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get %T %q: %w", obj, name, err)
	}
	return true, nil
}

func (r *RestoreReconciler) observeTarget(ctx context.Context, in *restore.Observed) error {
	name := restore.TargetName(in.Restore)
	if name == "" {
		return nil
	}
	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(kubevirtv1.VirtualMachineGroupVersionKind)
	found, err := r.get(ctx, in.Restore.Namespace, name, raw)
	if err != nil {
		return err
	}
	if found {
		vm := &kubevirtv1.VirtualMachine{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(raw.Object, vm); err != nil {
			return fmt.Errorf("decode VM %q: %w", name, err)
		}
		spec, _, err := unstructured.NestedMap(raw.Object, "spec")
		if err != nil {
			return fmt.Errorf("decode spec of VM %q: %w", name, err)
		}
		in.Target = &restore.Target{VM: vm, Spec: spec}
	}
	vmi := &kubevirtv1.VirtualMachineInstance{}
	found, err = r.get(ctx, in.Restore.Namespace, name, vmi)
	if found {
		in.Instance = vmi
	}
	return err
}

func (r *RestoreReconciler) observeClaims(ctx context.Context, in *restore.Observed) error {
	claims := &corev1.PersistentVolumeClaimList{}
	if err := r.Live.List(ctx, claims, client.InNamespace(in.Restore.Namespace)); err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	in.Claims = make(map[string]*corev1.PersistentVolumeClaim, len(claims.Items))
	for i := range claims.Items {
		in.Claims[claims.Items[i].Name] = &claims.Items[i]
	}
	in.Volumes = map[string]*corev1.PersistentVolume{}
	for _, name := range restore.VolumesToRead(*in) {
		pv := &corev1.PersistentVolume{}
		found, err := r.get(ctx, "", name, pv)
		if err != nil {
			return err
		}
		if found {
			in.Volumes[name] = pv
		}
	}
	revisions := &appsv1.ControllerRevisionList{}
	mine := client.MatchingLabels{v1alpha1.LabelOwnerUID: string(in.Restore.UID)}
	if err := r.Live.List(ctx, revisions, client.InNamespace(in.Restore.Namespace), mine); err != nil {
		return fmt.Errorf("list ControllerRevisions: %w", err)
	}
	in.Revisions = make(map[string]*appsv1.ControllerRevision, len(revisions.Items))
	for i := range revisions.Items {
		in.Revisions[revisions.Items[i].Name] = &revisions.Items[i]
	}
	return nil
}

// observeNamespace looks whether the claims can still be made that replaced volumes are kept under.
func (r *RestoreReconciler) observeNamespace(ctx context.Context, in *restore.Observed) error {
	if s := in.Restore.Status; s.Switch == nil || s.Switch.CommittedAt == nil || s.CompletedAt != nil {
		return nil
	}
	namespace := &corev1.Namespace{}
	found, err := r.get(ctx, "", in.Restore.Namespace, namespace)
	in.NamespaceGoes = found && namespace.DeletionTimestamp != nil
	return err
}
