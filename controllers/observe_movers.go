package controllers

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/backup"
	"github.com/vmstate/vmstate/pkg/queue"
	"github.com/vmstate/vmstate/pkg/store"
)

// observeMovers finds who waits for a mover of the store, then the movers, in this order and past the cache: package queue
// says why. The backups have been listed, after the store was read.
func (r *StoreReconciler) observeMovers(ctx context.Context, s *v1alpha1.VMStateStore, restores []v1alpha1.VMStateRestore, in *store.Observed) error {
	if !queue.Limited(s) {
		return nil
	}
	for i := range in.Backups {
		b := &in.Backups[i]
		if b.Status.QueuedAt != nil && backup.StageOf(b) == backup.StageExporting {
			in.Queued = append(in.Queued, queue.Candidate{MoverTurn: turn(v1alpha1.MoverBackup, b, *b.Status.QueuedAt), Node: nodeOf(b)})
		}
	}
	for i := range restores {
		rs := &restores[i]
		going := rs.Status.QueuedAt != nil && rs.DeletionTimestamp == nil && rs.Status.CompletedAt == nil && rs.Status.Failure == nil
		if going && storeNameOf(rs, in.Backups) == s.Name {
			in.Queued = append(in.Queued, queue.Candidate{MoverTurn: turn(v1alpha1.MoverRestore, rs, *rs.Status.QueuedAt)})
		}
	}
	return r.listMovers(ctx, s, in)
}

func turn(kind v1alpha1.MoverKind, obj client.Object, since metav1.Time) v1alpha1.MoverTurn {
	return v1alpha1.MoverTurn{Kind: kind, Name: obj.GetName(), UID: obj.GetUID(), Since: since}
}

// nodeOf is where the clones of a backup's disks are on storage that one node reaches: where the disks are.
func nodeOf(b *v1alpha1.VMStateBackup) string {
	if b.Status.VM == nil {
		return ""
	}
	return b.Status.VM.NodeName
}

// storeNameOf is the store that a restore reads from; "" if its backup is not one of those.
func storeNameOf(rs *v1alpha1.VMStateRestore, backups []v1alpha1.VMStateBackup) string {
	source := rs.Spec.Source
	if source.StoreRef != nil {
		return source.StoreRef.Name
	}
	for i := range backups {
		if source.BackupRef != nil && backups[i].Name == source.BackupRef.Name && backups[i].Spec.StoreRef != nil {
			return backups[i].Spec.StoreRef.Name
		}
	}
	return ""
}

// moverKinds are the tasks that count.
var moverKinds = map[v1alpha1.ReportTask]v1alpha1.MoverKind{
	v1alpha1.TaskImport: v1alpha1.MoverRestore, v1alpha1.TaskExport: v1alpha1.MoverBackup,
	v1alpha1.TaskMaintain: v1alpha1.MoverMaintenance, v1alpha1.TaskVerify: v1alpha1.MoverVerification,
}

// listMovers finds the Jobs that have not ended, and those that are gone and have left a pod that has not.
func (r *StoreReconciler) listMovers(ctx context.Context, s *v1alpha1.VMStateStore, in *store.Observed) error {
	of := client.MatchingLabels{v1alpha1.LabelStore: s.Name}
	jobs, pods := &batchv1.JobList{}, &corev1.PodList{}
	for _, list := range []client.ObjectList{jobs, pods} {
		if err := r.Live.List(ctx, list, client.InNamespace(s.Namespace), of); err != nil {
			return fmt.Errorf("list movers: %w", err)
		}
	}
	nodes := map[string]string{} // of the pods that have not ended, by the name of their Job
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		name := p.Labels[batchv1.JobNameLabel]
		if nodes[name] == "" {
			nodes[name] = p.Spec.NodeName
		}
	}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		node, left := nodes[j.Name]
		delete(nodes, j.Name)
		if left || !jobEnded(j) {
			addMover(in, j, node)
		}
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		name := p.Labels[batchv1.JobNameLabel]
		if node, left := nodes[name]; left {
			delete(nodes, name)
			addMover(in, p, node)
		}
	}
	return nil
}

// addMover takes only what we make: a label can be copied.
func addMover(in *store.Observed, obj client.Object, node string) {
	if m := moverOf(obj); m.Kind != "" {
		in.Movers = append(in.Movers, queue.Mover{MoverTurn: m, Node: node})
	}
}

// moverOf reads a Job, or a pod of one that is gone.
func moverOf(obj client.Object) v1alpha1.MoverTurn {
	labels := obj.GetLabels()
	slot, _ := strconv.ParseInt(labels[v1alpha1.LabelNodeSlot], 10, 32) // without one it is in nobody's way
	out := v1alpha1.MoverTurn{
		Kind: moverKinds[v1alpha1.ReportTask(labels[v1alpha1.LabelTask])], Name: obj.GetName(),
		Since: obj.GetCreationTimestamp(), Slot: int32(slot),
	}
	if owner := metav1.GetControllerOf(obj); owner != nil {
		out.Name = owner.Name
	}
	out.UID = types.UID(labels[v1alpha1.LabelOwnerUID])
	return out
}

func jobEnded(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// ofMover: the store that a Job counts for.
func ofMover(_ context.Context, obj client.Object) []reconcile.Request {
	name := obj.GetLabels()[v1alpha1.LabelStore]
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: name}}}
}

// moverEnded: a Job that has ended gives its place to another; the rest of its way concerns its owner.
func moverEnded(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*batchv1.Job)
	after, also := e.ObjectNew.(*batchv1.Job)
	return ok && also && jobEnded(before) != jobEnded(after)
}

// ofRestore: every store of the namespace that bounds its movers; which one a restore reads from may be known from its backup
// alone.
func (r *StoreReconciler) ofRestore(ctx context.Context, obj client.Object) []reconcile.Request {
	list := &v1alpha1.VMStateStoreList{}
	if err := r.List(ctx, list, client.InNamespace(obj.GetNamespace())); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Listing stores to wake")
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if s := &list.Items[i]; queue.Limited(s) {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		}
	}
	return out
}

// requeued: a restore that began to wait for a mover, or does not any more.
func requeued(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.VMStateRestore)
	after, also := e.ObjectNew.(*v1alpha1.VMStateRestore)
	return ok && also && (before.Status.QueuedAt == nil) != (after.Status.QueuedAt == nil)
}
