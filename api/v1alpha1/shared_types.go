package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ObjectRef names an object of a kind that the field implies, in the namespace
// of the object that holds the reference.
type ObjectRef struct {
	// name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// VolumeRole says what a volume is to the virtual machine.
// +kubebuilder:validation:Enum=Disk;FirmwareState;Spec
type VolumeRole string

const (
	// RoleDisk is a disk of the guest: a raw device, or disk.img in a filesystem.
	RoleDisk VolumeRole = "Disk"
	// RoleFirmwareState is the volume labelled persistent-state-for=<vm>: vTPM and EFI variables.
	RoleFirmwareState VolumeRole = "FirmwareState"
	// RoleSpec is not a volume of the cluster: it carries the objects that a restore needs
	// (VirtualMachine, ControllerRevisions, facts of the claims).
	RoleSpec VolumeRole = "Spec"
)

// DiskBinding says how the disks of a moment were bound together.
// +kubebuilder:validation:Enum=Offline;SingleDisk;Group;Fence
type DiskBinding string

const (
	// DisksOffline: the virtual machine did not run while the snapshots were cut.
	DisksOffline DiskBinding = "Offline"
	// DisksSingle: one disk, one snapshot.
	DisksSingle DiskBinding = "SingleDisk"
	// DisksGroup: one VolumeGroupSnapshot over all disks.
	DisksGroup DiskBinding = "Group"
	// DisksFence: the guest was paused while the snapshots were cut one after another.
	DisksFence DiskBinding = "Fence"
)

// StateBinding says how the firmware state was bound to the disks.
// +kubebuilder:validation:Enum=Offline;Witness;Fence;None
type StateBinding string

const (
	// StateOffline: read while the virtual machine did not run.
	StateOffline StateBinding = "Offline"
	// StateWitness: read before and after the cut, and found unchanged.
	StateWitness StateBinding = "Witness"
	// StateFence: read while the guest was paused for the cut.
	StateFence StateBinding = "Fence"
	// StateNone: the virtual machine asks for no persistent TPM and no persistent EFI.
	StateNone StateBinding = "None"
)

// QuiesceOutcome says whether the guest's filesystems were frozen during the cut.
// +kubebuilder:validation:Enum=Frozen;NotAsked;NoAgent;Failed;Offline
type QuiesceOutcome string

const (
	// QuiesceFrozen: the guest agent confirmed the freeze before the cut, and the guest was still frozen after it.
	QuiesceFrozen QuiesceOutcome = "Frozen"
	// QuiesceNotAsked: spec.quiesce is Never.
	QuiesceNotAsked QuiesceOutcome = "NotAsked"
	// QuiesceNoAgent: no guest agent is connected.
	QuiesceNoAgent QuiesceOutcome = "NoAgent"
	// QuiesceFailed: the agent refused or the freeze did not last until the cut; the disks are crash-consistent.
	QuiesceFailed QuiesceOutcome = "Failed"
	// QuiesceOffline: the virtual machine did not run.
	QuiesceOffline QuiesceOutcome = "Offline"
)

// CommitRef is one commit record in a store. Key and digest together name it:
// a record at the key with another digest is not this backup.
type CommitRef struct {
	// key of the commit record, relative to the store's prefix.
	Key string `json:"key"`
	// digest is the SHA-256 of the commit record, in lower-case hexadecimal.
	Digest string `json:"digest"`
	// sequence of the commit in the virtual machine's chain, from 1.
	Sequence int64 `json:"sequence"`
}

// Moment is the instant that a backup holds, and how it was proven to be one.
type Moment struct {
	// disks says how the disks were bound together.
	Disks DiskBinding `json:"disks"`
	// state says how the firmware state was bound to the disks.
	State StateBinding `json:"state"`
	// quiesce says whether the guest's filesystems were frozen during the cut.
	Quiesce QuiesceOutcome `json:"quiesce"`
	// quiesceMessage says why the guest was not frozen.
	// +optional
	QuiesceMessage string `json:"quiesceMessage,omitempty"`
	// cutStarted is when the first snapshot was asked for.
	CutStarted metav1.MicroTime `json:"cutStarted"`
	// cutEnded is when the last snapshot was known to carry a handle.
	CutEnded metav1.MicroTime `json:"cutEnded"`
	// windowMilliseconds between the end of the first reading of the firmware state and the
	// start of the second; nothing changed in it. 0 without a witness.
	// +optional
	WindowMilliseconds int64 `json:"windowMilliseconds,omitempty"`
	// frozenMilliseconds from the request to freeze until the guest was released. 0 if it was not frozen.
	// +optional
	FrozenMilliseconds int64 `json:"frozenMilliseconds,omitempty"`
	// pausedMilliseconds from the request to pause until the guest was released. 0 if it was not paused
	// for the backup.
	// +optional
	PausedMilliseconds int64 `json:"pausedMilliseconds,omitempty"`
	// skewMilliseconds between the first and the last creation time that the storage reported for the
	// snapshots. 0 if there is one, or if it reported none. It proves nothing.
	// +optional
	SkewMilliseconds int64 `json:"skewMilliseconds,omitempty"`
	// stateDigest is the digest of the firmware state, in lower-case hexadecimal; what is
	// exported must equal it.
	// +optional
	StateDigest string `json:"stateDigest,omitempty"`
	// attempts made until the firmware state did not change during the cut.
	Attempts int32 `json:"attempts"`
}

// VolumeFacts is what is known of one volume of a virtual machine when it is captured.
type VolumeFacts struct {
	// name of the volume in the virtual machine's spec; the claim's name for firmware state.
	Name string `json:"name"`
	// role of the volume.
	Role VolumeRole `json:"role"`
	// claimName is the PersistentVolumeClaim, if the volume has one.
	// +optional
	ClaimName string `json:"claimName,omitempty"`
	// claimUID is the UID of that claim.
	// +optional
	ClaimUID types.UID `json:"claimUID,omitempty"`
	// storageClassName of the claim.
	// +optional
	StorageClassName string `json:"storageClassName,omitempty"`
	// driver is the CSI driver of the claim's volume; empty if it has none.
	// +optional
	Driver string `json:"driver,omitempty"`
	// volumeMode of the claim: Block or Filesystem.
	// +optional
	VolumeMode string `json:"volumeMode,omitempty"`
	// accessModes of the claim.
	// +optional
	// +listType=atomic
	AccessModes []string `json:"accessModes,omitempty"`
	// sizeBytes is the capacity of the claim's volume.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
}

// ReadingWay is how a volume was read.
// +kubebuilder:validation:Enum=Audited;All;Allocated;Changed
type ReadingWay string

const (
	// ReadAudited: all of it, and compared with what the driver said had changed.
	ReadAudited ReadingWay = "Audited"
	// ReadAll: all of it, but what the kernel knows to be holes.
	ReadAll ReadingWay = "All"
	// ReadAllocated: what the driver says is allocated; the rest is zero by its word.
	ReadAllocated ReadingWay = "Allocated"
	// ReadChanged: what the driver says has changed since the backup before; the rest was taken over unread.
	ReadChanged ReadingWay = "Changed"
)

// VolumeReading is how a volume was read, and what was found.
type VolumeReading struct {
	// name of the volume.
	Name string `json:"name"`
	// way it was read.
	Way ReadingWay `json:"way"`
	// reason why more was read than the storage could have told of.
	// +optional
	Reason string `json:"reason,omitempty"`
	// unreadBytes were taken over from the backup before on the driver's word.
	// +optional
	UnreadBytes int64 `json:"unreadBytes,omitempty"`
	// fullySequence is the sequence of the latest commit of the chain that read all of the
	// volume; 0 if none has.
	// +optional
	FullySequence int64 `json:"fullySequence,omitempty"`
	// fullyReadAt is the moment of that commit, or of the chain's first if none has; absent if the repository does not tell.
	// +optional
	FullyReadAt *metav1.MicroTime `json:"fullyReadAt,omitempty"`
	// untoldBytes had changed since the backup before, and the driver had told of no change there.
	// +optional
	UntoldBytes int64 `json:"untoldBytes,omitempty"`
	// untoldAt is the offset of the first of them.
	// +optional
	UntoldAt int64 `json:"untoldAt,omitempty"`
}
