package job

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// Every pod is of the restricted pod security level, and a pod that mounts a guest's own claim
// must never make the kubelet change its files' owners.
func TestBuildKeepsPodsRestricted(t *testing.T) {
	backup := &v1alpha1.VMStateBackup{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "prod", UID: "u1"}}
	for _, task := range []v1alpha1.ReportTask{
		v1alpha1.TaskSetup, v1alpha1.TaskExport, v1alpha1.TaskKeepState,
		v1alpha1.TaskResolve, v1alpha1.TaskImport, v1alpha1.TaskWitness, v1alpha1.TaskCatalogue,
	} {
		t.Run(string(task), func(t *testing.T) {
			built := Build(OwnerOf(backup, "VMStateBackup"), "image", Spec{Name: "n", Task: task})
			pod := built.Job.Spec.Template.Spec
			want := &corev1.PodSecurityContext{
				RunAsUser: ptr(User), RunAsGroup: ptr(User), RunAsNonRoot: ptr(true),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}
			if diff := cmp.Diff(want, pod.SecurityContext); diff != "" {
				t.Errorf("pod security context (-want +got):\n%s", diff)
			}
			wantContainer := &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr(false), ReadOnlyRootFilesystem: ptr(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}
			if diff := cmp.Diff(wantContainer, pod.Containers[0].SecurityContext); diff != "" {
				t.Errorf("container security context (-want +got):\n%s", diff)
			}
			if pod.PriorityClassName != PriorityClass {
				t.Errorf("priority class %q: it could take the place of a guest", pod.PriorityClassName)
			}
			rule := built.Job.Spec.PodFailurePolicy.Rules[1]
			if got := *rule.OnExitCodes.ContainerName; got != pod.Containers[0].Name {
				t.Errorf("the failure policy looks at container %q, the pod has %q", got, pod.Containers[0].Name)
			}
		})
	}
}

func TestVolumesOf(t *testing.T) {
	volumes, folders, devices := volumesOf([]Mount{
		{Secret: "s", Path: "/credentials"},
		{Claim: "state", Path: "/volumes/state", ReadOnly: true},
		{Claim: "root", Path: "/dev/vmstate/root", Block: true},
	})
	// The claim's volume source stays read-write: only the mount is read-only.
	wantVolumes := []corev1.Volume{
		{Name: "v0", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", Optional: ptr(false)}}},
		{Name: "v1", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "state"}}},
		{Name: "v2", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "root"}}},
	}
	wantFolders := []corev1.VolumeMount{
		{Name: "v0", MountPath: "/credentials", ReadOnly: true},
		{Name: "v1", MountPath: "/volumes/state", ReadOnly: true},
	}
	wantDevices := []corev1.VolumeDevice{{Name: "v2", DevicePath: "/dev/vmstate/root"}}
	if diff := cmp.Diff(wantVolumes, volumes); diff != "" {
		t.Errorf("volumes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantFolders, folders); diff != "" {
		t.Errorf("folders (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantDevices, devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// A token for each audience, and none for others: it cannot be used against the API server.
func TestTokens(t *testing.T) {
	backup := &v1alpha1.VMStateBackup{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "prod", UID: "u1"}}
	built := Build(OwnerOf(backup, "VMStateBackup"), "image", Spec{Name: "n", Task: v1alpha1.TaskExport, Audiences: []string{"one", "two"}})
	pod := built.Job.Spec.Template.Spec
	token := func(audience, path string) corev1.VolumeProjection {
		return corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
			Audience: audience, ExpirationSeconds: ptr(int64(600)), Path: path,
		}}
	}
	want := corev1.Volume{Name: "tokens", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{token("one", "0"), token("two", "1")},
	}}}
	if diff := cmp.Diff(want, pod.Volumes[0]); diff != "" {
		t.Errorf("volume (-want +got):\n%s", diff)
	}
	if m := pod.Containers[0].VolumeMounts[0]; m.Name != "tokens" || m.MountPath != "/tokens" || !m.ReadOnly {
		t.Errorf("mounted as %+v", m)
	}
}
