package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// QuiescePolicy says whether guest filesystems are frozen through the guest agent during the cut.
// +kubebuilder:validation:Enum=IfAvailable;Required;Never
type QuiescePolicy string

const (
	// QuiesceIfAvailable freezes when an agent is connected, and goes on crash-consistent if that fails.
	QuiesceIfAvailable QuiescePolicy = "IfAvailable"
	// QuiesceRequired fails the backup if a running guest was not frozen during the cut.
	QuiesceRequired QuiescePolicy = "Required"
	// QuiesceNever does not freeze.
	QuiesceNever QuiescePolicy = "Never"
)

// ChangedBlocksPolicy says whether the storage is asked which blocks need be read.
// +kubebuilder:validation:Enum=IfAvailable;Audit;Never
type ChangedBlocksPolicy string

const (
	// ChangedBlocksIfAvailable reads what the CSI driver says has changed, where it says so, and
	// keeps the snapshots on the storage until the next backup of the virtual machine has been
	// exported. Every so often (auditDays of the store) everything is read and compared.
	ChangedBlocksIfAvailable ChangedBlocksPolicy = "IfAvailable"
	// ChangedBlocksAudit reads everything now, and compares it with what the driver says.
	ChangedBlocksAudit ChangedBlocksPolicy = "Audit"
	// ChangedBlocksNever asks no driver, and keeps no snapshot.
	ChangedBlocksNever ChangedBlocksPolicy = "Never"
)

// FirmwareStatePolicy says whether a backup without firmware state is one.
// +kubebuilder:validation:Enum=IfPersistent;Required
type FirmwareStatePolicy string

const (
	// FirmwareStateIfPersistent holds what the virtual machine keeps: TPM, EFI variables, both or none.
	FirmwareStateIfPersistent FirmwareStatePolicy = "IfPersistent"
	// FirmwareStateRequired refuses a virtual machine that keeps neither: somebody has switched its
	// persistence off, or its preference did.
	FirmwareStateRequired FirmwareStatePolicy = "Required"
)

// BackupRequirements are the least that a backup must hold, and the most that it may cost the guest. What
// cannot be met is refused before the guest is touched. That the guest's filesystems must be frozen is
// spec.quiesce Required.
type BackupRequirements struct {
	// maxPause bounds how long a running guest may be paused while its disks are cut one after another, as
	// in 2s or 1500ms; a backup that needs a longer pause fails. The guest is paused only if it has several
	// disks that nothing else cuts at one instant, or firmware state that changes at every try. 0s never
	// pauses it. At most 5m, and at most freezeTimeoutSeconds unless quiesce is Never: a guest that is paused
	// stays frozen. Default 2s, which connections outlast and clusters of guests take for no failure.
	// +optional
	// +kubebuilder:default="2s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m))+$`
	// +kubebuilder:validation:XValidation:rule="!self.matches('[0-9](ms|s|m)$') || duration(self) <= duration('5m')",message="maxPause is at most 5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration(oldSelf)",message="a backup's spec cannot be changed, but for deletionPolicy; create another VMStateBackup"
	MaxPause *metav1.Duration `json:"maxPause,omitempty"`

	// firmwareState says whether the virtual machine must keep firmware state. Default IfPersistent.
	// +optional
	// +kubebuilder:default=IfPersistent
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a backup's spec cannot be changed, but for deletionPolicy; create another VMStateBackup"
	FirmwareState FirmwareStatePolicy `json:"firmwareState,omitempty"`
}

// VMStateBackupSpec asks for one moment of one virtual machine. But for deletionPolicy it cannot
// be changed: a backup is what it was asked to be.
// +kubebuilder:validation:XValidation:rule="self.vmName == oldSelf.vmName && has(self.storeRef) == has(oldSelf.storeRef) && (!has(self.storeRef) || self.storeRef == oldSelf.storeRef) && has(self.commit) == has(oldSelf.commit) && (!has(self.commit) || self.commit == oldSelf.commit) && has(self.quiesce) == has(oldSelf.quiesce) && (!has(self.quiesce) || self.quiesce == oldSelf.quiesce) && has(self.freezeTimeoutSeconds) == has(oldSelf.freezeTimeoutSeconds) && (!has(self.freezeTimeoutSeconds) || self.freezeTimeoutSeconds == oldSelf.freezeTimeoutSeconds) && has(self.changedBlocks) == has(oldSelf.changedBlocks) && (!has(self.changedBlocks) || self.changedBlocks == oldSelf.changedBlocks)",message="a backup's spec cannot be changed, but for deletionPolicy; create another VMStateBackup"
// +kubebuilder:validation:XValidation:rule="!has(self.commit) || has(self.storeRef)",message="commit names a backup in a store: say which store with storeRef"
// +kubebuilder:validation:XValidation:rule="!has(self.require) || !has(self.require.maxPause) || (has(self.quiesce) && self.quiesce == 'Never') || !has(self.freezeTimeoutSeconds) || !self.require.maxPause.matches('[0-9](ms|s|m)$') || duration(self.require.maxPause).getMilliseconds() <= self.freezeTimeoutSeconds * 1000",message="require.maxPause is longer than freezeTimeoutSeconds: a guest that is paused stays frozen, so raise freezeTimeoutSeconds, or set quiesce to Never"
type VMStateBackupSpec struct {
	// vmName is the VirtualMachine to back up, in the namespace of the backup.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	VMName string `json:"vmName"`

	// storeRef is the VMStateStore that the moment is exported to. Without it the backup
	// consists of snapshots and a copy of the firmware state, and can be restored in this
	// namespace only, for as long as the storage keeps them.
	// +optional
	StoreRef *ObjectRef `json:"storeRef,omitempty"`

	// quiesce says whether guest filesystems are frozen during the cut. Default IfAvailable.
	// +optional
	// +kubebuilder:default=IfAvailable
	Quiesce QuiescePolicy `json:"quiesce,omitempty"`

	// freezeTimeoutSeconds bounds how long guest filesystems stay frozen. The guest is thawed
	// when it elapses, whatever became of the snapshots. Default 30.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=5
	// +kubebuilder:validation:Maximum=300
	FreezeTimeoutSeconds int32 `json:"freezeTimeoutSeconds,omitempty"`

	// require says what the backup must hold, and what it may cost the guest.
	// +optional
	// +kubebuilder:default={}
	Require BackupRequirements `json:"require,omitzero"`

	// changedBlocks says whether the storage is asked which blocks of Block volumes need be read
	// (CSI snapshot metadata). Default IfAvailable, which keeps nothing on storage without it.
	// +optional
	// +kubebuilder:default=IfAvailable
	ChangedBlocks ChangedBlocksPolicy `json:"changedBlocks,omitempty"`

	// commit is a backup that is in the store already. Nothing is captured then: the status is
	// filled from the record in the store, and the backup is Ready to restore from.
	// +optional
	Commit *CommitRef `json:"commit,omitempty"`

	// deletionPolicy says what becomes of the backup in its store when this object is deleted.
	// Retain leaves it there. Delete keeps the object until the store's maintenance has marked
	// the backup for removal; a namespace that is being deleted is not held up, and the backup
	// stays. Can be changed at any time. Default Retain.
	// +optional
	// +kubebuilder:default=Retain
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// VolumeOutcome says whether a volume of the virtual machine is in the backup.
// +kubebuilder:validation:Enum=Included;Excluded
type VolumeOutcome string

const (
	// VolumeIncluded: the volume is part of the moment.
	VolumeIncluded VolumeOutcome = "Included"
	// VolumeExcluded: the volume is not part of it; its reason says why that loses nothing.
	VolumeExcluded VolumeOutcome = "Excluded"
)

// BackupVolume is one volume of the virtual machine, in the backup or not.
type BackupVolume struct {
	VolumeFacts `json:",inline"`
	// handle of the claim's volume at its driver, by which a snapshot is known to be of this volume
	// after the claim is gone.
	// +optional
	Handle string `json:"handle,omitempty"`
	// outcome says whether the volume is in the backup.
	Outcome VolumeOutcome `json:"outcome"`
	// reason why the volume is excluded, for a person.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// CapturedVM is the virtual machine as it was when the backup was planned. A moment that
// ends with another one is discarded.
type CapturedVM struct {
	// uid of the VirtualMachine.
	UID types.UID `json:"uid"`
	// instanceUID of the VirtualMachineInstance; empty if the virtual machine did not run.
	// +optional
	InstanceUID types.UID `json:"instanceUID,omitempty"`
	// nodeName that the instance ran on.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// launcherUID is the UID of the virt-launcher pod.
	// +optional
	LauncherUID types.UID `json:"launcherUID,omitempty"`
	// firmwareUUID as the guest sees it; names the TPM's directory.
	// +optional
	FirmwareUUID string `json:"firmwareUUID,omitempty"`
	// statePVCUID is the UID of the claim that holds the firmware state.
	// +optional
	StatePVCUID types.UID `json:"statePVCUID,omitempty"`
	// stateClaimName is the claim that holds the firmware state.
	// +optional
	StateClaimName string `json:"stateClaimName,omitempty"`
	// migrationUID of the last migration that the instance knew.
	// +optional
	MigrationUID types.UID `json:"migrationUID,omitempty"`
	// persistentTPM says that the TPM is kept in the state volume.
	PersistentTPM bool `json:"persistentTPM"`
	// persistentEFI says that the EFI variables are kept in the state volume.
	PersistentEFI bool `json:"persistentEFI"`
}

// CutSnapshot is one snapshot of the moment.
type CutSnapshot struct {
	// volumeName in status.volumes.
	VolumeName string `json:"volumeName"`
	// snapshotName is the VolumeSnapshot, in the namespace of the backup.
	SnapshotName string `json:"snapshotName"`
	// contentName is the VolumeSnapshotContent that the snapshot is bound to.
	ContentName string `json:"contentName"`
	// handle of the snapshot on the storage.
	Handle string `json:"handle"`
	// restoreSizeBytes that a claim made from the snapshot must have at least.
	// +optional
	RestoreSizeBytes int64 `json:"restoreSizeBytes,omitempty"`
}

// LocalCopy is what a backup without a store consists of.
type LocalCopy struct {
	// snapshots of the disks; kept until the backup is deleted.
	// +listType=map
	// +listMapKey=volumeName
	Snapshots []CutSnapshot `json:"snapshots"`
	// stateClaimName is the claim that keeps the firmware state. It does not carry the label
	// that would make it the virtual machine's own.
	// +optional
	StateClaimName string `json:"stateClaimName,omitempty"`
}

// ExportStatus is how far the export is, and what came of it.
type ExportStatus struct {
	// readBytes from the volumes so far.
	// +optional
	ReadBytes int64 `json:"readBytes,omitempty"`
	// totalBytes of all volumes.
	// +optional
	TotalBytes int64 `json:"totalBytes,omitempty"`
	// sentBytes to the store, after compression and encryption.
	// +optional
	SentBytes int64 `json:"sentBytes,omitempty"`
	// progressedAt is when the figures above changed last. An export without progress is given up.
	// +optional
	ProgressedAt *metav1.Time `json:"progressedAt,omitempty"`
	// parent is the commit that unchanged data was taken over from.
	// +optional
	Parent *CommitRef `json:"parent,omitempty"`
	// commit is the backup in the store. Set once every volume is there.
	// +optional
	Commit *CommitRef `json:"commit,omitempty"`
	// readings say how each disk was read.
	// +optional
	// +listType=map
	// +listMapKey=name
	Readings []VolumeReading `json:"readings,omitempty"`
	// fullyReadAt is the moment of the latest backup of this chain whose disks were read in full, or of its
	// first: the next audit counts from here. It is absent if the repository does not tell, and then the next backup is one.
	// +optional
	FullyReadAt *metav1.MicroTime `json:"fullyReadAt,omitempty"`
	// base is what is kept on the storage so that the next backup can ask what has changed since.
	// It goes when that backup is committed, when the virtual machine or the store is gone, and with this object.
	// +optional
	Base *BaseSnapshots `json:"base,omitempty"`
}

// BaseSnapshots are snapshots of a stored backup that are kept on the storage.
type BaseSnapshots struct {
	// snapshots of the disks.
	// +listType=map
	// +listMapKey=volumeName
	Snapshots []CutSnapshot `json:"snapshots"`
}

// Failure is why a backup failed. It is recorded before what was made is removed.
type Failure struct {
	// reason: one of the reasons in package v1alpha1.
	Reason string `json:"reason"`
	// message for a person: what happened, to which volume, what to do.
	Message string `json:"message"`
}

// BackupSummary says in words what kubectl prints.
type BackupSummary struct {
	// moment is how disks and state were bound, as in "Group+Witness".
	// +optional
	Moment string `json:"moment,omitempty"`
	// size of all volumes, with a binary unit.
	// +optional
	Size string `json:"size,omitempty"`
	// paused is how long the guest was paused for the cut, as in "640ms".
	// +optional
	Paused string `json:"paused,omitempty"`
	// sent to the store, with a binary unit.
	// +optional
	Sent string `json:"sent,omitempty"`
}

// VMStateBackupStatus is what was seen, recorded and reached.
type VMStateBackupStatus struct {
	// observedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready, and Reconciling or Stalled while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// vm is the virtual machine as it was when the backup was planned.
	// +optional
	VM *CapturedVM `json:"vm,omitempty"`
	// volumes lists every volume of the virtual machine, included or excluded with its reason.
	// +optional
	// +listType=map
	// +listMapKey=name
	Volumes []BackupVolume `json:"volumes,omitempty"`
	// attempts at the moment, newest last.
	// +optional
	// +listType=map
	// +listMapKey=number
	Attempts []MomentAttempt `json:"attempts,omitempty"`
	// moment that the backup holds, once it is bound.
	// +optional
	Moment *Moment `json:"moment,omitempty"`
	// local is what a backup without a store consists of.
	// +optional
	Local *LocalCopy `json:"local,omitempty"`
	// queuedAt is when the backup began to wait for a mover of its store; absent when it does not, or not any more.
	// +optional
	QueuedAt *metav1.Time `json:"queuedAt,omitempty"`
	// export to the store.
	// +optional
	Export *ExportStatus `json:"export,omitempty"`
	// origin is where the backup comes from, if it was adopted from its store.
	// +optional
	Origin *BackupOrigin `json:"origin,omitempty"`
	// verifiedAt is when all of the backup had last been read back and found as it was written.
	// +optional
	VerifiedAt *metav1.Time `json:"verifiedAt,omitempty"`
	// failure is why the backup failed. Written once.
	// +optional
	Failure *Failure `json:"failure,omitempty"`
	// summary says in words what kubectl prints.
	// +optional
	Summary BackupSummary `json:"summary,omitempty"`
	// completedAt is when Ready became true, or the backup failed.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
}

// VMStateBackup is one captured moment of one virtual machine: every persistent volume and
// its firmware state, from one instant. It is Ready when all of it is kept; never in part.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vmsb,categories=vmstate
// +kubebuilder:printcolumn:name="VM",type=string,JSONPath=`.spec.vmName`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Moment",type=string,JSONPath=`.status.summary.moment`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.summary.size`
// +kubebuilder:printcolumn:name="Sent",type=string,JSONPath=`.status.summary.sent`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Taken",type=date,priority=1,JSONPath=`.status.moment.cutEnded`
// +kubebuilder:printcolumn:name="Paused",type=string,priority=1,JSONPath=`.status.summary.paused`
// +kubebuilder:printcolumn:name="Verified",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Verified")].status`
// +kubebuilder:printcolumn:name="VerifiedAt",type=date,priority=1,JSONPath=`.status.verifiedAt`
// +kubebuilder:printcolumn:name="Store",type=string,priority=1,JSONPath=`.spec.storeRef.name`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a backup's name has at most 63 characters"
type VMStateBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VMStateBackupSpec   `json:"spec"`
	Status VMStateBackupStatus `json:"status,omitempty"`
}

// VMStateBackupList is a list of VMStateBackup.
//
// +kubebuilder:object:root=true
type VMStateBackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VMStateBackup `json:"items"`
}
