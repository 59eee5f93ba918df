package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/test/build"
	"github.com/vmstate/vmstate/test/kube"
)

// storeWorld is a namespace with one store that was never probed.
type storeWorld struct {
	t       *testing.T
	cluster *kube.Cluster
	store   *v1alpha1.VMStateStore
	ahead   time.Duration
	// holds is what a mover finds in the store.
	holds v1alpha1.CatalogueResult
	// maintained is what a mover says that cleans up; nil is the answer to everything.
	maintained *v1alpha1.VMStateReportStatus
}

func newStoreWorld(t *testing.T) *storeWorld {
	w := &storeWorld{t: t, cluster: kube.Shared(t)}
	w.store = build.Store("main")
	w.store.UID, w.store.Namespace = "", w.cluster.Namespace(t)
	w.must(w.cluster.Client.Create(t.Context(), w.store))
	return w
}

func (w *storeWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// pass plays the mover with this answer, and makes one pass.
func (w *storeWorld) pass(outcome v1alpha1.VMStateReportStatus) time.Duration {
	w.t.Helper()
	r := &StoreReconciler{
		Client: w.cluster.Client, Live: w.cluster.Client, Events: events.NewFakeRecorder(100), Image: "localhost/vmstate:dev",
		Now: func() time.Time { return time.Now().Add(w.ahead) },
	}
	key := types.NamespacedName{Namespace: w.store.Namespace, Name: "main"}
	result, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil {
		w.t.Logf("pass: %v", err)
	}
	reports := &v1alpha1.VMStateReportList{}
	w.must(w.cluster.Client.List(w.t.Context(), reports, client.InNamespace(w.store.Namespace)))
	for i := range reports.Items {
		if rep := &reports.Items[i]; rep.Status.Outcome == "" {
			rep.Status = outcome
			if rep.Spec.Task == v1alpha1.TaskCatalogue {
				rep.Status = v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeSucceeded, Catalogue: w.holds.DeepCopy()}
			}
			if rep.Spec.Task == v1alpha1.TaskMaintain && w.maintained != nil {
				rep.Status = *w.maintained.DeepCopy()
			}
			w.must(client.IgnoreNotFound(w.cluster.Client.Status().Update(w.t.Context(), rep)))
		}
	}
	w.must(w.cluster.Client.Get(w.t.Context(), key, w.store))
	return result.RequeueAfter
}

// until makes passes until Ready has that reason and what the probe made is gone.
func (w *storeWorld) until(reason string, outcome v1alpha1.VMStateReportStatus) {
	w.t.Helper()
	kube.Eventually(w.t, time.Minute, func() error {
		w.pass(outcome)
		c := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Reason != reason {
			return fmt.Errorf("Ready is %+v", c)
		}
		for _, list := range []client.ObjectList{&batchv1.JobList{}, &v1alpha1.VMStateReportList{}, &rbacv1.RoleBindingList{}, &corev1.ServiceAccountList{}} {
			w.must(w.cluster.Client.List(w.t.Context(), list, client.InNamespace(w.store.Namespace), client.MatchingLabels{v1alpha1.LabelOwnerUID: string(w.store.UID)}))
			if meta.LenList(list) > 0 {
				return fmt.Errorf("%T is left", list)
			}
		}
		return nil
	})
}

func TestStore(t *testing.T) {
	w := newStoreWorld(t)
	denied := v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeFailed, Reason: v1alpha1.ReasonAccessDenied, Message: "403"}
	good := v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeSucceeded, Setup: &v1alpha1.SetupResult{
		Findings: []v1alpha1.Finding{{Check: "Write", Outcome: v1alpha1.FindingOK}}, ChecksumMode: "CRC32C", RepositoryID: "r1", SigningKey: "k1", Writable: true,
	}}
	w.until(v1alpha1.ReasonAccessDenied, denied)
	w.ahead = retryAfter
	w.until(v1alpha1.ReasonProbed, good) // the credentials were put right
	if !meta.IsStatusConditionTrue(w.store.Status.Conditions, v1alpha1.ConditionWritable) {
		t.Errorf("not writable: %+v", w.store.Status.Conditions)
	}
	w.store.Spec.Recipients = w.store.Spec.Recipients[:1]
	w.must(w.cluster.Client.Update(t.Context(), w.store))
	kube.Eventually(t, time.Minute, func() error {
		w.pass(good)
		c := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionRedundant)
		if diff := cmp.Diff(v1alpha1.ReasonOneRecipient, c.Reason); diff != "" || w.store.Status.ObservedGeneration != 2 {
			return fmt.Errorf("a changed spec is not probed: generation %d %s", w.store.Status.ObservedGeneration, diff)
		}
		return nil
	})
}

// retryAfter is more than a failing store is left alone.
const retryAfter = 3 * time.Minute

// TestStoreSetBack: what was seen of a store's signing keys is kept. A bucket that shows less makes the store unusable,
// and nobody who writes its status makes it forget but by removing all of it.
func TestStoreSetBack(t *testing.T) {
	w := newStoreWorld(t)
	shows := func(epoch int64, key string) v1alpha1.VMStateReportStatus {
		return v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeSucceeded, Setup: &v1alpha1.SetupResult{
			Findings: []v1alpha1.Finding{}, ChecksumMode: "CRC32C", RepositoryID: "r1", SigningKey: "k1", Writable: true,
			Trust: &v1alpha1.TrustMark{KeyEpoch: epoch, SigningKey: key},
		}}
	}
	changed := func() { // a changed spec is probed at once
		w.must(w.cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(w.store), w.store))
		w.store.Spec.AuditDays++
		w.must(w.cluster.Client.Update(t.Context(), w.store))
	}
	w.until(v1alpha1.ReasonProbed, shows(2, "b"))
	for _, other := range []v1alpha1.VMStateReportStatus{shows(1, "a"), shows(2, "c")} {
		changed()
		w.until(v1alpha1.ReasonKeysSetBack, other)
		if got := w.store.Status.Trust; got == nil || got.KeyEpoch != 2 || got.SigningKey != "b" {
			t.Errorf("the store remembers %+v", got)
		}
		w.store.Status.Trust = other.Setup.Trust
		if err := w.cluster.Client.Status().Update(t.Context(), w.store); !apierrors.IsInvalid(err) {
			t.Errorf("it was made to forget: %v", err)
		}
		changed()
		w.until(v1alpha1.ReasonProbed, shows(2, "b")) // the object was brought back
	}
	changed()
	kube.Eventually(t, time.Minute, func() error {
		if w.pass(shows(3, "d")); w.store.Status.Trust.KeyEpoch != 3 {
			return fmt.Errorf("the store remembers %+v", w.store.Status.Trust)
		}
		return nil
	})
}
