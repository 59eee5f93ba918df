package job

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

func built(s Spec) *batchv1.Job {
	backup := &v1alpha1.VMStateBackup{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "prod", UID: "u1"}}
	return Build(OwnerOf(backup, "VMStateBackup"), "image", s).Job
}

// TestApart: movers are found by their store, and those of one slot repel each other on a node, and nobody else.
func TestApart(t *testing.T) {
	j := built(Spec{Name: "n", Task: v1alpha1.TaskExport, Store: "main", Slot: 2})
	pod := j.Spec.Template
	for _, labels := range []map[string]string{j.Labels, pod.Labels} {
		if labels[v1alpha1.LabelStore] != "main" || labels[v1alpha1.LabelNodeSlot] != "2" || labels[v1alpha1.LabelOwnerUID] != "u1" {
			t.Errorf("labels %v", labels)
		}
	}
	want := []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"vmstate.io/store": "main", "vmstate.io/node-slot": "2"}},
		TopologyKey:   "kubernetes.io/hostname",
	}}
	if diff := cmp.Diff(want, pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	j = built(Spec{Name: "n", Task: v1alpha1.TaskExport, Store: "main"})
	if _, slot := j.Labels[v1alpha1.LabelNodeSlot]; slot || j.Labels[v1alpha1.LabelStore] != "main" || j.Spec.Template.Spec.Affinity != nil {
		t.Errorf("without a limit of nodes: labels %v, %+v", j.Labels, j.Spec.Template.Spec.Affinity)
	}
	if j = built(Spec{Name: "n", Task: v1alpha1.TaskResolve}); j.Labels[v1alpha1.LabelStore] != "" {
		t.Errorf("what is small counts: %v", j.Labels)
	}
}

// TestDeadline: a pod's time counts from when a node has taken it; a witness's Job ends when it must.
func TestDeadline(t *testing.T) {
	for task, ofJob := range map[v1alpha1.ReportTask]bool{v1alpha1.TaskResolve: false, v1alpha1.TaskMaintain: false, v1alpha1.TaskWitness: true} {
		s := built(Spec{Name: "n", Task: task, Deadline: time.Minute}).Spec
		if (s.ActiveDeadlineSeconds != nil) != ofJob || (s.Template.Spec.ActiveDeadlineSeconds != nil) == ofJob {
			t.Errorf("%s: Job %v, pod %v", task, s.ActiveDeadlineSeconds, s.Template.Spec.ActiveDeadlineSeconds)
		}
	}
}
