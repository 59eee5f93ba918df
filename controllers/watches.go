package controllers

import (
	"context"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/backup"
	"github.com/vmstate/vmstate/pkg/job"
)

// parallel is how many backups are looked at at once: a cut must not wait for another's requests.
const parallel = 8

// SetupWithManager watches backups, what they make, and what they wait for. The contents of
// snapshots are watched because they carry the handle first: the snapshot itself says so later.
func (r *BackupReconciler) SetupWithManager(mgr ctrl.Manager) error {
	b := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.VMStateBackup{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel, RateLimiter: backOff()}).
		Owns(&batchv1.Job{}).
		Owns(&v1alpha1.VMStateReport{}).
		Watches(&snapshotv1.VolumeSnapshot{}, handler.EnqueueRequestsFromMapFunc(r.ofSnapshot)).
		Watches(&snapshotv1.VolumeSnapshotContent{}, handler.EnqueueRequestsFromMapFunc(r.ofContent)).
		Watches(&v1alpha1.VMStateBackup{}, handler.EnqueueRequestsFromMapFunc(r.ofLater)).
		Watches(&v1alpha1.VMStateStore{}, storeWakes(r.ofStore))
	b = watchMachines(mgr, b, map[client.Object]handler.MapFunc{
		&kubevirtv1.VirtualMachineInstance{}: r.ofInstance, &kubevirtv1.VirtualMachineInstanceMigration{}: r.ofMigration,
	})
	return r.watchGroups(mgr, b).Complete(r)
}

// backOff after an error is never long: a guest may be waiting.
func backOff() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, 10*time.Second)
}

// watchMachines watches kinds of KubeVirt, where the cluster has it. Without it what was begun is ended all the
// same; where it comes later, what waits for a machine looks again by itself until the manager is restarted.
func watchMachines(mgr ctrl.Manager, b *builder.Builder, kinds map[client.Object]handler.MapFunc) *builder.Builder {
	for obj, wakes := range kinds {
		gvk, err := apiutil.GVKForObject(obj, mgr.GetScheme())
		if err == nil {
			_, err = mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		}
		if meta.IsNoMatchError(err) {
			mgr.GetLogger().Info("Not watching virtual machines", "kind", gvk.Kind, "reason", err.Error())
			continue
		}
		b = b.Watches(obj, handler.EnqueueRequestsFromMapFunc(wakes)) // any other error it meets itself
	}
	return b
}

// watchGroups watches group snapshots where the cluster has them. Where they come later, a
// backup looks again every few seconds until the manager is restarted.
func (r *BackupReconciler) watchGroups(mgr ctrl.Manager, b *builder.Builder) *builder.Builder {
	for kind, wakes := range map[string]handler.MapFunc{"VolumeGroupSnapshot": r.ofGroup, "VolumeGroupSnapshotContent": r.ofGroupContent} {
		gvk, err := groupKind(mgr.GetRESTMapper(), kind)
		if err != nil {
			mgr.GetLogger().Info("Not watching group snapshots", "kind", kind, "reason", err.Error())
			continue
		}
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(gvk)
		b = b.Watches(obj, handler.EnqueueRequestsFromMapFunc(wakes))
	}
	return b
}

// ofSnapshot: a snapshot of ours, or a member of a group of ours.
func (r *BackupReconciler) ofSnapshot(ctx context.Context, obj client.Object) []reconcile.Request {
	names := []string{obj.GetName()}
	for _, ref := range obj.GetOwnerReferences() {
		names = append(names, ref.Name)
	}
	return r.byChild(ctx, obj.GetNamespace(), names...)
}

func (r *BackupReconciler) ofContent(ctx context.Context, obj client.Object) []reconcile.Request {
	c, ok := obj.(*snapshotv1.VolumeSnapshotContent)
	if !ok {
		return nil
	}
	ref := c.Spec.VolumeSnapshotRef
	if out := r.byChild(ctx, ref.Namespace, ref.Name); out != nil {
		return out
	}
	member := &snapshotv1.VolumeSnapshot{}
	if err := r.Get(ctx, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, member); err != nil {
		return nil // not there yet: its own event follows
	}
	return r.ofSnapshot(ctx, member)
}

func (r *BackupReconciler) ofGroup(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.byChild(ctx, obj.GetNamespace(), obj.GetName())
}

func (r *BackupReconciler) ofGroupContent(ctx context.Context, obj client.Object) []reconcile.Request {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	namespace, _, _ := unstructured.NestedString(u.Object, "spec", "volumeGroupSnapshotRef", "namespace") // absent: none of ours
	name, _, _ := unstructured.NestedString(u.Object, "spec", "volumeGroupSnapshotRef", "name")
	return r.byChild(ctx, namespace, name)
}

// byChild finds the backup that one of the names was made for: the names of children hold the
// UID of their owner.
func (r *BackupReconciler) byChild(ctx context.Context, namespace string, names ...string) []reconcile.Request {
	return r.where(ctx, namespace, func(b *v1alpha1.VMStateBackup) bool {
		for _, name := range names {
			if strings.HasPrefix(name, job.Name(b.UID, "")) {
				return true
			}
		}
		return false
	})
}

func (r *BackupReconciler) ofInstance(ctx context.Context, obj client.Object) []reconcile.Request {
	return r.where(ctx, obj.GetNamespace(), func(b *v1alpha1.VMStateBackup) bool {
		return b.Spec.VMName == obj.GetName() && (backup.StageOf(b) == backup.StageBeginning || backup.Held(b))
	})
}

// ofMigration: a backup that waits for a migration goes on when it has ended, or is gone.
func (r *BackupReconciler) ofMigration(ctx context.Context, obj client.Object) []reconcile.Request {
	m, ok := obj.(*kubevirtv1.VirtualMachineInstanceMigration)
	if !ok {
		return nil
	}
	return r.where(ctx, m.Namespace, func(b *v1alpha1.VMStateBackup) bool {
		return b.Spec.VMName == m.Spec.VMIName && backup.StageOf(b) == backup.StageBeginning
	})
}

// ofStore: what a store says concerns the backups that wait for it, and what it remembers of CSI drivers any.
func (r *BackupReconciler) ofStore(ctx context.Context, s *v1alpha1.VMStateStore, placed bool) []reconcile.Request {
	return r.where(ctx, s.Namespace, func(b *v1alpha1.VMStateBackup) bool {
		of := backup.Doubted(s, b) || b.Spec.StoreRef != nil && b.Spec.StoreRef.Name == s.Name && b.Status.CompletedAt == nil
		return of && backup.Queued(b, s) == placed
	})
}

// placePause is how long those who wait for a mover are told of new places together: each is a write.
const placePause = 3 * time.Second

// storeWakes wakes at once whom the change of a store lets go on, and after a while, once, those who only have another place
// among those who wait. of finds either kind.
func storeWakes(of func(ctx context.Context, s *v1alpha1.VMStateStore, placed bool) []reconcile.Request) handler.EventHandler {
	wake := func(ctx context.Context, obj client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		s, ok := obj.(*v1alpha1.VMStateStore)
		if !ok {
			return
		}
		for _, request := range of(ctx, s, false) {
			q.Add(request)
		}
		for _, request := range of(ctx, s, true) {
			q.AddAfter(request, placePause)
		}
	}
	type queueOf = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queueOf) { wake(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queueOf) { wake(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queueOf) {
			if s, ok := e.Object.(*v1alpha1.VMStateStore); ok {
				gone := s.DeepCopy()
				gone.Spec.Limits = nil // nobody waits for what is gone
				wake(ctx, gone, q)
			}
		},
	}
}

// ofLater: a backup that is stored ends what an earlier one of its chain keeps for it, and what its audit found
// concerns those before it.
func (r *BackupReconciler) ofLater(ctx context.Context, obj client.Object) []reconcile.Request {
	later, ok := obj.(*v1alpha1.VMStateBackup)
	if !ok || later.Status.CompletedAt == nil {
		return nil
	}
	return r.where(ctx, obj.GetNamespace(), func(b *v1alpha1.VMStateBackup) bool { return backup.Concerns(later, b) })
}

// where only reads what it lists, and every event of a backup comes here: copies of all of them would
// cost the square of their number when a manager starts.
func (r *BackupReconciler) where(ctx context.Context, namespace string, concerned func(*v1alpha1.VMStateBackup) bool) []reconcile.Request {
	list := &v1alpha1.VMStateBackupList{}
	if err := r.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing backups to wake")
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if b := &list.Items[i]; concerned(b) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		}
	}
	return out
}
