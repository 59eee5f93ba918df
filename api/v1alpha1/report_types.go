package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// ReportTask is what a Job does.
// +kubebuilder:validation:Enum=Setup;Export;KeepState;Resolve;Import;Witness;Catalogue;Maintain;Verify
type ReportTask string

const (
	// TaskSetup probes a store, and makes or opens its repository.
	TaskSetup ReportTask = "Setup"
	// TaskExport sends one moment to a store.
	TaskExport ReportTask = "Export"
	// TaskKeepState writes the firmware state of a backup without a store into a claim.
	TaskKeepState ReportTask = "KeepState"
	// TaskResolve opens a commit with an identity and says what is in it.
	TaskResolve ReportTask = "Resolve"
	// TaskImport fills the claims of a restore and reads them back.
	TaskImport ReportTask = "Import"
	// TaskCatalogue lists the backups that a store holds.
	TaskCatalogue ReportTask = "Catalogue"
	// TaskMaintain removes from a store what nothing needs any more.
	TaskMaintain ReportTask = "Maintain"
	// TaskVerify reads back what a store holds.
	TaskVerify ReportTask = "Verify"
	// TaskWitness reads the firmware state before and after the cut.
	TaskWitness ReportTask = "Witness"
)

// UnlockRequest asks whoever holds an identity for the keys of one backup. kubectl vmstate unlock answers it.
type UnlockRequest struct {
	// id is the SHA-256 of the request, in lower-case hexadecimal.
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// request says which keys are asked for, and proves it by an excerpt of the store (pkg/repository/FORMAT.md,
	// section 10). It holds no secret.
	// +kubebuilder:validation:MaxLength=1300000
	Request []byte `json:"request"`
	// refused says why the last ticket for this request was not taken.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Refused string `json:"refused,omitempty"`
}

// UnlockTicket answers an UnlockRequest.
type UnlockTicket struct {
	// request is the id of the request that is answered.
	// +kubebuilder:validation:MaxLength=64
	Request string `json:"request"`
	// sealed are the keys, encrypted to an identity that exists in the memory of the asking pod alone. It is no
	// secret: nobody else can open it, and it is of no use once that pod has ended.
	// +kubebuilder:validation:MaxLength=1300000
	Sealed []byte `json:"sealed"`
}

// VMStateReportSpec says which Job the report is of.
// +kubebuilder:validation:XValidation:rule="self.task == oldSelf.task",message="task cannot be changed"
type VMStateReportSpec struct {
	// task of the Job.
	Task ReportTask `json:"task"`
	// ticket answers status.unlock.
	// +optional
	Ticket *UnlockTicket `json:"ticket,omitempty"`
}

// ReportOutcome is how a Job ended.
// +kubebuilder:validation:Enum=Succeeded;Failed
type ReportOutcome string

const (
	// OutcomeSucceeded: the task is done.
	OutcomeSucceeded ReportOutcome = "Succeeded"
	// OutcomeFailed: it cannot be done; trying again without a change is of no use.
	OutcomeFailed ReportOutcome = "Failed"
)

// ReportProgress is how far a Job is. It is written at most every few seconds.
type ReportProgress struct {
	// totalBytes to read or to write, of all volumes.
	TotalBytes int64 `json:"totalBytes"`
	// doneBytes of them, whether moved, taken over or skipped as empty.
	DoneBytes int64 `json:"doneBytes"`
	// readBytes from volumes (export) or from the store (import).
	// +optional
	ReadBytes int64 `json:"readBytes,omitempty"`
	// sentBytes to the store (export) or to volumes (import).
	// +optional
	SentBytes int64 `json:"sentBytes,omitempty"`
}

// SetupResult is what mover setup found.
type SetupResult struct {
	// findings of the probe, one for each check.
	// +listType=map
	// +listMapKey=check
	Findings []Finding `json:"findings"`
	// checksumMode that the server was found to accept.
	// +optional
	ChecksumMode string `json:"checksumMode,omitempty"`
	// repositoryID of the repository.
	// +optional
	RepositoryID string `json:"repositoryID,omitempty"`
	// signingKey is the public key of this cluster, in base64.
	// +optional
	SigningKey string `json:"signingKey,omitempty"`
	// writable says that this cluster holds the repository's keys.
	Writable bool `json:"writable"`
	// superseded says that the keys here are of an epoch that another one follows in the store.
	// +optional
	Superseded bool `json:"superseded,omitempty"`
	// challenges for recipients without a proof.
	// +optional
	// +listType=map
	// +listMapKey=recipient
	Challenges []RecipientChallenge `json:"challenges,omitempty"`
	// proven are the fingerprints of recipients whose identity has proven the root key.
	// +optional
	// +listType=set
	Proven []string `json:"proven,omitempty"`
	// trust is what the store shows of its signing keys.
	// +optional
	Trust *TrustMark `json:"trust,omitempty"`
}

// ExportedVolume is one volume in a commit.
type ExportedVolume struct {
	// name of the volume.
	Name string `json:"name"`
	// role of the volume.
	Role VolumeRole `json:"role"`
	// sizeBytes of the volume.
	SizeBytes int64 `json:"sizeBytes"`
	// contentRoot of the volume in the commit, in lower-case hexadecimal.
	ContentRoot string `json:"contentRoot"`
	// reading is how the volume was read.
	// +optional
	Reading *VolumeReading `json:"reading,omitempty"`
}

// ExportResult is what mover export committed.
type ExportResult struct {
	// commit that holds the backup.
	Commit CommitRef `json:"commit"`
	// volumes in the commit.
	// +listType=map
	// +listMapKey=name
	Volumes []ExportedVolume `json:"volumes"`
	// stateDigest of the firmware state that was exported.
	// +optional
	StateDigest string `json:"stateDigest,omitempty"`
	// sentBytes to the store.
	SentBytes int64 `json:"sentBytes"`
	// readBytes from the volumes.
	ReadBytes int64 `json:"readBytes"`
}

// ResolveResult is what mover resolve found in a commit.
type ResolveResult struct {
	// from is the backup.
	From RestoredFrom `json:"from"`
}

// ImportedVolume is one volume that was filled and read back.
type ImportedVolume struct {
	// name of the volume in the backup.
	Name string `json:"name"`
	// contentRoot that the claim's bytes were compared with, in lower-case hexadecimal.
	ContentRoot string `json:"contentRoot"`
}

// ImportResult is what mover import wrote and verified.
type ImportResult struct {
	// volumes that were filled and read back.
	// +listType=map
	// +listMapKey=name
	Volumes []ImportedVolume `json:"volumes"`
	// notes are what was not as it should be and stopped nothing.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	Notes []string `json:"notes,omitempty"`
}

// WitnessReading is one reading of the firmware state.
type WitnessReading struct {
	// digest over path, contents, inode, ctime and size of every file, in lower-case hexadecimal.
	Digest string `json:"digest"`
	// startedAt is when the reading began.
	StartedAt metav1.MicroTime `json:"startedAt"`
	// endedAt is when the reading ended.
	EndedAt metav1.MicroTime `json:"endedAt"`
}

// WitnessResult is what the witness saw.
type WitnessResult struct {
	// stateDigest is the digest of the captured state alone (paths, owners, modes, contents), as
	// the Secrets carry it, in lower-case hexadecimal.
	// +optional
	StateDigest string `json:"stateDigest,omitempty"`
	// secretNames that carry the state, in order.
	// +optional
	// +listType=atomic
	SecretNames []string `json:"secretNames,omitempty"`
	// sizeBytes of the state, uncompressed.
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// guarding says that the witness was seen to be able to unpause the guest: it may, and KubeVirt's API
	// answers it. No guest is paused before.
	// +optional
	Guarding bool `json:"guarding,omitempty"`
	// first reading, before the cut.
	// +optional
	First *WitnessReading `json:"first,omitempty"`
	// second reading, after the cut.
	// +optional
	Second *WitnessReading `json:"second,omitempty"`
	// fenced is the reading while the guest was paused. Where there is one, stateDigest and secretNames
	// are of it.
	// +optional
	Fenced *WitnessReading `json:"fenced,omitempty"`
	// changed names the files that differ between the readings, and how.
	// +optional
	// +listType=atomic
	Changed []string `json:"changed,omitempty"`
	// releasedAt is when the witness thawed the guest because the manager was silent past the deadline.
	// +optional
	ReleasedAt *metav1.MicroTime `json:"releasedAt,omitempty"`
	// unpausedAt is when the witness unpaused the guest because the manager was silent past the deadline.
	// +optional
	UnpausedAt *metav1.MicroTime `json:"unpausedAt,omitempty"`
	// efi says what the EFI variables hold, for a person and for drills.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	EFI *runtime.RawExtension `json:"efi,omitempty"`
}

// VMStateReportStatus is what the Job saw and did. The manager checks it before it uses it.
type VMStateReportStatus struct {
	// podUID of the pod that wrote the report last.
	// +optional
	PodUID types.UID `json:"podUID,omitempty"`
	// outcome of the Job; empty while it works.
	// +optional
	Outcome ReportOutcome `json:"outcome,omitempty"`
	// reason of a failure: one of the reasons in package v1alpha1.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message for a person: what happened, to which object, what to do.
	// +optional
	Message string `json:"message,omitempty"`
	// progress of the Job.
	// +optional
	Progress *ReportProgress `json:"progress,omitempty"`
	// unlock asks for keys; absent where nothing is asked for.
	// +optional
	Unlock *UnlockRequest `json:"unlock,omitempty"`
	// unlocked says that all keys that were asked for are there.
	// +optional
	Unlocked bool `json:"unlocked,omitempty"`
	// setup is the result of a Setup.
	// +optional
	Setup *SetupResult `json:"setup,omitempty"`
	// export is the result of an Export.
	// +optional
	Export *ExportResult `json:"export,omitempty"`
	// resolve is the result of a Resolve.
	// +optional
	Resolve *ResolveResult `json:"resolve,omitempty"`
	// import is the result of an Import.
	// +optional
	Import *ImportResult `json:"import,omitempty"`
	// catalogue is the result of a Catalogue.
	// +optional
	Catalogue *CatalogueResult `json:"catalogue,omitempty"`
	// maintenance is the result of a Maintain.
	// +optional
	Maintenance *MaintenanceResult `json:"maintenance,omitempty"`
	// verification is the result of a Verify.
	// +optional
	Verification *VerificationResult `json:"verification,omitempty"`
	// witness is what a Witness saw so far.
	// +optional
	Witness *WitnessResult `json:"witness,omitempty"`
}

// VMStateReport is what one Job of vmstate's saw and did. The manager makes it empty, beside
// the Job and with its name; the Job writes its status; the manager checks and reads it. It
// goes with what it was made for. Secrets that a witness makes are owned by its report.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vmsrep
// +kubebuilder:printcolumn:name="Task",type=string,JSONPath=`.spec.task`
// +kubebuilder:printcolumn:name="Outcome",type=string,JSONPath=`.status.outcome`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VMStateReport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VMStateReportSpec   `json:"spec"`
	Status VMStateReportStatus `json:"status,omitempty"`
}

// VMStateReportList is a list of VMStateReport.
//
// +kubebuilder:object:root=true
type VMStateReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VMStateReport `json:"items"`
}
