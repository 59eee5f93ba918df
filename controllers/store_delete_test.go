package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/test/kube"
)

// deletedWorld has a store with maintenance, and one backup in it with deletionPolicy Delete.
type deletedWorld struct {
	*storeWorld
	entry  v1alpha1.CatalogueEntry
	key    types.NamespacedName
	events *events.FakeRecorder
}

func newDeletedWorld(t *testing.T) *deletedWorld {
	t.Helper()
	w := &deletedWorld{storeWorld: newStoreWorld(t), entry: held("a", 1), events: events.NewFakeRecorder(100)}
	w.store.Spec.Adopt = v1alpha1.AdoptAll
	w.store.Spec.Maintenance = &v1alpha1.MaintenanceSpec{CredentialsSecretRef: v1alpha1.ObjectRef{Name: "deleter"}}
	w.must(w.cluster.Client.Update(t.Context(), w.store))
	w.holding(w.entry)
	w.untilListed(1)
	b := w.backup(adoptedAs(w.entry))
	w.key = client.ObjectKeyFromObject(b)
	b.Spec.DeletionPolicy = v1alpha1.DeletionDelete
	w.must(w.cluster.Client.Update(t.Context(), b))
	w.look()
	if b := w.backup(w.key.Name); len(b.Finalizers) != 1 || b.Finalizers[0] != v1alpha1.FinalizerStored {
		t.Fatalf("finalizers %v", b.Finalizers)
	}
	return w
}

// look is a pass of the backups' controller.
func (w *deletedWorld) look() {
	w.t.Helper()
	r := &BackupReconciler{
		Client: w.cluster.Client, Live: w.cluster.Client, Events: w.events, Now: func() time.Time { return time.Now().Add(w.ahead) },
	}
	_, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: w.key})
	w.must(err)
}

// says is what a backup waits for; gone says that it waits no more.
func (w *deletedWorld) says() (message string, gone bool) {
	w.t.Helper()
	b := &v1alpha1.VMStateBackup{}
	err := w.cluster.Client.Get(w.t.Context(), w.key, b)
	if apierrors.IsNotFound(err) {
		return "", true
	}
	w.must(err)
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReconciling); c != nil {
		message = c.Message
	}
	return message, false
}

// untilGone makes passes until the backup is let go of.
func (w *deletedWorld) untilGone() {
	w.t.Helper()
	kube.Eventually(w.t, time.Minute, func() error {
		w.pass(usable)
		w.look()
		if said, gone := w.says(); !gone {
			return fmt.Errorf("still there: %s", said)
		}
		return nil
	})
}

// untilSaid makes passes until the backup waits for that.
func (w *deletedWorld) untilSaid(want string) {
	w.t.Helper()
	kube.Eventually(w.t, time.Minute, func() error {
		w.pass(usable)
		w.look()
		said, gone := w.says()
		if gone {
			w.t.Fatalf("the backup was let go of, and not: %s", want)
		}
		if !strings.Contains(said, want) {
			return fmt.Errorf("it waits for %q", said)
		}
		return nil
	})
}

// told drains the Events.
func (w *deletedWorld) told() (out string) {
	for {
		select {
		case e := <-w.events.Events:
			out += e + "\n"
		default:
			return out
		}
	}
}

func (w *deletedWorld) removed() *v1alpha1.VMStateReportStatus {
	return &v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeSucceeded, Maintenance: &v1alpha1.MaintenanceResult{
		Removed: []v1alpha1.CommitRef{w.entry.Commit}, DeletedObjects: 5, FreedBytes: 4096,
	}}
}

// TestDeletionPolicy: an object with deletionPolicy Delete goes when its data is gone, and not before: while the store does not
// answer, and while a lock keeps the data, it says so. Where nobody can remove anything any more, it holds nothing up.
func TestDeletionPolicy(t *testing.T) {
	t.Run("Reachable", func(t *testing.T) {
		w := newDeletedWorld(t)
		w.maintained = w.removed()
		w.remove(w.key.Name)
		w.untilGone()
		if m := w.store.Status.Maintenance; m == nil || m.RemovedBackups != 1 || m.FreedBytes != 4096 {
			t.Errorf("maintenance is %+v", m)
		}
		if told := w.told(); strings.Contains(told, "StaysInStore") {
			t.Errorf("events:\n%s", told)
		}
	})
	t.Run("Unreachable", func(t *testing.T) {
		w := newDeletedWorld(t)
		w.maintained = &v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeFailed, Reason: v1alpha1.ReasonUnreachable, Message: "no answer from the bucket"}
		w.remove(w.key.Name)
		w.untilSaid("no answer from the bucket")
		w.maintained, w.ahead = w.removed(), w.ahead+7*time.Hour
		w.untilGone()
	})
	t.Run("LetGo", func(t *testing.T) {
		w := newDeletedWorld(t)
		w.maintained = &v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeFailed, Reason: v1alpha1.ReasonUnreachable, Message: "no answer from the bucket"}
		w.remove(w.key.Name)
		w.untilSaid("set deletionPolicy to Retain")
		b := w.backup(w.key.Name)
		b.Spec.DeletionPolicy = v1alpha1.DeletionRetain
		w.must(w.cluster.Client.Update(t.Context(), b))
		w.untilGone()
	})
	t.Run("Locked", func(t *testing.T) {
		w := newDeletedWorld(t)
		w.maintained = &v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeSucceeded, Maintenance: &v1alpha1.MaintenanceResult{WaitingBytes: 1 << 20, LockedBytes: 1 << 20}}
		w.remove(w.key.Name)
		w.untilSaid("object locks keep 1.0 MiB")
		w.maintained, w.ahead = w.removed(), w.ahead+25*time.Hour
		w.untilGone()
	})
	t.Run("StoreDeleted", func(t *testing.T) {
		w := newDeletedWorld(t)
		w.must(w.cluster.Client.Delete(t.Context(), w.store))
		w.remove(w.key.Name)
		w.look()
		w.look()
		if said, gone := w.says(); !gone {
			t.Fatalf("still there: %s", said)
		}
		if told := w.told(); !strings.Contains(told, "StaysInStore") || !strings.Contains(told, "does not exist any more") {
			t.Errorf("events:\n%s", told)
		}
	})
	t.Run("NamespaceTerminating", func(t *testing.T) {
		w := newDeletedWorld(t)
		w.maintained = &v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeFailed, Reason: v1alpha1.ReasonUnreachable, Message: "no answer"}
		w.must(w.cluster.Client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.key.Namespace}}))
		kube.Eventually(t, time.Minute, func() error {
			w.look()
			if said, gone := w.says(); !gone {
				return fmt.Errorf("still there: %s", said)
			}
			return nil
		})
		if told := w.told(); !strings.Contains(told, "the namespace is being deleted") {
			t.Errorf("events:\n%s", told)
		}
	})
}
