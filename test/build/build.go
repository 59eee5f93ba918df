// Package build makes objects for tests: build.VM("db", build.Disk("root"), build.TPM()).
//
// Everything lives in Namespace unless changed afterwards. UIDs are the kind and the name, so
// that a test can say them: the claim root-db has the UID claim-root-db.
package build

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

const (
	// Namespace of every object.
	Namespace = "prod"
	// Driver of every volume, unless changed.
	Driver = "csi.example.com"
	// Class of every claim, unless changed.
	Class = "fast"
	// FirmwareUUID of every VM, unless changed.
	FirmwareUUID = "11111111-2222-3333-4444-555555555555"
	// Node that instances run on.
	Node = "node-1"
)

// Option changes a VirtualMachine.
type Option func(*kubevirtv1.VirtualMachine)

// VM makes a halted VirtualMachine.
func VM(name string, options ...Option) *kubevirtv1.VirtualMachine {
	halted := kubevirtv1.RunStrategyHalted
	vm := &kubevirtv1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: kubevirtv1.GroupVersion.String(), Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, UID: types.UID("vm-" + name)},
		Spec: kubevirtv1.VirtualMachineSpec{
			RunStrategy: &halted,
			Template:    &kubevirtv1.VirtualMachineInstanceTemplateSpec{},
		},
	}
	vm.Spec.Template.Spec.Domain.Firmware = &kubevirtv1.Firmware{UUID: FirmwareUUID}
	for _, option := range options {
		option(vm)
	}
	return vm
}

// Disk adds a persistent disk; its claim is <disk>-<vm>.
func Disk(name string) Option {
	return func(vm *kubevirtv1.VirtualMachine) {
		source := &kubevirtv1.PersistentVolumeClaimVolumeSource{}
		source.ClaimName = name + "-" + vm.Name
		Volume(name, kubevirtv1.VolumeSource{PersistentVolumeClaim: source})(vm)
	}
}

// Volume adds a volume and a disk that shows it.
func Volume(name string, source kubevirtv1.VolumeSource) Option {
	return func(vm *kubevirtv1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Volumes = append(spec.Volumes, kubevirtv1.Volume{Name: name, VolumeSource: source})
		spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, kubevirtv1.Disk{Name: name})
	}
}

// TPM asks for a persistent TPM.
func TPM() Option {
	return func(vm *kubevirtv1.VirtualMachine) {
		persistent := true
		vm.Spec.Template.Spec.Domain.Devices.TPM = &kubevirtv1.TPMDevice{Persistent: &persistent}
	}
}

// EFI asks for persistent EFI variables.
func EFI() Option {
	return func(vm *kubevirtv1.VirtualMachine) {
		persistent := true
		vm.Spec.Template.Spec.Domain.Firmware.Bootloader = &kubevirtv1.Bootloader{EFI: &kubevirtv1.EFI{Persistent: &persistent}}
	}
}

// VMI makes the running instance of a VM, with its launcher known to run on Node.
func VMI(vm *kubevirtv1.VirtualMachine) *kubevirtv1.VirtualMachineInstance {
	vmi := &kubevirtv1.VirtualMachineInstance{
		TypeMeta: metav1.TypeMeta{APIVersion: kubevirtv1.GroupVersion.String(), Kind: "VirtualMachineInstance"},
		ObjectMeta: metav1.ObjectMeta{
			Name: vm.Name, Namespace: vm.Namespace, UID: types.UID("vmi-" + vm.Name),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirtv1.VirtualMachineGroupVersionKind)},
		},
		Spec: *vm.Spec.Template.Spec.DeepCopy(),
		Status: kubevirtv1.VirtualMachineInstanceStatus{
			SelinuxContext: "none",
			Phase:          kubevirtv1.Running,
			NodeName:       Node,
		},
	}
	vmi.Status.ActivePods = map[types.UID]string{types.UID("pod-" + vm.Name): Node}
	return vmi
}

// Agent says that the guest agent is connected.
func Agent(vmi *kubevirtv1.VirtualMachineInstance) *kubevirtv1.VirtualMachineInstance {
	vmi.Status.Conditions = append(vmi.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{
		Type: kubevirtv1.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue,
	})
	return vmi
}

// Launcher makes the virt-launcher pod of a VM, with claims that it mounts.
func Launcher(vm *kubevirtv1.VirtualMachine, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "virt-launcher-" + vm.Name, Namespace: vm.Namespace, UID: types.UID("pod-" + vm.Name),
			Labels:      map[string]string{kubevirtv1.AppLabel: "virt-launcher", kubevirtv1.CreatedByLabel: "vmi-" + vm.Name},
			Annotations: map[string]string{kubevirtv1.DomainAnnotation: vm.Name},
		},
		Spec:   corev1.PodSpec{NodeName: Node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

// Claim makes a bound claim of 1 GiB, Filesystem and ReadWriteOnce; its volume is pv-<claim>.
func Claim(name string) *corev1.PersistentVolumeClaim {
	class, mode := Class, corev1.PersistentVolumeFilesystem
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, UID: types.UID("claim-" + name)},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			VolumeMode:       &mode,
			VolumeName:       "pv-" + name,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{
			Phase:    corev1.ClaimBound,
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		},
	}
}

// StateClaim makes the claim that holds the firmware state of a VM.
func StateClaim(vm, suffix string) *corev1.PersistentVolumeClaim {
	claim := Claim("persistent-state-for-" + vm + "-" + suffix)
	claim.Labels = map[string]string{v1alpha1.LabelPersistentState: vm}
	return claim
}

// PV makes the volume that a claim is bound to; its handle is handle-<claim>.
func PV(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + claim.Name, UID: types.UID("pv-" + claim.Name)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:   claim.Status.Capacity,
			VolumeMode: claim.Spec.VolumeMode,
			ClaimRef:   &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: "handle-" + claim.Name},
			},
		},
	}
}

// StorageClass makes a class of Driver.
func StorageClass(name string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: Driver}
}

// Backup makes a VMStateBackup of a VM, exported to the store main.
func Backup(name, vm string) *v1alpha1.VMStateBackup {
	return &v1alpha1.VMStateBackup{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, UID: types.UID("backup-" + name), Generation: 1},
		Spec: v1alpha1.VMStateBackupSpec{
			VMName: vm, StoreRef: &v1alpha1.ObjectRef{Name: "main"},
			Quiesce: v1alpha1.QuiesceIfAvailable, FreezeTimeoutSeconds: 30,
		},
	}
}

// Store makes a VMStateStore that is ready and writable.
func Store(name string) *v1alpha1.VMStateStore {
	return &v1alpha1.VMStateStore{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, UID: types.UID("store-" + name), Generation: 1},
		Spec: v1alpha1.VMStateStoreSpec{
			S3: v1alpha1.S3Store{
				Endpoint: "https://s3.example.com", Bucket: "vm-backups", Region: "us-east-1", Addressing: "Path",
				CredentialsSecretRef: &v1alpha1.ObjectRef{Name: "s3-write"},
			},
			Recipients: []string{"age1pq1first", "age1pq1second"},
		},
		Status: v1alpha1.VMStateStoreStatus{
			ObservedGeneration: 1,
			ChecksumMode:       "CRC32C",
			RepositoryID:       "r1",
			KeysSecretName:     name + "-repository-keys",
			Conditions: []metav1.Condition{
				{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonProbed},
				{Type: v1alpha1.ConditionWritable, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonKeysHere},
			},
		},
	}
}
