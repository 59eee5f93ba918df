package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/restore"
)

// KeptReconciler removes the claims that keep replaced volumes when their time is over, also
// where the restore that made them is gone. It goes by what is noted on a claim alone, see
// restore.Expiry.
type KeptReconciler struct {
	client.Client
	// Live reads past the cache: what is removed is looked at as it is.
	Live   client.Reader
	Events events.EventRecorder
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// usedPause is when a claim is looked at again whose time is over and that somebody uses.
const usedPause = 10 * time.Minute

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachines;virtualmachineinstances,verbs=list

// Reconcile removes one claim, if it is one of ours, its time is over and nobody uses it.
func (r *KeptReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := r.Live.Get(ctx, req.NamespacedName, claim); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	until, expires := restore.Expiry(claim)
	if !expires {
		return ctrl.Result{}, nil
	}
	if left := until.Sub(r.now()); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	user, err := r.user(ctx, claim)
	if err != nil {
		return ctrl.Result{}, err
	}
	if user != "" {
		note(r.Events, claim, remark{corev1.EventTypeWarning, "KeptVolumeInUse", "Remove",
			fmt.Sprintf("the time of this kept volume is over, and %s uses it: it stays; take the annotation %s off to keep it", user, v1alpha1.AnnotationKeptUntil)})
		return ctrl.Result{RequeueAfter: usedPause}, nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting claim of a replaced volume: its time is over", "PersistentVolumeClaim", klog.KObj(claim), "until", until)
	is := client.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion}
	return ctrl.Result{}, wrap(client.IgnoreNotFound(r.Delete(ctx, claim, is)), "delete claim %q", claim.Name)
}

// user is who has put a claim to use.
func (r *KeptReconciler) user(ctx context.Context, claim *corev1.PersistentVolumeClaim) (string, error) {
	machines, instances, pods := &kubevirtv1.VirtualMachineList{}, &kubevirtv1.VirtualMachineInstanceList{}, &corev1.PodList{}
	for _, list := range []client.ObjectList{machines, instances, pods} {
		if err := r.Live.List(ctx, list, client.InNamespace(claim.Namespace)); err != nil {
			return "", fmt.Errorf("list %T: %w", list, err)
		}
	}
	return restore.Around{Machines: machines.Items, Instances: instances.Items, Pods: pods.Items}.User(claim.Name), nil
}

func (r *KeptReconciler) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

// SetupWithManager watches the claims that say until when they are kept.
func (r *KeptReconciler) SetupWithManager(mgr ctrl.Manager) error {
	noted := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		return obj.GetAnnotations()[v1alpha1.AnnotationKeptUntil] != ""
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("kept-volume").
		For(&corev1.PersistentVolumeClaim{}, builder.WithPredicates(noted)).
		Complete(r)
}
