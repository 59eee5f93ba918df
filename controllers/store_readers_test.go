package controllers

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/store"
)

// TestReaders: a restore counts as reading until it has ended, and for as long as a pod of it may still run, also when it
// is gone itself; maintenance is told of each once.
func TestReaders(t *testing.T) {
	w := newStoreWorld(t)
	r := &StoreReconciler{Client: w.cluster.Client, Live: w.cluster.Client}
	restore := func(name string, ended bool) string {
		rs := &v1alpha1.VMStateRestore{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.store.Namespace},
			Spec:       newVM,
		}
		rs.Spec.Source.BackupRef = &v1alpha1.ObjectRef{Name: "b"}
		w.must(w.cluster.Client.Create(t.Context(), rs))
		if ended {
			now := metav1.Now()
			rs.Status.CompletedAt = &now
			w.must(w.cluster.Client.Status().Update(t.Context(), rs))
		}
		return string(rs.UID)
	}
	pod := func(name, owner string, phase corev1.PodPhase) {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.store.Namespace, Labels: map[string]string{
				v1alpha1.LabelTask: string(v1alpha1.TaskImport), v1alpha1.LabelOwnerUID: owner,
			}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "mover", Image: "none"}}},
		}
		w.must(w.cluster.Client.Create(t.Context(), p))
		p.Status.Phase = phase
		w.must(w.cluster.Client.Status().Update(t.Context(), p))
	}
	working, done := restore("working", false), restore("done", true)
	pod("a", working, corev1.PodRunning)
	pod("b", done, corev1.PodSucceeded)
	pod("c", "gone-running", corev1.PodRunning)
	pod("d", "gone-pending", corev1.PodPending)
	pod("e", "gone-unknown", corev1.PodUnknown)
	pod("f", "gone-failed", corev1.PodFailed)
	in := &store.Observed{}
	w.must(r.observeUse(t.Context(), w.store, in))
	want := []string{working, "gone-pending", "gone-running", "gone-unknown"}
	slices.Sort(want)
	if !slices.Equal(in.Readers, want) {
		t.Errorf("readers are %q, want %q", in.Readers, want)
	}
}
