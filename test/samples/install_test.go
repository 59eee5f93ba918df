package samples

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/test/kube"
)

// install is what a person types, on the shared server.
func install(t *testing.T, cluster *kube.Cluster) {
	t.Helper()
	root, err := kube.Root()
	if err != nil {
		t.Fatal(err)
	}
	apply := exec.Command(kube.Binary(t, "kubectl"), "--kubeconfig", cluster.Kubeconfig, "apply", "-k", filepath.Join(root, "config", "default"))
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestInstall applies config/default, and makes the manager's pod from its template: the namespace takes restricted
// pods only.
func TestInstall(t *testing.T) {
	cluster := kube.Shared(t)
	install(t, cluster)
	deployment := &appsv1.Deployment{}
	if err := cluster.Client.Get(t.Context(), types.NamespacedName{Namespace: "vmstate-system", Name: "vmstate-manager"}, deployment); err != nil {
		t.Fatal(err)
	}
	template := deployment.Spec.Template
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "as-restricted", Namespace: "vmstate-system", Labels: template.Labels},
		Spec:       template.Spec,
	}
	if err := cluster.Client.Create(t.Context(), pod); err != nil {
		t.Error(err)
	}
	container := template.Spec.Containers[0]
	if diff := cmp.Diff([]corev1.EnvVar{{Name: "VMSTATE_IMAGE", Value: container.Image}}, container.Env); diff != "" {
		t.Errorf("the Jobs' image is not the manager's (-want +got):\n%s", diff)
	}
}

// TestJobsNeverPreempt makes a pod as a Job would, in a namespace that takes restricted pods only: admission gives it
// the least priority, and it takes nobody's place.
func TestJobsNeverPreempt(t *testing.T) {
	cluster := kube.Shared(t)
	install(t, cluster)
	namespace := cluster.Namespace(t, "pod-security.kubernetes.io/enforce", "restricted")
	backup := &v1alpha1.VMStateBackup{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: namespace, UID: "u1"}}
	built := job.Build(job.OwnerOf(backup, "VMStateBackup"), "localhost/vmstate:dev", job.Spec{Name: "export", Task: v1alpha1.TaskExport, Retries: 1})
	if err := cluster.Client.Create(t.Context(), built.Job); err != nil {
		t.Errorf("the API server refuses the Job: %v", err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "export", Namespace: namespace}, Spec: built.Job.Spec.Template.Spec}
	if err := cluster.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if p := pod.Spec.PreemptionPolicy; p == nil || *p != corev1.PreemptNever || pod.Spec.Priority == nil || *pod.Spec.Priority != 0 {
		t.Errorf("preemption policy %v, priority %v, want Never and 0", pod.Spec.PreemptionPolicy, pod.Spec.Priority)
	}
}

// TestManagerReadsNoSecret looks at every rule that the manager has.
func TestManagerReadsNoSecret(t *testing.T) {
	cluster := kube.Shared(t)
	install(t, cluster)
	role := &rbacv1.ClusterRole{}
	if err := cluster.Client.Get(t.Context(), types.NamespacedName{Name: "vmstate-manager"}, role); err != nil {
		t.Fatal(err)
	}
	if len(role.Rules) == 0 {
		t.Error("the manager has no rules at all: nothing was proven")
	}
	for _, rule := range role.Rules {
		for _, forbidden := range []string{"secrets", "*", "pods/exec"} {
			if slices.Contains(rule.Resources, forbidden) {
				t.Errorf("the manager has a rule over %q: %v", forbidden, rule)
			}
		}
		if slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Verbs, "escalate") {
			t.Errorf("the manager has a rule without bounds: %v", rule)
		}
	}
}

// TestJobRoles asks the API server's authorizer what somebody who borrows a Job's account can do.
func TestJobRoles(t *testing.T) {
	cluster := kube.Shared(t)
	install(t, cluster)
	namespace := cluster.Namespace(t)
	for role, want := range allowed() {
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role, Namespace: namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: role}},
		}
		if err := cluster.Client.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		t.Run(role, func(t *testing.T) {
			// The authorizer learns of a new binding a moment after it is made.
			var diff string
			for range 50 {
				if diff = cmp.Diff(want, allowedTo(t, cluster, role, namespace)); diff == "" {
					return
				}
				time.Sleep(200 * time.Millisecond)
			}
			t.Errorf("%s may (-want +got):\n%s", role, diff)
		})
	}
}

// allowedTo asks for each of attempts.
func allowedTo(t *testing.T, cluster *kube.Cluster, role, namespace string) []string {
	t.Helper()
	var got []string
	for name, attributes := range attempts(namespace) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: role, ResourceAttributes: &attributes}}
		if err := cluster.Client.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed {
			got = append(got, name)
		}
	}
	slices.Sort(got)
	return got
}

// allowed is all that each role may, of what attempts tries.
func allowed() map[string][]string {
	return map[string][]string{
		"vmstate-mover": {"get vmstatereports", "get volumesnapshots", "patch vmstatereports/status"},
		"vmstate-setup": {"create secrets", "get vmstatereports", "patch vmstatereports/status"},
		"vmstate-witness": {"create secrets", "get virtualmachineinstances", "get vmstatebackups", "get vmstatereports", "patch vmstatereports/status",
			"update virtualmachineinstances/unfreeze", "update virtualmachineinstances/unpause", "watch vmstatebackups"},
		"vmstate-maintenance": {"create secrets", "get vmstatereports", "patch vmstatereports/status"},
	}
}

func attempts(namespace string) map[string]authorizationv1.ResourceAttributes {
	out := map[string]authorizationv1.ResourceAttributes{}
	add := func(group, resource, subresource string, verbs ...string) {
		name := resource
		if subresource != "" {
			name += "/" + subresource
		}
		for _, verb := range verbs {
			out[verb+" "+name] = authorizationv1.ResourceAttributes{
				Namespace: namespace, Group: group, Resource: resource, Subresource: subresource, Verb: verb, Name: "any",
			}
		}
	}
	add("", "secrets", "", "get", "list", "watch", "create", "update", "patch", "delete")
	add("", "persistentvolumeclaims", "", "get", "update", "patch", "delete")
	add("", "pods", "", "create", "delete")
	add("", "pods", "exec", "create", "get")
	add("vmstate.io", "vmstatebackups", "", "get", "watch", "update", "patch", "delete")
	add("vmstate.io", "vmstatebackups", "status", "update", "patch")
	add("vmstate.io", "vmstaterestores", "status", "update", "patch")
	add("vmstate.io", "vmstatestores", "status", "update", "patch")
	add("vmstate.io", "vmstatereports", "", "get", "create", "update", "patch", "delete")
	add("vmstate.io", "vmstatereports", "status", "patch", "update")
	add("snapshot.storage.k8s.io", "volumesnapshots", "", "get", "list", "create", "patch", "delete")
	add("kubevirt.io", "virtualmachines", "", "update", "patch", "delete")
	add("kubevirt.io", "virtualmachineinstances", "", "get", "list", "patch", "delete")
	add("subresources.kubevirt.io", "virtualmachineinstances", "unfreeze", "update")
	add("subresources.kubevirt.io", "virtualmachineinstances", "freeze", "update")
	add("subresources.kubevirt.io", "virtualmachineinstances", "pause", "update")
	add("subresources.kubevirt.io", "virtualmachineinstances", "unpause", "update")
	return out
}
