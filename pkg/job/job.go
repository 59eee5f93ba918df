// Package job builds the Jobs of vmstate and what each needs to run: its report, its service
// account and that account's binding to one small ClusterRole.
//
// Every name is fixed by the UID of the owner, so that an action which runs twice meets its
// own objects. Every pod is of the restricted pod security level: user and group 107 (the user
// of virt-launcher, kubevirt.io/kubevirt pkg/util NonRootUID, who owns firmware state and disk
// images), no capability, no privilege escalation, a read-only root.
package job

import (
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// User is the numeric user and group of every pod.
const User int64 = 107

// ExitFinal is the exit code of a program that no other try can help: what it is told is wrong, or
// its report says how it ended. The Job fails at once.
const ExitFinal = 2

// PriorityClass of every pod: the least, and it never takes another pod's place. Installed with
// the manager (config/rbac/priority.yaml).
const PriorityClass = "vmstate-jobs"

const (
	// EnvConfig holds what the program is told, as JSON.
	EnvConfig = "VMSTATE_CONFIG"
	// EnvReport is the name of the VMStateReport that the program writes.
	EnvReport = "VMSTATE_REPORT"
	// EnvNamespace is the namespace of the pod and of the report.
	EnvNamespace = "VMSTATE_NAMESPACE"
	// EnvPodUID is the UID of the pod, for status.podUID of the report.
	EnvPodUID = "VMSTATE_POD_UID"
)

// Paths that a program finds its mounts at.
const (
	// PathCredentials holds the store's credentials Secret.
	PathCredentials = "/credentials"
	// PathCA holds the store's CA bundle, as ca.crt.
	PathCA = "/ca"
	// PathRepositoryKeys holds the repository's index, name and signing keys.
	PathRepositoryKeys = "/repository-keys"
	// PathPreviousKeys holds those of the epoch before, for a rotation.
	PathPreviousKeys = "/previous-keys"
	// PathMaintenanceKey holds the key that removals are signed with.
	PathMaintenanceKey = "/maintenance-key"
	// PathIdentities holds age identities.
	PathIdentities = "/identities"
	// PathCustomerKey holds the key of server-side encryption with a customer's key.
	PathCustomerKey = "/customer-key"
	// PathWebIdentity holds the service account's token for the cloud, as TokenName.
	PathWebIdentity = "/web-identity"
	// TokenName is the file of that token.
	TokenName = "token"
	// PathState is the folder of the witness's Secrets: /state/<n>, n from 0.
	PathState = "/state"
	// PathSpec holds the documents of the virtual machine.
	PathSpec = "/spec"
	// PathVolumes is the folder of Filesystem volumes: /volumes/<volume>.
	PathVolumes = "/volumes"
	// PathDevices is the folder of Block volumes: /dev/vmstate/<volume>.
	PathDevices = "/dev/vmstate"
	// PathTokens is the folder of tokens for other services: /tokens/<n>, n counts Spec.Audiences.
	PathTokens = "/tokens"
)

// Name of an owner's child: at most 63 characters for a suffix of up to 18.
func Name(owner types.UID, suffix string) string {
	return "vmstate-" + string(owner) + "-" + suffix
}

// Owner is the object that a Job is for. Everything that is made for the Job is controlled by it.
type Owner struct {
	Namespace string
	Ref       metav1.OwnerReference
}

// OwnerOf makes an Owner of an object of the group vmstate.io.
func OwnerOf(obj metav1.Object, kind string) Owner {
	return Owner{
		Namespace: obj.GetNamespace(),
		Ref:       *metav1.NewControllerRef(obj, v1alpha1.GroupVersion.WithKind(kind)),
	}
}

// Meta is the metadata of a child: its name, its owner and the labels by which it is found again.
func (o Owner) Meta(name string, task v1alpha1.ReportTask) metav1.ObjectMeta {
	labels := map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedBy,
		v1alpha1.LabelOwnerUID:  string(o.Ref.UID),
	}
	if task != "" {
		labels[v1alpha1.LabelTask] = string(task)
	}
	return metav1.ObjectMeta{
		Name: name, Namespace: o.Namespace, Labels: labels,
		OwnerReferences: []metav1.OwnerReference{o.Ref},
	}
}

// Mount is one thing that a pod sees. Exactly one of Secret, ConfigMap, Claim and Audience is set.
type Mount struct {
	Secret    string
	ConfigMap string
	Claim     string
	// Audience is that of a token of Account, a service account of the user's own, which the Job
	// then runs under.
	Audience string
	Account  string
	// Path in the container: a folder, or the device of a Block claim.
	Path string
	// Block says that the claim is a raw device.
	Block bool
	// ReadOnly mounts a claim read-only in the container. The volume itself stays read-write: a
	// read-only volume can be another superblock, with other contents (NFS).
	ReadOnly bool
	// Optional lets the pod start where the Secret or ConfigMap does not exist: its program says so.
	Optional bool
}

// Placement ties a pod to the node and the security labels of a virt-launcher pod.
type Placement struct {
	NodeName    string
	Tolerations []corev1.Toleration
	SELinux     *corev1.SELinuxOptions
	// SELinuxChangePolicy of the volumes; nil leaves it to the cluster.
	SELinuxChangePolicy *corev1.PodSELinuxChangePolicy
}

// Spec is one Job: what it does, what it is told, what it sees.
type Spec struct {
	// Name of the Job and of its report.
	Name string
	// Task decides the program, its first argument and the ClusterRole of its account.
	Task v1alpha1.ReportTask
	// Config is given to the program as JSON.
	Config []byte
	// Mounts of the pod.
	Mounts []Mount
	// Audiences that the pod needs a token for.
	Audiences []string
	// Store that the Job counts for as a mover; "" where it does not count. Slot of it on a node, from 1: no two pods of
	// one store and slot run on one node; 0 does not keep them apart.
	Store string
	Slot  int32
	// Placement of the pod; nil where it may run anywhere.
	Placement *Placement
	// OwnVolumes says that every claim was made for this Job (a clone, a fresh claim), so that the
	// kubelet may give it to group 107. Never set it for a claim that a guest uses.
	OwnVolumes bool
	// Deadline of a pod from when its node has taken it, so that waiting for room does not count; of a witness, whose
	// end others count on, of the Job from its start. 0 for none.
	Deadline time.Duration
	// Retries of the pod after its first failure.
	Retries int32
}

// Objects are what a Job needs, in the order in which they must be made.
type Objects struct {
	Account *corev1.ServiceAccount
	Binding *rbacv1.RoleBinding
	Report  *v1alpha1.VMStateReport
	Job     *batchv1.Job
}

// Build makes the objects of one Job. image is that of vmstate, which holds all its programs.
func Build(owner Owner, image string, s Spec) Objects {
	account := AccountName(owner.Ref.UID, s.Task)
	objects := Objects{
		Account: &corev1.ServiceAccount{ObjectMeta: owner.Meta(account, "")},
		Binding: &rbacv1.RoleBinding{
			ObjectMeta: owner.Meta(account, ""),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: ClusterRole(s.Task)},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: runsAs(account, s.Mounts), Namespace: owner.Namespace}},
		},
		Report: &v1alpha1.VMStateReport{
			ObjectMeta: owner.Meta(s.Name, s.Task),
			Spec:       v1alpha1.VMStateReportSpec{Task: s.Task},
		},
	}
	meta := owner.Meta(s.Name, s.Task)
	if s.Store != "" {
		meta.Labels[v1alpha1.LabelStore] = s.Store
	}
	if s.Slot > 0 {
		meta.Labels[v1alpha1.LabelNodeSlot] = strconv.Itoa(int(s.Slot))
	}
	spec := batchv1.JobSpec{
		BackoffLimit: &s.Retries,
		// A pod that may still write must have ended before another takes its place.
		PodReplacementPolicy: ptr(batchv1.Failed),
		PodFailurePolicy:     failurePolicy(s.Task),
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels},
			Spec:       podSpec(runsAs(account, s.Mounts), image, s),
		},
	}
	if seconds := int64(s.Deadline / time.Second); seconds > 0 && s.Task == v1alpha1.TaskWitness {
		spec.ActiveDeadlineSeconds = &seconds
	} else if seconds > 0 {
		spec.Template.Spec.ActiveDeadlineSeconds = &seconds
	}
	objects.Job = &batchv1.Job{ObjectMeta: meta, Spec: spec}
	return objects
}

// runsAs is the account of the pod: own, unless a mount says that it is the user's, whose token
// some cloud trusts. The binding then is that account's for as long as own exists.
func runsAs(own string, mounts []Mount) string {
	for _, m := range mounts {
		if m.Account != "" {
			return m.Account
		}
	}
	return own
}

// Role names what a task's pod may do: mover, setup, maintenance or witness.
func Role(task v1alpha1.ReportTask) string {
	switch task {
	case v1alpha1.TaskWitness:
		return "witness"
	case v1alpha1.TaskSetup:
		return "setup"
	case v1alpha1.TaskMaintain:
		return "maintenance"
	default:
		return "mover"
	}
}

// ClusterRole is the pre-installed role that the account of a task is bound to.
func ClusterRole(task v1alpha1.ReportTask) string { return "vmstate-" + Role(task) }

// AccountName is the service account, and its binding, that an owner's Jobs of a task run under.
func AccountName(owner types.UID, task v1alpha1.ReportTask) string {
	return Name(owner, Role(task))
}
