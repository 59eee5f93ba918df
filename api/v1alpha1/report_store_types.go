package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// CatalogueEntry is one backup that a store holds, as its sealed and signed record says.
type CatalogueEntry struct {
	// commit that holds the backup.
	Commit CommitRef `json:"commit"`
	// vmNamespace, vmName and vmUID of the virtual machine that was backed up.
	VMNamespace string    `json:"vmNamespace"`
	VMName      string    `json:"vmName"`
	VMUID       types.UID `json:"vmUID"`
	// backupNamespace, backupName and backupUID of the object that asked for it.
	BackupNamespace string    `json:"backupNamespace"`
	BackupName      string    `json:"backupName"`
	BackupUID       types.UID `json:"backupUID"`
	// takenAt is the end of the cut.
	TakenAt metav1.MicroTime `json:"takenAt"`
	// moment as it was recorded; absent if this version cannot read it.
	// +optional
	Moment *Moment `json:"moment,omitempty"`
	// volumes in the backup: name, role, mode and size.
	// +listType=atomic
	Volumes []VolumeFacts `json:"volumes"`
	// storedBytes that the backup added to the store.
	StoredBytes int64 `json:"storedBytes"`
}

// CatalogueFault is one record that is not as it should be.
type CatalogueFault struct {
	// key of the record.
	Key string `json:"key"`
	// message says what is wrong with it.
	Message string `json:"message"`
}

// CatalogueResult is one page of what a store holds, in the order of keys.
type CatalogueResult struct {
	// after is the key that the page begins behind.
	// +optional
	After string `json:"after,omitempty"`
	// through is the last key that the page speaks of.
	// +optional
	Through string `json:"through,omitempty"`
	// more says that there are keys behind it.
	// +optional
	More bool `json:"more,omitempty"`
	// entries of the page.
	// +optional
	// +listType=atomic
	Entries []CatalogueEntry `json:"entries,omitempty"`
	// damaged are records of the page that cannot be used.
	// +optional
	// +listType=atomic
	Damaged []CatalogueFault `json:"damaged,omitempty"`
	// missing are records that a later one says are there.
	// +optional
	// +listType=atomic
	Missing []CatalogueFault `json:"missing,omitempty"`
}

// MaintenanceResult is what one pass of cleaning up did.
type MaintenanceResult struct {
	// removed are backups that are gone from the store, of those that were to be.
	// +optional
	// +listType=atomic
	Removed []CommitRef `json:"removed,omitempty"`
	// stay are backups that were to be removed and are not, with why.
	// +optional
	// +listType=atomic
	Stay []CatalogueFault `json:"stay,omitempty"`
	// held are chains of which nothing was deleted, with why.
	// +optional
	// +listType=atomic
	Held []CatalogueFault `json:"held,omitempty"`
	// sessions that belong to no backup that the Job was told of.
	// +optional
	// +listType=atomic
	Sessions []string `json:"sessions,omitempty"`
	// deletedObjects and freedBytes of the pass.
	DeletedObjects int64 `json:"deletedObjects"`
	FreedBytes     int64 `json:"freedBytes"`
	// waitingBytes, lockedBytes and unexplainedBytes that stay.
	WaitingBytes     int64 `json:"waitingBytes"`
	LockedBytes      int64 `json:"lockedBytes"`
	UnexplainedBytes int64 `json:"unexplainedBytes"`
	// retainedObjects that backups need and the store locks, and those of them whose lock was
	// extended. 0 in a store without object lock.
	// +optional
	RetainedObjects int64 `json:"retainedObjects,omitempty"`
	// +optional
	ExtendedObjects int64 `json:"extendedObjects,omitempty"`
}

// BackupVerdict is what reading back found of one backup.
type BackupVerdict struct {
	// commit that holds the backup.
	Commit CommitRef `json:"commit"`
	// damaged says that something that it needs is not as it was written.
	Damaged bool `json:"damaged"`
	// message names the volumes that are hurt, and the objects.
	// +optional
	Message string `json:"message,omitempty"`
}

// VerificationResult is what one run of reading back found.
type VerificationResult struct {
	// cursor that the next run goes on from.
	// +optional
	Cursor string `json:"cursor,omitempty"`
	// roundDone says that everything has been read.
	// +optional
	RoundDone bool `json:"roundDone,omitempty"`
	// checkedBytes of this run.
	CheckedBytes int64 `json:"checkedBytes"`
	// backups that can be judged now.
	// +optional
	// +listType=atomic
	Backups []BackupVerdict `json:"backups,omitempty"`
	// damaged objects.
	// +optional
	// +listType=atomic
	Damaged []CatalogueFault `json:"damaged,omitempty"`
}
