package controllers

import (
	"context"
	"errors"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
)

// doBackup carries out the actions of a backup; false if it is not one of them.
func (e *executor) doBackup(ctx context.Context, owner client.Object, a action.Action) (bool, error) {
	switch a := a.(type) {
	case action.CreateSnapshot:
		return true, e.createSnapshot(ctx, owner, a)
	case action.CreateGroupSnapshot:
		return true, e.createGroupSnapshot(ctx, owner, a)
	case action.LabelClaim:
		return true, e.labelClaim(ctx, owner, a)
	case action.UnlabelClaim:
		return true, e.unlabelClaim(ctx, owner, a)
	case action.LockVM:
		return true, e.mark(ctx, owner, snapshotMark, holding(a))
	case action.UnlockVM:
		return true, e.unmark(ctx, owner, snapshotMark, holding(a))
	default:
		return false, nil
	}
}

func (e *executor) createSnapshot(ctx context.Context, owner client.Object, a action.CreateSnapshot) error {
	o, err := e.ownerOf(owner)
	if err != nil {
		return err
	}
	obj := &snapshotv1.VolumeSnapshot{
		ObjectMeta: o.Meta(a.Name, ""),
		Spec: snapshotv1.VolumeSnapshotSpec{
			Source:                  snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &a.Claim},
			VolumeSnapshotClassName: &a.Class,
		},
	}
	ctrl.LoggerFrom(ctx).Info("Creating VolumeSnapshot", "VolumeSnapshot", klog.KObj(obj), "claim", a.Claim)
	if err := e.create(ctx, owner, obj); err != nil {
		return fmt.Errorf("create VolumeSnapshot of claim %q: %w", a.Claim, err)
	}
	return nil
}

// createGroupSnapshot selects by matchLabels: the snapshot controller ignores expressions
// (external-snapshotter 8.7, pkg/common-controller/groupsnapshot_controller_helper.go).
func (e *executor) createGroupSnapshot(ctx context.Context, owner client.Object, a action.CreateGroupSnapshot) error {
	o, err := e.ownerOf(owner)
	if err != nil {
		return err
	}
	kind, err := groupKind(e.client.RESTMapper(), "VolumeGroupSnapshot")
	if err != nil {
		return fmt.Errorf("find the group snapshot API: %w", err)
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	meta := o.Meta(a.Name, "")
	obj.SetName(meta.Name)
	obj.SetNamespace(meta.Namespace)
	obj.SetLabels(meta.Labels)
	obj.SetOwnerReferences(meta.OwnerReferences)
	obj.Object["spec"] = map[string]any{
		"volumeGroupSnapshotClassName": a.Class,
		"source": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{v1alpha1.LabelGroupMember: a.Member}},
		},
	}
	ctrl.LoggerFrom(ctx).Info("Creating VolumeGroupSnapshot", "VolumeGroupSnapshot", klog.KObj(obj))
	if err := e.create(ctx, owner, obj); err != nil {
		return fmt.Errorf("create VolumeGroupSnapshot: %w", err)
	}
	return nil
}

func (e *executor) labelClaim(ctx context.Context, owner client.Object, a action.LabelClaim) error {
	claim, err := e.claim(ctx, owner.GetNamespace(), a.Claim)
	if err != nil {
		return fmt.Errorf("get claim %q: %w", a.Claim, err)
	}
	if claim.UID != a.UID {
		return fmt.Errorf("claim %q is another one by now", a.Claim)
	}
	if claim.Labels[v1alpha1.LabelGroupMember] == a.Member {
		return nil
	}
	before := claim.DeepCopy()
	claim.Labels = merged(claim.Labels, map[string]string{v1alpha1.LabelGroupMember: a.Member})
	return e.patchLocked(ctx, before, claim)
}

func (e *executor) unlabelClaim(ctx context.Context, owner client.Object, a action.UnlabelClaim) error {
	claim, err := e.claim(ctx, owner.GetNamespace(), a.Claim)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get claim %q: %w", a.Claim, err)
	}
	if claim.UID != a.UID || claim.Labels[v1alpha1.LabelGroupMember] != a.Member {
		return nil
	}
	before := claim.DeepCopy()
	delete(claim.Labels, v1alpha1.LabelGroupMember)
	return client.IgnoreNotFound(e.patchLocked(ctx, before, claim))
}

func (e *executor) claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	err := e.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, claim)
	return claim, err
}

// patchLocked writes the difference if the object is still as it was read.
func (e *executor) patchLocked(ctx context.Context, before, after client.Object) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := e.client.Patch(ctx, after, patch); err != nil {
		return fmt.Errorf("patch %T %q: %w", after, after.GetName(), err)
	}
	return nil
}

var errAnotherVM = errors.New("another VM of that name")

func (e *executor) vm(ctx context.Context, namespace, name string, uid types.UID) (*kubevirtv1.VirtualMachine, error) {
	vm := &kubevirtv1.VirtualMachine{}
	if err := e.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, vm); err != nil {
		return nil, fmt.Errorf("get VM %q: %w", name, err)
	}
	if vm.UID != uid {
		return nil, fmt.Errorf("%w: %q", errAnotherVM, name)
	}
	return vm, nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
