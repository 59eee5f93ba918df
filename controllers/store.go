package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/metrics"
	"github.com/vmstate/vmstate/pkg/store"
)

// StoreReconciler has stores probed.
type StoreReconciler struct {
	client.Client
	// Live reads past the cache.
	Live   client.Reader
	Events events.EventRecorder
	// Metrics may be nil.
	Metrics *metrics.Metrics
	// Image of vmstate, for its Jobs.
	Image string
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// +kubebuilder:rbac:groups=vmstate.io,resources=vmstatestores,verbs=get;list;watch
// +kubebuilder:rbac:groups=vmstate.io,resources=vmstatestores/status,verbs=patch
// +kubebuilder:rbac:groups=vmstate.io,resources=vmstatestores/finalizers,verbs=update

// Reconcile observes one store, plans, acts and reports. Every decision is in store.Plan.
func (r *StoreReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	s := &v1alpha1.VMStateStore{}
	if err := r.Live.Get(ctx, req.NamespacedName, s); err != nil {
		if apierrors.IsNotFound(err) {
			r.Metrics.StoreGone(req.Namespace, req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	seen, err := r.observe(ctx, s)
	if err != nil {
		return ctrl.Result{}, errors.Join(fmt.Errorf("observe: %w", err), r.report(ctx, s, store.Interrupted(seen, err)))
	}
	d := store.Plan(seen)
	if _, err := r.executor().run(ctx, s, d.Actions); err != nil {
		return ctrl.Result{}, errors.Join(err, r.report(ctx, s, store.Interrupted(seen, err)))
	}
	return ctrl.Result{RequeueAfter: d.RequeueAfter}, r.report(ctx, s, d)
}

func (r *StoreReconciler) report(ctx context.Context, s *v1alpha1.VMStateStore, d store.Decision) error {
	before := s.DeepCopy()
	s.Status = d.Status
	written, err := writeStatus(ctx, r.Client, before, s)
	if err == nil {
		r.Metrics.Store(s)
	}
	if written {
		announce(r.Events, s, "Probe", before.Status.Conditions, s.Status.Conditions)
	}
	return err
}

func (r *StoreReconciler) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

func (r *StoreReconciler) observe(ctx context.Context, s *v1alpha1.VMStateStore) (store.Observed, error) {
	in := store.Observed{Now: r.now(), Store: s}
	var err error
	if in.Setup, err = r.task(ctx, s, store.JobName(s)); err != nil {
		return in, err
	}
	if name := store.ChoreName(s); name != "" {
		if in.Chore, err = r.task(ctx, s, name); err != nil {
			return in, err
		}
	}
	if err := r.observeBackups(ctx, s, &in); err != nil {
		return in, err
	}
	return in, r.observeChildren(ctx, s, &in)
}

// task reads a Job of the store and its report.
func (r *StoreReconciler) task(ctx context.Context, s *v1alpha1.VMStateStore, name string) (store.Task, error) {
	var out store.Task
	seen, err := observeJob(ctx, r.Live, s.Namespace, name)
	if err != nil {
		return out, err
	}
	if seen.Job != nil {
		out = store.Task{Exists: true, Created: seen.Job.CreationTimestamp.Time, Pending: seen.Pending, NoRoom: seen.NoRoom}
		if seen.Failed {
			out.Failed = joined("it failed", seen.Message)
		}
	}
	if seen.Report != nil && metav1.IsControlledBy(seen.Report, s) {
		out.Report = &seen.Report.Status
	}
	return out, nil
}

// observeBackups lists the backups that name the store.
func (r *StoreReconciler) observeBackups(ctx context.Context, s *v1alpha1.VMStateStore, in *store.Observed) error {
	list := &v1alpha1.VMStateBackupList{}
	if err := r.Live.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("list backups: %w", err)
	}
	for _, b := range list.Items {
		if b.Spec.StoreRef != nil && b.Spec.StoreRef.Name == s.Name {
			in.Backups = append(in.Backups, b)
		}
	}
	return r.observeUse(ctx, s, in)
}

// observeUse finds the commits that a restore of the namespace stands on.
func (r *StoreReconciler) observeUse(ctx context.Context, s *v1alpha1.VMStateStore, in *store.Observed) error {
	list := &v1alpha1.VMStateRestoreList{}
	if err := r.Live.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
		return fmt.Errorf("list restores: %w", err)
	}
	for _, rs := range list.Items {
		if rs.Status.CompletedAt != nil {
			continue
		}
		in.Readers = append(in.Readers, string(rs.UID))
		if from := rs.Status.From; from != nil && from.Commit != nil {
			in.InUse = append(in.InUse, from.Commit.Key)
		}
		for _, b := range in.Backups {
			if ref := rs.Spec.Source.BackupRef; ref != nil && ref.Name == b.Name && b.Status.Export != nil && b.Status.Export.Commit != nil {
				in.InUse = append(in.InUse, b.Status.Export.Commit.Key)
			}
		}
	}
	if err := r.observeReaders(ctx, s, in); err != nil {
		return err
	}
	return r.observeMovers(ctx, s, list.Items, in)
}

// observeReaders adds the restores that are gone or have ended, and a pod of which may still read: a pod on a
// node that is lost stays until somebody who knows removes it. Restores were listed before, so that none is missed.
func (r *StoreReconciler) observeReaders(ctx context.Context, s *v1alpha1.VMStateStore, in *store.Observed) error {
	pods := &corev1.PodList{}
	of := client.MatchingLabels{v1alpha1.LabelTask: string(v1alpha1.TaskImport)}
	if err := r.Live.List(ctx, pods, client.InNamespace(s.Namespace), of); err != nil {
		return fmt.Errorf("list pods of restores: %w", err)
	}
	for _, p := range pods.Items {
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if owner := p.Labels[v1alpha1.LabelOwnerUID]; owner != "" && !ended && !slices.Contains(in.Readers, owner) {
			in.Readers = append(in.Readers, owner)
		}
	}
	slices.Sort(in.Readers)
	return nil
}

// storeChildren are what a Job leaves behind.
var storeChildren = []action.Kind{action.KindJob, action.KindReport, action.KindRoleBinding, action.KindServiceAccount}

func (r *StoreReconciler) observeChildren(ctx context.Context, s *v1alpha1.VMStateStore, in *store.Observed) error {
	for _, kind := range storeChildren {
		gvk, err := r.executor().kindOf(kind)
		if err != nil {
			return err
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(listKind(gvk))
		if err := r.Live.List(ctx, list, client.InNamespace(s.Namespace), ofOwner(s)); err != nil {
			return fmt.Errorf("list objects of kind %s: %w", kind, err)
		}
		for i := range list.Items {
			if obj := &list.Items[i]; metav1.IsControlledBy(obj, s) {
				in.Children = append(in.Children, store.Child{
					Kind: kind, Name: obj.Name, UID: obj.UID, Deleting: obj.DeletionTimestamp != nil,
				})
			}
		}
	}
	return nil
}

func (r *StoreReconciler) executor() *executor {
	return &executor{client: r.Client, live: r.Live, image: r.Image, now: r.now}
}

// SetupWithManager watches stores, their Jobs, and the backups that have to do with them.
func (r *StoreReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.VMStateStore{}).
		Owns(&batchv1.Job{}).
		Owns(&v1alpha1.VMStateReport{}).
		Watches(&v1alpha1.VMStateBackup{}, handler.EnqueueRequestsFromMapFunc(storeOf), builder.WithPredicates(predicate.Funcs{UpdateFunc: concernsStore})).
		Watches(&v1alpha1.VMStateRestore{}, handler.EnqueueRequestsFromMapFunc(r.ofRestore), builder.WithPredicates(predicate.Funcs{UpdateFunc: requeued})).
		Watches(&batchv1.Job{}, handler.EnqueueRequestsFromMapFunc(ofMover), builder.WithPredicates(predicate.Funcs{UpdateFunc: moverEnded})).
		Complete(r)
}

func storeOf(_ context.Context, obj client.Object) []reconcile.Request {
	b, ok := obj.(*v1alpha1.VMStateBackup)
	if !ok || b.Spec.StoreRef == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.StoreRef.Name}}}
}

// concernsStore: a backup that was completed, is being deleted, or whose driver was checked; not each step of its way.
func concernsStore(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*v1alpha1.VMStateBackup)
	after, also := e.ObjectNew.(*v1alpha1.VMStateBackup)
	return ok && also && (before.Generation != after.Generation ||
		(before.Status.QueuedAt == nil) != (after.Status.QueuedAt == nil) ||
		(before.Status.CompletedAt == nil) != (after.Status.CompletedAt == nil) ||
		(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil) ||
		before.Annotations[v1alpha1.AnnotationDriverChecked] != after.Annotations[v1alpha1.AnnotationDriverChecked])
}
