package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// AdoptPolicy says what becomes of backups that are in a store and not known in its namespace.
// +kubebuilder:validation:Enum=Never;All
type AdoptPolicy string

const (
	// AdoptNever leaves them in the store.
	AdoptNever AdoptPolicy = "Never"
	// AdoptAll makes each a VMStateBackup, once.
	AdoptAll AdoptPolicy = "All"
)

// CatalogueSpec says how a store is listed.
type CatalogueSpec struct {
	// identitySecretRef is a Secret with an age identity that opens the records of backups. It is
	// needed where the repository's keys are elsewhere, and makes this namespace able to read
	// the backups; remove it when all that was wanted is adopted.
	// +optional
	IdentitySecretRef *ObjectRef `json:"identitySecretRef,omitempty"`
	// intervalHours between two listings. Default 24.
	// +optional
	// +kubebuilder:default=24
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=720
	IntervalHours int32 `json:"intervalHours,omitempty"`
}

// StoreTaskStatus is how a Job that a store has done from time to time stands.
type StoreTaskStatus struct {
	// runs that were begun. The Job of a run is named by its number.
	// +optional
	Runs int64 `json:"runs,omitempty"`
	// jobName is the Job of the run that is under way; empty between two runs.
	// +optional
	JobName string `json:"jobName,omitempty"`
	// lastStartedAt is when the last run began.
	// +optional
	LastStartedAt *metav1.Time `json:"lastStartedAt,omitempty"`
	// lastEndedAt is when the last run ended, well or not.
	// +optional
	LastEndedAt *metav1.Time `json:"lastEndedAt,omitempty"`
	// lastSucceededAt is when the task was last done whole.
	// +optional
	LastSucceededAt *metav1.Time `json:"lastSucceededAt,omitempty"`
	// nextAt is when the next run is due, if the store is Ready by then.
	// +optional
	NextAt *metav1.Time `json:"nextAt,omitempty"`
	// failures in a row. The pause before the next try doubles with each.
	// +optional
	Failures int32 `json:"failures,omitempty"`
}

// AdoptScope says what a listing makes into objects.
// +kubebuilder:validation:Enum=None;New;All
type AdoptScope string

const (
	// ScopeNone: only what a VMStateBackup with spec.commit asks for.
	ScopeNone AdoptScope = "None"
	// ScopeNew: what was committed since the last listing, too.
	ScopeNew AdoptScope = "New"
	// ScopeAll: all that is not here, also what was deleted here.
	ScopeAll AdoptScope = "All"
)

// CatalogueFindingKind says what is wrong with a backup in a store.
// +kubebuilder:validation:Enum=Missing;Replaced;Damaged;LinkMissing;NameTaken;RolledBack
type CatalogueFindingKind string

const (
	// FindingMissing: a VMStateBackup's commit is not in the store any more.
	FindingMissing CatalogueFindingKind = "Missing"
	// FindingReplaced: another record is in the place of a VMStateBackup's commit.
	FindingReplaced CatalogueFindingKind = "Replaced"
	// FindingDamaged: a record cannot be used.
	FindingDamaged CatalogueFindingKind = "Damaged"
	// FindingLinkMissing: a later backup of the same virtual machine says that this one is there, and it is not.
	FindingLinkMissing CatalogueFindingKind = "LinkMissing"
	// FindingNameTaken: the name of the object to be is another's.
	FindingNameTaken CatalogueFindingKind = "NameTaken"
	// FindingRolledBack: the newest backup of a virtual machine is older than one that was seen here.
	FindingRolledBack CatalogueFindingKind = "RolledBack"
)

// CatalogueFinding is one thing that is not as it should be.
type CatalogueFinding struct {
	// kind of the finding.
	Kind CatalogueFindingKind `json:"kind"`
	// key of the commit record, relative to the store's prefix.
	Key string `json:"key"`
	// backupName is the VMStateBackup that it concerns.
	// +optional
	BackupName string `json:"backupName,omitempty"`
	// message for a person.
	// +optional
	Message string `json:"message,omitempty"`
}

// CataloguePass is how far a listing that is under way has come.
type CataloguePass struct {
	// scope of the listing.
	Scope AdoptScope `json:"scope"`
	// request that the listing answers: the value of annotation vmstate.io/import.
	// +optional
	Request string `json:"request,omitempty"`
	// after is the last commit that was looked at; empty before the first page.
	// +optional
	After string `json:"after,omitempty"`
	// commits that were read.
	// +optional
	Commits int64 `json:"commits,omitempty"`
	// findings so far; the first 50 are kept.
	// +optional
	// +listType=atomic
	Findings []CatalogueFinding `json:"findings,omitempty"`
	// findingCount counts also those that are not kept.
	// +optional
	FindingCount int64 `json:"findingCount,omitempty"`
}

// ChainMark is the newest backup of a virtual machine that was ever seen here.
type ChainMark struct {
	// chain is the virtual machine's folder in the store.
	Chain string `json:"chain"`
	// sequence of its newest backup.
	Sequence int64 `json:"sequence"`
	// removed says that it was removed on purpose, so that an earlier one may be the newest.
	// +optional
	Removed bool `json:"removed,omitempty"`
}

// CatalogueStatus is how listing a store stands, and what the last whole listing found.
type CatalogueStatus struct {
	StoreTaskStatus `json:",inline"`
	// pass is the listing that is under way.
	// +optional
	Pass *CataloguePass `json:"pass,omitempty"`
	// commits in the store that can be used.
	// +optional
	Commits int64 `json:"commits,omitempty"`
	// findings of the last whole listing; the first 50 are kept.
	// +optional
	// +listType=atomic
	Findings []CatalogueFinding `json:"findings,omitempty"`
	// adopt is the policy that the last whole listing followed.
	// +optional
	Adopt AdoptPolicy `json:"adopt,omitempty"`
	// request that was answered last: the value of annotation vmstate.io/import.
	// +optional
	Request string `json:"request,omitempty"`
	// chains that were seen: what tells a bucket that was set back, and what was adopted before.
	// At most 2000 are kept.
	// +optional
	// +listType=map
	// +listMapKey=chain
	Chains []ChainMark `json:"chains,omitempty"`
}

// MoverKind says what a mover does.
// +kubebuilder:validation:Enum=Restore;Backup;Maintenance;Verification
type MoverKind string

const (
	// MoverRestore fills the volumes of a restore.
	MoverRestore MoverKind = "Restore"
	// MoverBackup exports a backup.
	MoverBackup MoverKind = "Backup"
	// MoverMaintenance cleans the store up.
	MoverMaintenance MoverKind = "Maintenance"
	// MoverVerification reads the store back.
	MoverVerification MoverKind = "Verification"
)

// MoverTurn is a mover that works, or the place of one that waits.
type MoverTurn struct {
	// kind of the mover.
	Kind MoverKind `json:"kind"`
	// name of the VMStateBackup or VMStateRestore that it is for; of the store for its own.
	Name string `json:"name"`
	// uid of that object.
	UID types.UID `json:"uid"`
	// since when it waits, or waited before it began.
	Since metav1.Time `json:"since"`
	// slot on its node, from 1; 0 where spec.limits.moversPerNode does not bound it.
	// +optional
	Slot int32 `json:"slot,omitempty"`
}

// MoversStatus is who works for a store and who waits.
type MoversStatus struct {
	// working are at work, or may begin.
	// +optional
	// +listType=atomic
	Working []MoverTurn `json:"working,omitempty"`
	// waiting are those who wait, the next one first; of many the first 100.
	// +optional
	// +listType=atomic
	Waiting []MoverTurn `json:"waiting,omitempty"`
	// waitingCount counts also those that are not listed.
	// +optional
	WaitingCount int32 `json:"waitingCount,omitempty"`
	// at is when waiting was written last: every few seconds at most, unless somebody may begin.
	// +optional
	At *metav1.Time `json:"at,omitempty"`
}

// MaintenanceSpec says how a store is cleaned up.
type MaintenanceSpec struct {
	// credentialsSecretRef is a Secret with the keys accessKeyID and secretAccessKey of somebody
	// who may also replace and delete under the prefix: where the bucket keeps versions
	// s3:DeleteObjectVersion as well, and with objectLock what the store's own credentials need
	// for it. Jobs that move data never see it.
	CredentialsSecretRef ObjectRef `json:"credentialsSecretRef"`
	// intervalHours between two passes, and the time for which something must have been of no
	// use before it is deleted: what can still be undone by hand. Default 24. With objectLock a
	// pass is made once a day at least, since it also extends the locks.
	// +optional
	// +kubebuilder:default=24
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=720
	IntervalHours int32 `json:"intervalHours,omitempty"`
	// lost are records of backups (c/<machine>/<sequence>-<run>) and folders of runs (r/<machine>/<run>/) that are lost
	// for good, as status.maintenance.held and status.catalogue.findings name them: what somebody has deleted in the
	// bucket by hand, for instance. While one is missing that is not named here nothing of its virtual machine is
	// removed, since a list that lacks it cannot be relied on. What is named is not restored by that, nor deleted: what
	// nothing needs without it goes from the next passes on.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=128
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^c/[0-9a-f]{32}/[0-9]{10,20}-[0-9a-f]{32}$') || k.matches('^r/[0-9a-f]{32}/[0-9a-f]{32}/$'))",message="each entry of lost is the key of a backup's record (c/<machine>/<sequence>-<run>) or the folder of a run (r/<machine>/<run>/), as status.maintenance.held names it"
	Lost []string `json:"lost,omitempty"`
	// suspend stops maintenance; backups that wait for their removal go on waiting.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// MaintenanceStatus is how cleaning up stands, and what the last pass did.
type MaintenanceStatus struct {
	StoreTaskStatus `json:",inline"`
	// keySecretName is the Secret with the key that removals are signed with.
	// +optional
	KeySecretName string `json:"keySecretName,omitempty"`
	// removedBackups, deletedObjects and freedBytes since the store was made.
	// +optional
	RemovedBackups int64 `json:"removedBackups,omitempty"`
	// +optional
	DeletedObjects int64 `json:"deletedObjects,omitempty"`
	// +optional
	FreedBytes int64 `json:"freedBytes,omitempty"`
	// waitingBytes are of no use and stay for a later pass.
	// +optional
	WaitingBytes int64 `json:"waitingBytes,omitempty"`
	// lockedBytes of them stay for object locks: their own, or that of the record of a removed backup which they belong to.
	// +optional
	LockedBytes int64 `json:"lockedBytes,omitempty"`
	// unexplainedBytes belong to nothing that is known; they are never deleted.
	// +optional
	UnexplainedBytes int64 `json:"unexplainedBytes,omitempty"`
	// retainedObjects are what backups need and the store locks, as of the last pass;
	// extendedObjects how often the lock of one was extended since the store was made.
	// +optional
	RetainedObjects int64 `json:"retainedObjects,omitempty"`
	// +optional
	ExtendedObjects int64 `json:"extendedObjects,omitempty"`
	// held are chains of which nothing was deleted, with why; the first 20.
	// +optional
	// +listType=atomic
	Held []CatalogueFault `json:"held,omitempty"`
	// sessions that belonged to no backup that is known here. One that is seen twice is ended.
	// +optional
	// +listType=atomic
	Sessions []string `json:"sessions,omitempty"`
}

// VerificationSpec says how a store is read back.
type VerificationSpec struct {
	// roundDays in which everything in the store is read once; a Job a day reads its part. Default 30.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=365
	RoundDays int32 `json:"roundDays,omitempty"`
	// bytesPerSecond bounds how fast is read. 0, the default, does not.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// suspend stops verification.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// VerificationStatus is how reading back stands, and what was found.
type VerificationStatus struct {
	StoreTaskStatus `json:",inline"`
	// cursor is where the round is; only the mover understands it.
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	Cursor string `json:"cursor,omitempty"`
	// roundEndedAt is when everything had been read.
	// +optional
	RoundEndedAt *metav1.Time `json:"roundEndedAt,omitempty"`
	// checkedBytes of the last run.
	// +optional
	CheckedBytes int64 `json:"checkedBytes,omitempty"`
	// damaged are objects that are not what was written; the next backup of their virtual machine
	// sends what they held again. The first 200.
	// +optional
	// +listType=atomic
	Damaged []CatalogueFault `json:"damaged,omitempty"`
}

// DeletionPolicy says what becomes of a backup in its store when its object is deleted.
// +kubebuilder:validation:Enum=Retain;Delete
type DeletionPolicy string

const (
	// DeletionRetain leaves it there.
	DeletionRetain DeletionPolicy = "Retain"
	// DeletionDelete has the store's maintenance remove it.
	DeletionDelete DeletionPolicy = "Delete"
)

// BackupOrigin is where an adopted backup comes from, as its record in the store says.
type BackupOrigin struct {
	// vm that was backed up, as namespace/name.
	VM string `json:"vm"`
	// backup that asked for it, as namespace/name.
	Backup string `json:"backup"`
	// takenAt is the end of the cut.
	TakenAt metav1.MicroTime `json:"takenAt"`
}
