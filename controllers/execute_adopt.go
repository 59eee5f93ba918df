package controllers

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/backup"
)

// doStore carries out the actions of a store; false if it is not one of them.
func (e *executor) doStore(ctx context.Context, owner client.Object, a action.Action) (bool, error) {
	switch a := a.(type) {
	case action.AdoptBackup:
		return true, e.adoptBackup(ctx, owner, a)
	case action.FillBackup:
		return true, e.fillBackup(ctx, owner, a)
	case action.MarkBackup:
		return true, e.markBackup(ctx, owner, a)
	case action.ReleaseBackup:
		return true, e.releaseBackup(ctx, owner, a)
	default:
		return false, nil
	}
}

func (e *executor) adoptBackup(ctx context.Context, owner client.Object, a action.AdoptBackup) error {
	commit := a.Entry.Commit
	b := &v1alpha1.VMStateBackup{
		ObjectMeta: metav1.ObjectMeta{
			Name: a.Name, Namespace: owner.GetNamespace(),
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
		},
		Spec: v1alpha1.VMStateBackupSpec{
			VMName: a.Entry.VMName, StoreRef: &v1alpha1.ObjectRef{Name: owner.GetName()}, Commit: &commit,
			DeletionPolicy: v1alpha1.DeletionRetain,
		},
	}
	ctrl.LoggerFrom(ctx).Info("Adopting backup", "VMStateBackup", klog.KObj(b), "commit", commit.Key)
	err := e.client.Create(ctx, b)
	if apierrors.IsAlreadyExists(err) {
		err = e.live.Get(ctx, client.ObjectKeyFromObject(b), b)
	}
	if err != nil {
		return fmt.Errorf("adopt backup %q: %w", a.Name, err)
	}
	if b.Spec.Commit == nil || *b.Spec.Commit != commit || b.Spec.StoreRef == nil || b.Spec.StoreRef.Name != owner.GetName() {
		return fmt.Errorf("adopt backup %q: another backup has that name", a.Name)
	}
	return e.fill(ctx, b, action.FillBackup{Name: a.Name, UID: b.UID, Entry: &a.Entry})
}

func (e *executor) fillBackup(ctx context.Context, owner client.Object, a action.FillBackup) error {
	b, err := e.backup(ctx, owner.GetNamespace(), a.Name, a.UID)
	if err != nil || b == nil {
		return err
	}
	return e.fill(ctx, b, a)
}

func (e *executor) fill(ctx context.Context, b *v1alpha1.VMStateBackup, a action.FillBackup) error {
	if b.Status.CompletedAt != nil {
		return nil
	}
	before := b.DeepCopy()
	if now := metav1.NewTime(e.now()); a.Failure != nil {
		backup.Refuse(b, *a.Failure, now)
	} else {
		backup.Adopt(b, a.Entry, now)
	}
	if _, err := writeStatus(ctx, e.client, before, b); err != nil {
		return fmt.Errorf("fill backup %q: %w", a.Name, err)
	}
	return nil
}

func (e *executor) markBackup(ctx context.Context, owner client.Object, a action.MarkBackup) error {
	b, err := e.backup(ctx, owner.GetNamespace(), a.Name, a.UID)
	if err != nil || b == nil {
		return err
	}
	before := b.DeepCopy()
	condition := a.Condition
	condition.LastTransitionTime = metav1.NewTime(e.now())
	meta.SetStatusCondition(&b.Status.Conditions, condition)
	if a.VerifiedAt != nil {
		b.Status.VerifiedAt = a.VerifiedAt
	}
	if _, err := writeStatus(ctx, e.client, before, b); err != nil {
		return fmt.Errorf("mark backup %q: %w", a.Name, err)
	}
	return nil
}

// releaseBackup lets go of a backup that is gone from its store.
func (e *executor) releaseBackup(ctx context.Context, owner client.Object, a action.ReleaseBackup) error {
	b, err := e.backup(ctx, owner.GetNamespace(), a.Name, a.UID)
	if err != nil || b == nil || b.DeletionTimestamp == nil {
		return err
	}
	return e.patchFinalizer(ctx, b, func() bool { return controllerutil.RemoveFinalizer(b, v1alpha1.FinalizerStored) })
}

// backup reads the backup that a plan means; nil if it is gone, or another one by now.
func (e *executor) backup(ctx context.Context, namespace, name string, uid types.UID) (*v1alpha1.VMStateBackup, error) {
	b := &v1alpha1.VMStateBackup{}
	err := e.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, b)
	if apierrors.IsNotFound(err) || err == nil && b.UID != uid {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get backup %q: %w", name, err)
	}
	return b, nil
}
