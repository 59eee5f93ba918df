package controllers

import (
	"context"
	"errors"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/test/kube"
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

// TestNoRoom: what ends by itself when others leave is told from what a person must see to.
func TestNoRoom(t *testing.T) {
	for text, want := range map[string]bool{
		"0/1 nodes are available: 1 Insufficient memory. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.": true,
		"0/3 nodes are available: 3 Too many pods.":                                                 true,
		"0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.":                  true,
		"0/1 nodes are available: 1 node(s) were unschedulable.":                                    true,
		"0/2 nodes are available: 2 node(s) exceed max volume count.":                               true,
		`FailedCreate: pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=3`:   true,
		"0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.":                false,
		`0/1 nodes are available: persistentvolumeclaim "x" not found.`:                             false,
		"0/1 nodes are available: 1 node(s) had volume node affinity conflict.":                     false,
		"ImagePullBackOff: no such image":                                                           false,
		`FailedMount: MountVolume.SetUp failed for volume "v1" : secret "s3-write" not found`:       false,
		`FailedCreate: pods "x" is forbidden: violates PodSecurity "restricted:latest": host ports`: false,
		"": false,
	} {
		if got := noRoom(text); got != want {
			t.Errorf("noRoom(%q) = %t", text, got)
		}
	}
}

// TestQuotaOfCreates: a quota that refuses a create is told from other refusals, and stays one for whoever asks.
func TestQuotaOfCreates(t *testing.T) {
	for text, want := range map[string]bool{
		"exceeded quota: small, requested: count/jobs.batch=1, used: count/jobs.batch=2, limited: count/jobs.batch=2": true,
		`violates PodSecurity "restricted:latest"`: false,
	} {
		refusal := apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "import", errors.New(text))
		e := &executor{client: interceptor.NewClient(kube.Shared(t).Client, interceptor.Funcs{
			Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return refusal },
		})}
		err := e.create(t.Context(), nil, &batchv1.Job{})
		if errors.Is(err, action.ErrNoRoom) != want || !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
