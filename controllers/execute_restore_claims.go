package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
)

// doRestoredClaims carries out what a restore does to claims, volumes and revisions.
func (e *executor) doRestoredClaims(ctx context.Context, owner client.Object, a action.Action) error {
	switch a := a.(type) {
	case action.CreateRevision:
		return e.createRevision(ctx, owner, a)
	case action.HandOver:
		return denied(e.handOver(ctx, owner, a))
	case action.LabelState:
		return denied(e.labelState(ctx, owner, a))
	case action.UnlabelState:
		return denied(e.labelState(ctx, owner, action.LabelState{Claim: a.Claim, UID: a.UID, ResourceVersion: a.ResourceVersion}))
	case action.DeleteMade:
		if a.Kind == action.KindRevision {
			return e.deleteMade(ctx, owner, &appsv1.ControllerRevision{}, a.Name, a.UID)
		}
		return e.deleteMade(ctx, owner, &corev1.PersistentVolumeClaim{}, a.Name, a.UID)
	case action.OrphanDataVolume:
		return e.orphanDataVolume(ctx, owner, a)
	case action.SetReclaimPolicy:
		return e.setReclaimPolicy(ctx, a)
	case action.DeleteReplaced:
		return e.deleteReplaced(ctx, owner, a)
	case action.ReserveVolume:
		return e.reserveVolume(ctx, owner, a)
	case action.KeepVolume:
		return e.keepVolume(ctx, owner, a)
	case action.MarkKept:
		return e.markKept(ctx, owner, a)
	}
	return fmt.Errorf("no action is called %T", a)
}

func (e *executor) createRevision(ctx context.Context, owner client.Object, a action.CreateRevision) error {
	o, err := e.ownerOf(owner)
	if err != nil {
		return err
	}
	own := a.Revision.DeepCopy()
	meta := o.Meta(own.Name, "")
	own.OwnerReferences = meta.OwnerReferences
	own.Labels = merged(own.Labels, meta.Labels)
	ctrl.LoggerFrom(ctx).Info("Creating ControllerRevision", "ControllerRevision", klog.KObj(own))
	return wrap(e.create(ctx, owner, own), "create ControllerRevision %q", own.Name)
}

// handOver replaces the restore's control by that of the new owner, and makes the claim
// the machine's state, in one write.
func (e *executor) handOver(ctx context.Context, owner client.Object, a action.HandOver) error {
	var obj client.Object = &corev1.PersistentVolumeClaim{}
	if a.Kind == action.KindRevision {
		obj = &appsv1.ControllerRevision{}
	}
	if err := e.live.Get(ctx, types.NamespacedName{Namespace: owner.GetNamespace(), Name: a.Name}, obj); err != nil {
		return fmt.Errorf("get %s %q: %w", a.Kind, a.Name, err)
	}
	if obj.GetUID() != a.UID {
		return fmt.Errorf("%s %q is another one by now", a.Kind, a.Name)
	}
	if err := asSeen(obj, a.ResourceVersion); err != nil {
		return err
	}
	before, _ := obj.DeepCopyObject().(client.Object)
	var refs []metav1.OwnerReference
	for _, ref := range obj.GetOwnerReferences() {
		if ref.UID != owner.GetUID() && (a.Owner == nil || ref.UID != a.Owner.UID) {
			refs = append(refs, ref)
		}
	}
	if a.Owner != nil {
		refs = append(refs, *a.Owner)
	}
	obj.SetOwnerReferences(refs)
	if a.StateOf != "" {
		obj.SetLabels(merged(obj.GetLabels(), map[string]string{v1alpha1.LabelPersistentState: a.StateOf}))
	}
	ctrl.LoggerFrom(ctx).Info("Handing over", "kind", a.Kind, "object", klog.KObj(obj), "stateOf", a.StateOf)
	return e.patchLocked(ctx, before, obj)
}

// asSeen is a conflict if somebody has written an object since it was planned for: what they
// changed may be what the plan rests on.
func asSeen(obj client.Object, resourceVersion string) error {
	if obj.GetResourceVersion() == resourceVersion {
		return nil
	}
	return apierrors.NewConflict(schema.GroupResource{Resource: fmt.Sprintf("%T", obj)}, obj.GetName(),
		errors.New("it was changed since it was looked at"))
}

// sameClaim reads a claim of the owner's namespace; nil if it is gone, or another one has its name.
func (e *executor) sameClaim(ctx context.Context, owner client.Object, name string, uid types.UID) (*corev1.PersistentVolumeClaim, error) {
	claim, err := e.claim(ctx, owner.GetNamespace(), name)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get claim %q: %w", name, err)
	case claim.UID != uid:
		return nil, nil
	default:
		return claim, nil
	}
}

// labelState puts the label of firmware state on a claim, or takes it off if a names no VM.
func (e *executor) labelState(ctx context.Context, owner client.Object, a action.LabelState) error {
	claim, err := e.sameClaim(ctx, owner, a.Claim, a.UID)
	if claim == nil {
		return err
	}
	if err := asSeen(claim, a.ResourceVersion); err != nil {
		return err
	}
	before := claim.DeepCopy()
	if a.VM == "" {
		delete(claim.Labels, v1alpha1.LabelPersistentState)
	} else {
		claim.Labels = merged(claim.Labels, map[string]string{v1alpha1.LabelPersistentState: a.VM})
	}
	ctrl.LoggerFrom(ctx).Info("Labelling firmware state", "PersistentVolumeClaim", klog.KObj(claim), "stateOf", a.VM)
	return e.patchLocked(ctx, before, claim)
}

var dataVolumes = schema.GroupVersionKind{Group: "cdi.kubevirt.io", Version: "v1beta1", Kind: "DataVolume"}

// orphanDataVolume removes the DataVolume first: its controller would make the claim again.
func (e *executor) orphanDataVolume(ctx context.Context, owner client.Object, a action.OrphanDataVolume) error {
	claim, err := e.sameClaim(ctx, owner, a.Claim, a.ClaimUID)
	if claim == nil {
		return err
	}
	dv := &unstructured.Unstructured{}
	dv.SetGroupVersionKind(dataVolumes)
	dv.SetNamespace(owner.GetNamespace())
	dv.SetName(a.Name)
	ctrl.LoggerFrom(ctx).Info("Deleting DataVolume of a replaced claim", "DataVolume", klog.KObj(dv))
	err = e.client.Delete(ctx, dv, client.Preconditions{UID: &a.UID}, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	if err == nil {
		return nil // the garbage collector takes the owner off the claim
	}
	// Another one of that name is not the claim's owner, and no reason to keep it.
	if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !meta.IsNoMatchError(err) {
		return fmt.Errorf("delete DataVolume %q: %w", a.Name, err)
	}
	before := claim.DeepCopy()
	claim.OwnerReferences = slices.DeleteFunc(claim.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == a.UID })
	return e.patchLocked(ctx, before, claim)
}

func (e *executor) volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	pv := &corev1.PersistentVolume{}
	if err := e.live.Get(ctx, types.NamespacedName{Name: name}, pv); err != nil {
		return nil, fmt.Errorf("get PersistentVolume %q: %w", name, err)
	}
	return pv, nil
}

func (e *executor) setReclaimPolicy(ctx context.Context, a action.SetReclaimPolicy) error {
	pv, err := e.volume(ctx, a.Volume)
	if err != nil {
		return err
	}
	if pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != a.ClaimUID {
		return fmt.Errorf("PersistentVolume %q belongs to another claim by now", a.Volume)
	}
	before := pv.DeepCopy()
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimPolicy(a.Policy)
	ctrl.LoggerFrom(ctx).Info("Setting reclaim policy", "PersistentVolume", klog.KObj(pv), "policy", a.Policy)
	return e.patchLocked(ctx, before, pv)
}

// deleteReplaced makes sure, at the last moment and from the volume itself, that deleting
// the claim deletes no data.
func (e *executor) deleteReplaced(ctx context.Context, owner client.Object, a action.DeleteReplaced) error {
	claim, err := e.sameClaim(ctx, owner, a.Claim, a.UID)
	if claim == nil {
		return err
	}
	// One that had no volume when the restore began holds nothing that was the machine's.
	if a.Volume != "" && claim.Spec.VolumeName != a.Volume {
		return fmt.Errorf("claim %q has the volume %q, was recorded with %q", a.Claim, claim.Spec.VolumeName, a.Volume)
	}
	if a.Volume != "" {
		pv, err := e.volume(ctx, a.Volume)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		if err == nil && pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
			return fmt.Errorf("PersistentVolume %q of the replaced claim %q would be deleted with it", a.Volume, a.Claim)
		}
	}
	ctrl.LoggerFrom(ctx).Info("Deleting replaced claim", "PersistentVolumeClaim", klog.KObj(claim))
	return wrap(unlessGone(e.client.Delete(ctx, claim, client.Preconditions{UID: &a.UID})), "delete replaced claim %q", a.Claim)
}

// reserveVolume names the claim that may have the volume. The volume's controller fills in
// that claim's UID when it binds them; until then nobody else gets it.
func (e *executor) reserveVolume(ctx context.Context, owner client.Object, a action.ReserveVolume) error {
	pv, err := e.volume(ctx, a.Volume)
	if err != nil {
		return err
	}
	if pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != a.ClaimUID {
		return nil
	}
	before := pv.DeepCopy()
	pv.Spec.ClaimRef = &corev1.ObjectReference{
		Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: owner.GetNamespace(), Name: a.For,
	}
	ctrl.LoggerFrom(ctx).Info("Reserving volume", "PersistentVolume", klog.KObj(pv), "claim", a.For)
	return e.patchLocked(ctx, before, pv)
}

// keepVolume meets its own claim after a crash by the label, as the claim outlives the restore.
func (e *executor) keepVolume(ctx context.Context, owner client.Object, a action.KeepVolume) error {
	claim := a.Claim.DeepCopy()
	ctrl.LoggerFrom(ctx).Info("Keeping replaced volume", "PersistentVolumeClaim", klog.KObj(claim))
	err := e.client.Create(ctx, claim)
	if !apierrors.IsAlreadyExists(err) {
		return wrap(err, "create claim %q", claim.Name)
	}
	found, err := e.claim(ctx, owner.GetNamespace(), claim.Name)
	if err != nil {
		return fmt.Errorf("get claim %q: %w", claim.Name, err)
	}
	if found.Labels[v1alpha1.LabelOwnerUID] != string(owner.GetUID()) {
		return fmt.Errorf("claim %q exists and was not made by %q", claim.Name, owner.GetName())
	}
	return nil
}

// markKept writes on a kept claim what it must be known by when its restore is gone.
func (e *executor) markKept(ctx context.Context, owner client.Object, a action.MarkKept) error {
	claim, err := e.sameClaim(ctx, owner, a.Claim, a.UID)
	if claim == nil {
		return err
	}
	before := claim.DeepCopy()
	claim.Annotations = merged(claim.Annotations, map[string]string{
		v1alpha1.AnnotationKeptUID: string(a.UID), v1alpha1.AnnotationKeptUntil: a.Until.UTC().Format(time.RFC3339),
	})
	ctrl.LoggerFrom(ctx).Info("Noting how long a replaced volume is kept", "PersistentVolumeClaim", klog.KObj(claim), "until", a.Until)
	return client.IgnoreNotFound(e.patchLocked(ctx, before, claim))
}
