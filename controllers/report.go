package controllers

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/backup"
	"github.com/vmstate/vmstate/pkg/conditions"
)

// report writes the status of a backup once, if it is still as it was read, then tells what
// changed. speak says whether the decision's words are to be said: those of a pass that met a
// conflict are not.
func (r *BackupReconciler) report(ctx context.Context, b *v1alpha1.VMStateBackup, d backup.Decision, speak bool) error {
	before := b.DeepCopy()
	said := b.Status.Conditions
	b.Status = d.Status
	b.Status.Conditions = said
	if speak {
		b.Status.ObservedGeneration = b.Generation
		conditions.Write(conditions.Target{List: &b.Status.Conditions, Generation: b.Generation, Now: metav1.NewTime(r.now())},
			d.State, d.Reason, d.Message)
		if d.Waiting != "" && d.State != conditions.Stalled && d.State != conditions.Done {
			conditions.True(conditions.Target{List: &b.Status.Conditions, Generation: b.Generation, Now: metav1.NewTime(r.now())},
				v1alpha1.ConditionReconciling, v1alpha1.ReasonCleaningUp, d.Waiting)
		}
	}
	target := conditions.Target{List: &b.Status.Conditions, Generation: b.Generation, Now: metav1.NewTime(r.now())}
	for _, f := range d.Findings {
		conditions.Set(target, f.Condition, f.Status, f.Reason, f.Message)
	}
	written, err := writeStatus(ctx, r.Client, before, b)
	if err != nil || !written {
		return err
	}
	if warning := backup.Unconfirmed(b); warning != "" && backup.Unconfirmed(before) == "" {
		note(r.Events, b, remark{corev1.EventTypeWarning, "ReleaseNotConfirmed", "Thaw", warning})
	}
	for _, warning := range d.Warnings {
		note(r.Events, b, remark{corev1.EventTypeWarning, "NotPersistent", "Plan", warning})
	}
	for _, f := range d.Findings {
		if f.Reason != v1alpha1.ReasonDriverChecked && !meta.IsStatusConditionPresentAndEqual(before.Status.Conditions, f.Condition, f.Status) {
			note(r.Events, b, remark{corev1.EventTypeWarning, f.Reason, "Audit", f.Message})
		}
	}
	announce(r.Events, b, "Backup", before.Status.Conditions, b.Status.Conditions)
	r.Metrics.Backup(before, b)
	return nil
}

// writeStatus patches the status of an object that is still as it was read; false if it is not,
// or if nothing changed.
func writeStatus(ctx context.Context, c client.Client, before, after client.Object) (bool, error) {
	if equality.Semantic.DeepEqual(before, after) {
		return false, nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	err := c.Status().Patch(ctx, after, patch)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil // we acted on an old copy; the newer one is on its way here
	}
	if err != nil {
		return false, fmt.Errorf("patch status: %w", err)
	}
	return true, nil
}

// announce tells a transition of Ready as an Event.
func announce(recorder events.EventRecorder, obj runtime.Object, verb string, before, after []metav1.Condition) {
	was := meta.FindStatusCondition(before, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(after, v1alpha1.ConditionReady)
	if is == nil || was != nil && was.Reason == is.Reason && was.Status == is.Status {
		return
	}
	kind := corev1.EventTypeNormal
	if meta.IsStatusConditionTrue(after, v1alpha1.ConditionStalled) {
		kind = corev1.EventTypeWarning
	}
	note(recorder, obj, remark{kind, is.Reason, verb, is.Message})
}

// remark is what an Event says.
type remark struct{ kind, reason, verb, text string }

// note records an Event, whose text the API limits to 1024 bytes.
func note(recorder events.EventRecorder, obj runtime.Object, r remark) {
	if len(r.text) > 1000 {
		r.text = strings.ToValidUTF8(r.text[:1000], "") + "…"
	}
	recorder.Eventf(obj, nil, r.kind, r.reason, r.verb, "%s", r.text)
}
