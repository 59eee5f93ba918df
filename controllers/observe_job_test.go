package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A person who wonders why nothing moves is told where the pod is and what its kubelet said.
func TestStanding(t *testing.T) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "import-1"}, Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		change(p)
		return p
	}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"Running":     {pod(func(*corev1.Pod) {}), `pod "import-1" is Running on node "n1"`},
		"Unscheduled": {pod(func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending }), `pod "import-1" is Pending`},
		"NodeGone": {pod(func(p *corev1.Pod) {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			p.Status.Reason, p.Status.Message = "NodeLost", "node n1 does not answer"
		}), `pod "import-1" is Running on node "n1", was told to end and has not (its node may be gone), NodeLost: node n1 does not answer`},
		"Waiting": {pod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}}}
		}), `pod "import-1" is Running on node "n1", ImagePullBackOff: no such image`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := standing(tc.pod); got != tc.want {
				t.Errorf("standing() = %s, want %s", got, tc.want)
			}
		})
	}
}
