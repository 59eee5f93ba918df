package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/backup"
	"github.com/vmstate/vmstate/pkg/metrics"
	"github.com/vmstate/vmstate/pkg/snapshotset"
)

// BackupReconciler takes moments.
type BackupReconciler struct {
	client.Client
	// Live reads past the cache.
	Live   client.Reader
	Guests Guests
	Events events.EventRecorder
	// Metrics may be nil.
	Metrics *metrics.Metrics
	// Image of vmstate, for its Jobs.
	Image string
	// Process names this process among all managers that ever were.
	Process string
	// Knowledge of CSI drivers.
	Knowledge snapshotset.Knowledge
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// +kubebuilder:rbac:groups=vmstate.io,resources=vmstatebackups,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=vmstate.io,resources=vmstatebackups/status,verbs=patch
// +kubebuilder:rbac:groups=vmstate.io,resources=vmstatebackups/finalizers,verbs=update
// +kubebuilder:rbac:groups=vmstate.io,resources=vmstatestores,verbs=get;list;watch
// +kubebuilder:rbac:groups=vmstate.io,resources=vmstatereports,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=batch,resources=jobs,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get;list;create;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;create;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;create;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=vmstate-maintenance;vmstate-mover;vmstate-setup;vmstate-witness,verbs=bind
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachines/status,verbs=patch
// +kubebuilder:rbac:groups=subresources.kubevirt.io,resources=virtualmachineinstances/freeze;virtualmachineinstances/unfreeze;virtualmachineinstances/pause;virtualmachineinstances/unpause,verbs=update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile observes one backup, plans, acts and reports. Every decision is in
// backup.Plan; what is here only reads and writes.
func (r *BackupReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	b := &v1alpha1.VMStateBackup{}
	if err := r.Live.Get(ctx, req.NamespacedName, b); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	work, done := r.inTime(ctx, b)
	defer done()
	seen, err := r.observe(work, b)
	if err != nil {
		return r.blind(ctx, b, err)
	}
	seen.Backup = b.DeepCopy() // actions write to b
	d := backup.Plan(seen)
	answers, err := r.executor().run(work, b, d.Actions)
	if err != nil {
		d = d.Interrupted(seen, answers, err) // same state, err as its message
	} else {
		d = d.Settle(answers)
	}
	if d.Farewell != "" && err == nil {
		reason := "StaysInStore"
		if d.NotInStore {
			reason = "NotInStore"
		}
		note(r.Events, b, remark{corev1.EventTypeWarning, reason, "Delete", d.Farewell})
	}
	if d.LeftBehind != "" && err == nil {
		note(r.Events, b, remark{corev1.EventTypeWarning, "LeftBehind", "CleanUp", d.LeftBehind})
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: time.Second}, r.report(ctx, b, d, false)
	}
	if err != nil && backup.Held(b) {
		ctrl.LoggerFrom(ctx).Error(err, "Acting for a backup whose guest may be frozen")
		after := time.Second
		if work.Err() != nil {
			after = time.Millisecond // the deadline is now
		}
		return ctrl.Result{RequeueAfter: after}, r.report(ctx, b, d, true)
	}
	return ctrl.Result{RequeueAfter: d.RequeueAfter}, errors.Join(err, r.report(ctx, b, d, true))
}

// inTime ends a pass at the next deadline of a guest that is held: a request that hangs must not hold up its
// release, which is asked for all the same.
func (r *BackupReconciler) inTime(ctx context.Context, b *v1alpha1.VMStateBackup) (context.Context, context.CancelFunc) {
	if until := backup.Deadline(b, r.now()); until > 0 {
		return context.WithTimeout(ctx, until)
	}
	return ctx, func() {}
}

// blind is a pass that could not look: a guest is thawed all the same when that is due.
func (r *BackupReconciler) blind(ctx context.Context, b *v1alpha1.VMStateBackup, cause error) (ctrl.Result, error) {
	cause = fmt.Errorf("observe: %w", cause)
	if !backup.Held(b) {
		return ctrl.Result{}, cause
	}
	ctrl.LoggerFrom(ctx).Error(cause, "Looking for a backup whose guest may be frozen")
	d := backup.Blind(backup.Observed{Now: r.now(), Process: r.Process, Backup: b})
	answers, err := r.executor().run(ctx, b, d.Actions)
	after := min(max(d.RequeueAfter, time.Second), blindPause)
	if errors.Is(cause, context.DeadlineExceeded) && len(answers) == 0 {
		after = time.Millisecond // the deadline is now
	}
	return ctrl.Result{RequeueAfter: after}, errors.Join(err, r.report(ctx, b, d.Settle(answers), false))
}

// blindPause is between two passes of a backup that cannot be looked at.
const blindPause = 5 * time.Second

func (r *BackupReconciler) executor() *executor {
	return &executor{client: r.Client, live: r.Live, guests: r.Guests, image: r.Image, now: r.now}
}

func (r *BackupReconciler) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}
