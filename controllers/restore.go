package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
	"github.com/vmstate/vmstate/pkg/queue"
	"github.com/vmstate/vmstate/pkg/restore"
)

// RestoreReconciler brings backups back.
type RestoreReconciler struct {
	client.Client
	// Live reads past the cache: a switch is never planned from an old copy.
	Live client.Reader
	// Guests is not used by a restore; nil will do.
	Guests Guests
	Events events.EventRecorder
	// Image of vmstate, for its Jobs.
	Image string
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// +kubebuilder:rbac:groups=vmstate.io,resources=vmstaterestores,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=vmstate.io,resources=vmstaterestores/status,verbs=patch
// +kubebuilder:rbac:groups=vmstate.io,resources=vmstaterestores/finalizers,verbs=update
// +kubebuilder:rbac:groups=vmstate.io,resources=vmstatebackups;vmstatestores,verbs=get;list;watch
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachines,verbs=get;list;watch;create;update;patch;delete
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachines/status,verbs=patch
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachines/finalizers,verbs=update
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstances,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=kubevirt.io,resources=kubevirts,verbs=list
// +kubebuilder:rbac:groups=instancetype.kubevirt.io,resources=virtualmachineinstancetypes;virtualmachineclusterinstancetypes;virtualmachinepreferences;virtualmachineclusterpreferences,verbs=get
// +kubebuilder:rbac:groups=cdi.kubevirt.io,resources=datavolumes,verbs=delete
// +kubebuilder:rbac:groups=k8s.cni.cncf.io,resources=network-attachment-definitions,verbs=get
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;patch
// +kubebuilder:rbac:groups="",resources=namespaces;configmaps;serviceaccounts,verbs=get
// +kubebuilder:rbac:groups="",resources=resourcequotas;nodes,verbs=list
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=list

// Reconcile observes one restore, plans, acts and reports. Every decision is in
// restore.Plan; what is here only reads and writes.
func (r *RestoreReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	rs := &v1alpha1.VMStateRestore{}
	if err := r.Live.Get(ctx, req.NamespacedName, rs); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if rs.DeletionTimestamp != nil && len(rs.Finalizers) == 0 {
		return ctrl.Result{}, nil // the garbage collector takes what was made
	}
	seen, err := r.observe(ctx, rs)
	if err != nil {
		return ctrl.Result{}, errors.Join(fmt.Errorf("observe: %w", err), r.report(ctx, rs, restore.Unseen(rs, err), r.now()))
	}
	d := restore.Plan(seen)
	_, err = r.executor().run(ctx, rs, d.Actions)
	if err != nil {
		d = d.Interrupted(seen, err) // same state, err in its message, nothing recorded
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: time.Second}, nil // what was planned for has changed: look again
	}
	if errors.Is(err, action.ErrNoRoom) { // said, and waited for at an even pace
		return ctrl.Result{RequeueAfter: noRoomPause}, r.report(ctx, rs, d, seen.Now)
	}
	return ctrl.Result{RequeueAfter: d.RequeueAfter}, errors.Join(err, r.report(ctx, rs, d, seen.Now))
}

// noRoomPause is between two tries while a quota is used up: nothing that is watched tells of its end.
const noRoomPause = 10 * time.Second

func (r *RestoreReconciler) executor() *executor {
	return &executor{client: r.Client, live: r.Live, guests: r.Guests, image: r.Image, now: r.now}
}

func (r *RestoreReconciler) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

// report writes the status once, if the restore is still as it was read.
func (r *RestoreReconciler) report(ctx context.Context, rs *v1alpha1.VMStateRestore, d restore.Decision, now time.Time) error {
	before := rs.DeepCopy()
	keep := rs.Status.Conditions
	rs.Status = d.Status
	rs.Status.Conditions = keep
	rs.Status.ObservedGeneration = rs.Generation
	target := conditions.Target{List: &rs.Status.Conditions, Generation: rs.Generation, Now: metav1.NewTime(now)}
	conditions.Write(target, d.State, d.Reason, d.Message)
	exposed := restore.IdentityInCluster(rs)
	if exposed != "" {
		conditions.True(target, v1alpha1.ConditionIdentityInCluster, v1alpha1.ReasonIdentitySecret, exposed)
	}
	written, err := writeStatus(ctx, r.Client, before, rs)
	if err != nil || !written {
		return err
	}
	if exposed != "" && meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionIdentityInCluster) == nil {
		note(r.Events, rs, remark{corev1.EventTypeWarning, v1alpha1.ConditionIdentityInCluster, "Restore", exposed})
	}
	announce(r.Events, rs, "Restore", before.Status.Conditions, rs.Status.Conditions)
	return nil
}

// SetupWithManager watches restores, what they make, and what they wait for.
func (r *RestoreReconciler) SetupWithManager(mgr ctrl.Manager) error {
	toTarget := r.restoresWhere(func(rs *v1alpha1.VMStateRestore, name string) bool {
		return restore.TargetName(rs) == name
	})
	toSource := handler.EnqueueRequestsFromMapFunc(r.restoresWhere(func(rs *v1alpha1.VMStateRestore, name string) bool {
		return rs.Spec.Source.BackupRef != nil && rs.Spec.Source.BackupRef.Name == name
	}))
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.VMStateRestore{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Owns(&batchv1.Job{}).
		Owns(&v1alpha1.VMStateReport{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(r.ofClaim)).
		Watches(&v1alpha1.VMStateBackup{}, toSource).
		Watches(&v1alpha1.VMStateStore{}, storeWakes(r.ofStore))
	return watchMachines(mgr, b, map[client.Object]handler.MapFunc{
		&kubevirtv1.VirtualMachine{}: toTarget, &kubevirtv1.VirtualMachineInstance{}: toTarget,
	}).Complete(r)
}

// ofStore: a restore that names the store, or waits for a mover, of whichever store.
func (r *RestoreReconciler) ofStore(ctx context.Context, s *v1alpha1.VMStateStore, placed bool) []reconcile.Request {
	return r.restoresWhere(func(rs *v1alpha1.VMStateRestore, name string) bool {
		ref, queued := rs.Spec.Source.StoreRef, rs.Status.QueuedAt != nil
		waits := queued && queue.Waits(s, v1alpha1.MoverRestore, rs.UID)
		return (queued || ref != nil && ref.Name == name) && waits == placed
	})(ctx, s)
}

// ofClaim: a claim that a restore made carries its UID, whoever controls it by now.
func (r *RestoreReconciler) ofClaim(ctx context.Context, obj client.Object) []reconcile.Request {
	owner := obj.GetLabels()[v1alpha1.LabelOwnerUID]
	if owner == "" {
		return nil
	}
	return r.restoresWhere(func(rs *v1alpha1.VMStateRestore, _ string) bool { return string(rs.UID) == owner })(ctx, obj)
}

// restoresWhere finds the restores in an object's namespace that are not done and have to
// do with its name.
func (r *RestoreReconciler) restoresWhere(concerns func(*v1alpha1.VMStateRestore, string) bool) handler.MapFunc {
	return func(ctx context.Context, obj client.Object) []reconcile.Request {
		list := &v1alpha1.VMStateRestoreList{}
		if err := r.List(ctx, list, client.InNamespace(obj.GetNamespace())); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "Listing restores to wake")
			return nil
		}
		var out []reconcile.Request
		for i := range list.Items {
			if rs := &list.Items[i]; rs.Status.CompletedAt == nil && concerns(rs, obj.GetName()) {
				out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(rs)})
			}
		}
		return out
	}
}
