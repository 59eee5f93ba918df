package kube

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

func TestMain(m *testing.M) { Main(m, ControllerManager, SnapshotController) }

// TestControllers proves that the controllers that were asked for work: a Job gets its pod, and an object goes with
// its owner.
func TestControllers(t *testing.T) {
	cluster := Shared(t)
	namespace := cluster.Namespace(t)
	backup := &v1alpha1.VMStateBackup{
		ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: namespace},
		Spec:       v1alpha1.VMStateBackupSpec{VMName: "db"},
	}
	if err := cluster.Client.Create(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "owned", Namespace: namespace, OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(backup, v1alpha1.GroupVersion.WithKind("VMStateBackup")),
		}},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "c", Image: "localhost/none:1"}},
		}}},
	}
	if err := cluster.Client.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	Eventually(t, time.Minute, func() error {
		pods := &corev1.PodList{}
		err := cluster.Client.List(t.Context(), pods, client.InNamespace(namespace), client.MatchingLabels{"batch.kubernetes.io/job-name": "owned"})
		if err == nil && len(pods.Items) != 1 {
			err = fmt.Errorf("the Job has %d pods", len(pods.Items))
		}
		return err
	})
	if err := cluster.Client.Delete(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	Eventually(t, time.Minute, func() error {
		err := cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(job), job)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("the Job outlives its owner"), err)
	})
}

func TestMissingBinary(t *testing.T) {
	t.Setenv("KUBEBUILDER_ASSETS", t.TempDir())
	_, err := Start()
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), buildCommand) {
		t.Errorf("Start() = %v; it must name what is missing, and the command that builds it", err)
	}
}
