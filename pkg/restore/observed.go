package restore

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
)

// Observed is what exists around one restore. Nil is absent; what is not looked at in
// a phase is said at its field.
type Observed struct {
	Now     time.Time
	Restore *v1alpha1.VMStateRestore
	// Backup that spec.source names by its object.
	Backup *v1alpha1.VMStateBackup
	// Documents of a backup without a store: what a store's commit would say.
	Documents []byte
	// Store that spec.source names, or that the backup was sent to.
	Store *v1alpha1.VMStateStore
	// Jobs of this restore.
	Resolve, Import *JobSeen
	// Accounts of the Jobs: service account and role binding, of the name AccountName.
	Accounts []Account
	// Machine is decoded from status.from; nil until it is recorded.
	Machine *Machine
	// Unreadable is why it cannot be decoded from there; empty if it can.
	Unreadable string
	// Cluster is looked at during the preflight alone.
	Cluster *Cluster
	// Target is the virtual machine under the name that is restored to; read live.
	Target *Target
	// Instance of that name, whoever made it; read live.
	Instance *kubevirtv1.VirtualMachineInstance
	// Claims of the namespace by name; read live.
	Claims map[string]*corev1.PersistentVolumeClaim
	// Volumes are the PersistentVolumes of replaced claims, by name; read live.
	Volumes map[string]*corev1.PersistentVolume
	// NamespaceGoes says that the namespace is being deleted: no claim can be made in it any more. It is
	// looked at between the point of no return and the end.
	NamespaceGoes bool
	// Revisions that this restore made, by name.
	Revisions map[string]*appsv1.ControllerRevision
}

// JobSeen is a Job of the restore with its report.
type JobSeen struct {
	Name string
	UID  types.UID
	// Report of the Job; nil if it does not exist (yet).
	Report *v1alpha1.VMStateReport
	// Active says that a pod of the Job has not ended: it can still write.
	Active bool
	// Failed says that the Job gave up; Message says why.
	Failed bool
	// Standing says how its newest pod stands; empty if that is not known.
	Standing string
	// Pending says what keeps the Job's pod from running; empty if nothing does.
	Pending string
	Message string
}

// Account is a service account or a role binding that was made for the Jobs.
type Account struct {
	Kind action.Kind
	Name string
	UID  types.UID
}

// Target is a virtual machine as it is now.
type Target struct {
	VM *kubevirtv1.VirtualMachine
	// Spec with the fields that this version of KubeVirt's types does not know.
	Spec map[string]any
}

// Cluster is what a restore needs to find beside its own objects.
type Cluster struct {
	Namespace *corev1.Namespace
	// Machines of the whole cluster.
	Machines []kubevirtv1.VirtualMachine
	// Instances of the whole cluster.
	Instances      []kubevirtv1.VirtualMachineInstance
	StorageClasses []storagev1.StorageClass
	Quotas         []corev1.ResourceQuota
	// Present tells which of Needs exist. What is not in it could not be looked at.
	Present map[Need]bool
	// CPUModels that a node can give to a guest; empty if no node says.
	CPUModels []string
	// KubeVirtVersion of this cluster; empty if unknown.
	KubeVirtVersion string
}
