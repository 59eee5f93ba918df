package controllers

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/store"
)

// StoreReconciler has stores probed.
type StoreReconciler struct {
	client.Client
	// Live reads past the cache.
	Live   client.Reader
	Events events.EventRecorder
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
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	seen, err := r.observe(ctx, s)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("observe: %w", err)
	}
	d := store.Plan(seen)
	e := &executor{client: r.Client, live: r.Live, image: r.Image, now: r.now}
	if _, err := e.run(ctx, s, d.Actions); err != nil {
		return ctrl.Result{}, err
	}
	before := s.DeepCopy()
	s.Status = d.Status
	written, err := writeStatus(ctx, r.Client, before, s)
	if written {
		announce(r.Events, s, "Probe", before.Status.Conditions, s.Status.Conditions)
	}
	return ctrl.Result{RequeueAfter: d.RequeueAfter}, errors.Join(err)
}

func (r *StoreReconciler) now() time.Time {
	if r.Now == nil {
		return time.Now()
	}
	return r.Now()
}

func (r *StoreReconciler) observe(ctx context.Context, s *v1alpha1.VMStateStore) (store.Observed, error) {
	in := store.Observed{Now: r.now(), Store: s}
	seen, err := observeJob(ctx, r.Live, s.Namespace, store.JobName(s))
	if err != nil {
		return in, err
	}
	if seen.Job != nil {
		in.Setup = store.Setup{Exists: true, Created: seen.Job.CreationTimestamp.Time, Pending: seen.Pending}
		if seen.Failed {
			in.Setup.Failed = joined("it failed", seen.Message)
		}
	}
	if seen.Report != nil && metav1.IsControlledBy(seen.Report, s) {
		in.Setup.Report = &seen.Report.Status
	}
	return in, r.observeChildren(ctx, s, &in)
}

func (r *StoreReconciler) observeChildren(ctx context.Context, s *v1alpha1.VMStateStore, in *store.Observed) error {
	lists := map[action.Kind]client.ObjectList{action.KindJob: &batchv1.JobList{}, action.KindReport: &v1alpha1.VMStateReportList{}}
	for _, list := range lists {
		if err := r.Live.List(ctx, list, client.InNamespace(s.Namespace), ofOwner(s)); err != nil {
			return fmt.Errorf("list what store %q made: %w", s.Name, err)
		}
	}
	add := func(kind action.Kind, obj client.Object) {
		if metav1.IsControlledBy(obj, s) {
			in.Children = append(in.Children, store.Child{
				Kind: kind, Name: obj.GetName(), UID: obj.GetUID(), Deleting: obj.GetDeletionTimestamp() != nil,
			})
		}
	}
	jobs, _ := lists[action.KindJob].(*batchv1.JobList)
	for i := range jobs.Items {
		add(action.KindJob, &jobs.Items[i])
	}
	reports, _ := lists[action.KindReport].(*v1alpha1.VMStateReportList)
	for i := range reports.Items {
		add(action.KindReport, &reports.Items[i])
	}
	return nil
}

// SetupWithManager watches stores and their Jobs.
func (r *StoreReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.VMStateStore{}).
		Owns(&batchv1.Job{}).
		Owns(&v1alpha1.VMStateReport{}).
		Complete(r)
}
