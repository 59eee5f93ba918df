package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// RestoreMode says what a restore makes of a backup.
// +kubebuilder:validation:Enum=InPlace;NewVM
type RestoreMode string

const (
	// RestoreInPlace replaces every volume of the virtual machine that was backed up.
	RestoreInPlace RestoreMode = "InPlace"
	// RestoreNewVM makes a virtual machine that does not exist yet.
	RestoreNewVM RestoreMode = "NewVM"
)

// RestoreSource is one backup: by its object, or by its place in a store.
// +kubebuilder:validation:XValidation:rule="has(self.backupRef) != has(self.storeRef)",message="source needs either backupRef, or storeRef together with vm and commit"
// +kubebuilder:validation:XValidation:rule="has(self.storeRef) == has(self.vm)",message="source.vm (namespace/name, as it was backed up) belongs to storeRef"
// +kubebuilder:validation:XValidation:rule="!has(self.commit) || has(self.storeRef)",message="source.commit belongs to storeRef"
type RestoreSource struct {
	// backupRef is a VMStateBackup in this namespace.
	// +optional
	BackupRef *ObjectRef `json:"backupRef,omitempty"`
	// storeRef is a VMStateStore in this namespace; the backup's object need not exist.
	// +optional
	StoreRef *ObjectRef `json:"storeRef,omitempty"`
	// vm that was backed up, as namespace/name.
	// +optional
	// +kubebuilder:validation:Pattern=`^[^/\s]+/[^/\s]+$`
	// +kubebuilder:validation:MaxLength=317
	VM string `json:"vm,omitempty"`
	// commit: "latest", or the id that kubectl vmstate list prints. Default latest.
	// +optional
	// +kubebuilder:validation:MaxLength=200
	Commit string `json:"commit,omitempty"`
}

// RestoreTarget is the virtual machine that a restore makes.
type RestoreTarget struct {
	// vmName of the new virtual machine.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	VMName string `json:"vmName"`
}

// StopPolicy says what happens to a virtual machine that runs when its restore in place begins.
// +kubebuilder:validation:Enum=Refuse;Stop
type StopPolicy string

const (
	// StopRefuse does not touch a running virtual machine: the restore says that it must be stopped.
	StopRefuse StopPolicy = "Refuse"
	// StopStop stops it, once everything else is known to be possible and all data is there.
	StopStop StopPolicy = "Stop"
)

// StartPolicy says what the virtual machine does after its restore.
// +kubebuilder:validation:Enum=AsBackedUp;Start;Halt
type StartPolicy string

const (
	// StartAsBackedUp gives the virtual machine the run strategy that it had: in place, the one from
	// before the restore; as a new one, that of the backup.
	StartAsBackedUp StartPolicy = "AsBackedUp"
	// StartStart starts it.
	StartStart StartPolicy = "Start"
	// StartHalt leaves it stopped.
	StartHalt StartPolicy = "Halt"
)

// TPMPolicy says what becomes of the vTPM and the EFI variables.
// +kubebuilder:validation:Enum=Keep;Blank
type TPMPolicy string

const (
	// TPMKeep restores the firmware state: what was sealed opens again. Two virtual machines with
	// one TPM cannot exist side by side.
	TPMKeep TPMPolicy = "Keep"
	// TPMBlank starts with an empty vTPM, EFI variables kept: what was sealed to the old TPM does not
	// open; BitLocker asks for its recovery key.
	TPMBlank TPMPolicy = "Blank"
)

// IdentityPolicy says whether an identifier of the hardware stays the same.
// +kubebuilder:validation:Enum=Keep;New
type IdentityPolicy string

const (
	// IdentityKeep keeps it.
	IdentityKeep IdentityPolicy = "Keep"
	// IdentityNew makes a new one.
	IdentityNew IdentityPolicy = "New"
)

// StorageMapping chooses the storage of restored volumes with one role, or of one volume.
type StorageMapping struct {
	// role of the volumes: Disk or FirmwareState.
	// +kubebuilder:validation:Enum=Disk;FirmwareState
	Role VolumeRole `json:"role"`
	// volumeName limits the mapping to one volume.
	// +optional
	VolumeName string `json:"volumeName,omitempty"`
	// storageClassName of the new claims.
	// +kubebuilder:validation:MinLength=1
	StorageClassName string `json:"storageClassName"`
	// accessModes of the new claims. Default: those of the backup.
	// +optional
	// +listType=atomic
	AccessModes []string `json:"accessModes,omitempty"`
}

// VMStateRestoreSpec asks for one backup to be brought back, all of it or nothing.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a restore's spec cannot be changed; create another VMStateRestore"
// +kubebuilder:validation:XValidation:rule="self.mode != 'NewVM' || has(self.target)",message="mode NewVM needs target.vmName"
// +kubebuilder:validation:XValidation:rule="self.mode != 'InPlace' || !has(self.target)",message="mode InPlace restores the virtual machine that was backed up; target belongs to mode NewVM"
// +kubebuilder:validation:XValidation:rule="self.mode != 'InPlace' || !has(self.tpmPolicy) || self.tpmPolicy == 'Keep'",message="mode InPlace keeps the firmware state of the backup; tpmPolicy Blank belongs to mode NewVM"
// +kubebuilder:validation:XValidation:rule="self.mode != 'InPlace' || ((!has(self.firmwareUUID) || self.firmwareUUID == 'Keep') && (!has(self.macAddresses) || self.macAddresses == 'Keep'))",message="mode InPlace keeps firmware UUID and MAC addresses; New belongs to mode NewVM"
type VMStateRestoreSpec struct {
	// source is the backup.
	Source RestoreSource `json:"source"`
	// mode says whether a virtual machine is replaced or made.
	Mode RestoreMode `json:"mode"`
	// target is the virtual machine to make, in the namespace of the restore.
	// +optional
	Target *RestoreTarget `json:"target,omitempty"`
	// identitySecretRef is a Secret whose values are age identities; it is mounted in the restore's
	// Jobs and read by nothing else. It brings what reads every backup into the cluster, which the condition
	// IdentityInCluster says. Without it a restore from a store waits for kubectl vmstate unlock, which hands over
	// the keys of its one backup.
	// +optional
	IdentitySecretRef *ObjectRef `json:"identitySecretRef,omitempty"`
	// stopPolicy for a virtual machine that runs. Default Refuse.
	// +optional
	// +kubebuilder:default=Refuse
	StopPolicy StopPolicy `json:"stopPolicy,omitempty"`
	// startPolicy says what the virtual machine does afterwards. Default AsBackedUp.
	// +optional
	// +kubebuilder:default=AsBackedUp
	StartPolicy StartPolicy `json:"startPolicy,omitempty"`
	// tpmPolicy: Keep or Blank. Default Keep; it must be chosen where the virtual machine that was
	// backed up still exists beside the new one.
	// +optional
	TPMPolicy TPMPolicy `json:"tpmPolicy,omitempty"`
	// firmwareUUID: Keep, or New for a new machine (the TPM's directory moves with it; what the guest
	// bound to the UUID may notice). Default Keep.
	// +optional
	FirmwareUUID IdentityPolicy `json:"firmwareUUID,omitempty"`
	// macAddresses: Keep, or New. Default Keep.
	// +optional
	MACAddresses IdentityPolicy `json:"macAddresses,omitempty"`
	// storage maps volumes to other storage classes than those that they had.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Storage []StorageMapping `json:"storage,omitempty"`
	// keepReplacedSeconds is how long the volumes that a restore in place replaced are kept, from its
	// end on, also where the restore is deleted before. They are not in any virtual machine's reach
	// meanwhile. 0 deletes them at once. Default one day.
	// +optional
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=0
	KeepReplacedSeconds *int64 `json:"keepReplacedSeconds,omitempty"`
	// dryRun stops after the preflight: status.findings lists what would stand in the way, and
	// nothing is changed.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
}

// RestoredFrom is the backup that the source was found to be.
type RestoredFrom struct {
	// vm that was backed up, as namespace/name.
	VM string `json:"vm"`
	// vmUID of that virtual machine.
	VMUID types.UID `json:"vmUID"`
	// backupName of the backup.
	BackupName string `json:"backupName"`
	// commit in the store; absent for a restore from snapshots.
	// +optional
	Commit *CommitRef `json:"commit,omitempty"`
	// takenAt is the end of the cut.
	TakenAt metav1.MicroTime `json:"takenAt"`
	// authentic says what the backup's signature was checked against.
	// +optional
	Authentic string `json:"authentic,omitempty"`
	// documents are the objects that the restore needs: see RestoreDocuments.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Documents *runtime.RawExtension `json:"documents,omitempty"`
	// volumes of the backup.
	// +listType=map
	// +listMapKey=name
	Volumes []VolumeFacts `json:"volumes"`
}

// RestoredVolume is one volume on its way back. Each field is written once.
type RestoredVolume struct {
	// name of the volume in the backup.
	Name string `json:"name"`
	// role of the volume.
	Role VolumeRole `json:"role"`
	// claimName of the new claim.
	ClaimName string `json:"claimName"`
	// claimUID of the new claim, recorded before anything is written to it.
	// +optional
	ClaimUID types.UID `json:"claimUID,omitempty"`
	// verified says that all bytes were read back from the claim and compared.
	// +optional
	Verified bool `json:"verified,omitempty"`
}

// FillProgress is how far the Job is that fills the volumes.
type FillProgress struct {
	// doneBytes of totalBytes; a byte counts half when it is written and half when it was read back.
	// +optional
	DoneBytes int64 `json:"doneBytes,omitempty"`
	// totalBytes of all volumes.
	// +optional
	TotalBytes int64 `json:"totalBytes,omitempty"`
	// progressedAt is when doneBytes changed last. A Job without progress is said to be stalled.
	ProgressedAt metav1.Time `json:"progressedAt"`
}

// ReplacedClaim is a claim that a restore in place took the virtual machine off.
type ReplacedClaim struct {
	// claimName that the volume had.
	ClaimName string `json:"claimName"`
	// claimUID of that claim.
	ClaimUID types.UID `json:"claimUID"`
	// role of the volume.
	Role VolumeRole `json:"role"`
	// persistentVolumeName of the volume; empty if the claim was not bound.
	// +optional
	PersistentVolumeName string `json:"persistentVolumeName,omitempty"`
	// reclaimPolicy that the volume had.
	// +optional
	ReclaimPolicy string `json:"reclaimPolicy,omitempty"`
	// claim as it was, to make it again under another name.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Claim *runtime.RawExtension `json:"claim,omitempty"`
	// keptClaimName is the claim under which the volume is kept.
	KeptClaimName string `json:"keptClaimName"`
	// keptClaimUID of that claim.
	// +optional
	KeptClaimUID types.UID `json:"keptClaimUID,omitempty"`
}

// RestoreSwitch is the record of the steps that put the new volumes in the place of the old
// ones. A restore that dies before committed is rolled back by it, after that it goes forward.
type RestoreSwitch struct {
	// begunAt is when the switch began.
	BegunAt metav1.MicroTime `json:"begunAt"`
	// previous is the virtual machine's spec from before the restore. Absent for a new virtual machine.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	Previous *runtime.RawExtension `json:"previous,omitempty"`
	// previousRunStrategy from before the restore.
	// +optional
	PreviousRunStrategy string `json:"previousRunStrategy,omitempty"`
	// ran says that the virtual machine ran when the switch began.
	// +optional
	Ran bool `json:"ran,omitempty"`
	// vmUID of the virtual machine that is switched.
	// +optional
	VMUID types.UID `json:"vmUID,omitempty"`
	// heldAt is when the virtual machine's spec was seen to point at the claim that does not exist.
	// +optional
	HeldAt *metav1.MicroTime `json:"heldAt,omitempty"`
	// committedAt is when the spec with all new claims was about to be written: the point of no return.
	// +optional
	CommittedAt *metav1.MicroTime `json:"committedAt,omitempty"`
	// doneAt is when the virtual machine was seen with all new claims and its holds removed.
	// +optional
	DoneAt *metav1.MicroTime `json:"doneAt,omitempty"`
	// startedAt is when the virtual machine was seen with the run strategy that it was to have.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// rolledBackAt is when the steps before the point of no return were seen undone.
	// +optional
	RolledBackAt *metav1.MicroTime `json:"rolledBackAt,omitempty"`
}

// RestoreFailure is why a restore was given up. Before switch.committedAt it makes every step
// undone; the two exclude each other, and whichever is written first decides.
type RestoreFailure struct {
	// at is when the restore was given up.
	At metav1.MicroTime `json:"at"`
	// reason of Ready.
	Reason string `json:"reason"`
	// message says what happened and what to do, for a person.
	Message string `json:"message"`
}

// RestoreSummary says in words what kubectl prints.
type RestoreSummary struct {
	// vm that is restored.
	// +optional
	VM string `json:"vm,omitempty"`
	// progress of filling the volumes, as in "42 %".
	// +optional
	Progress string `json:"progress,omitempty"`
}

// VMStateRestoreStatus is what was seen, recorded and reached.
type VMStateRestoreStatus struct {
	// observedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready, IdentityInCluster where spec.identitySecretRef is used, and Reconciling or Stalled while
	// they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// findings of the preflight, all of them at once.
	// +optional
	// +listType=map
	// +listMapKey=check
	Findings []Finding `json:"findings,omitempty"`
	// from is the backup that the source was found to be.
	// +optional
	From *RestoredFrom `json:"from,omitempty"`
	// volumes on their way back.
	// +optional
	// +listType=map
	// +listMapKey=name
	Volumes []RestoredVolume `json:"volumes,omitempty"`
	// queuedAt is when the restore began to wait for a mover of its store; absent when it does not, or not any more.
	// +optional
	QueuedAt *metav1.Time `json:"queuedAt,omitempty"`
	// filling is how far the Job is that fills the volumes.
	// +optional
	Filling *FillProgress `json:"filling,omitempty"`
	// replaced are the claims that the virtual machine had before a restore in place, recorded
	// before anything is done to it.
	// +optional
	// +listType=map
	// +listMapKey=claimName
	Replaced []ReplacedClaim `json:"replaced,omitempty"`
	// switch is the record of putting the new volumes in place.
	// +optional
	Switch *RestoreSwitch `json:"switch,omitempty"`
	// failure is why the restore was given up.
	// +optional
	Failure *RestoreFailure `json:"failure,omitempty"`
	// summary says in words what kubectl prints.
	// +optional
	Summary RestoreSummary `json:"summary,omitempty"`
	// completedAt is when Ready became true, or the restore failed.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
	// replacedRemovedAt is when the replaced volumes were seen to be gone, or kept for good.
	// +optional
	ReplacedRemovedAt *metav1.Time `json:"replacedRemovedAt,omitempty"`
}

// VMStateRestore is one backup brought back as a virtual machine: all its volumes and its
// firmware state, or nothing.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vmsr,categories=vmstate
// +kubebuilder:printcolumn:name="VM",type=string,JSONPath=`.status.summary.vm`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Progress",type=string,JSONPath=`.status.summary.progress`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a restore's name has at most 63 characters"
type VMStateRestore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VMStateRestoreSpec   `json:"spec"`
	Status VMStateRestoreStatus `json:"status,omitempty"`
}

// VMStateRestoreList is a list of VMStateRestore.
//
// +kubebuilder:object:root=true
type VMStateRestoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VMStateRestore `json:"items"`
}
