package v1alpha1

// Condition types.
const (
	// ConditionReady is on every kind, always. A backup is Ready when all of it is kept; a restore
	// when the virtual machine is whole (and started, where asked); a store when it can be read.
	ConditionReady = "Ready"
	// ConditionReconciling is present while something is under way.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is present when a person must act.
	ConditionStalled = "Stalled"
	// ConditionWritable on a store: backups can be written to it.
	ConditionWritable = "Writable"
	// ConditionRedundant on a store: two recipients or more can read its backups.
	ConditionRedundant = "Redundant"
	// ConditionProven on a store: the holder of an identity has shown that it opens what is written here.
	ConditionProven = "Proven"
	// ConditionIdentityInCluster on a restore: an identity, which reads every backup, is in a Secret here.
	ConditionIdentityInCluster = "IdentityInCluster"
	// ConditionDriverTrusted on a backup: False if its audit found changes that a CSI driver had told nothing of.
	// Until an audit of theirs is without fault, the backups of disks of this driver read everything, and compare; or until a
	// person annotates this backup or its store with AnnotationDriverChecked. The store remembers it (status.driverFindings).
	ConditionDriverTrusted = "DriverTrusted"
	// ConditionSuspect on a backup: True if it took over unread what a driver, as was found later, may have told
	// too little of.
	ConditionSuspect = "Suspect"
	// ConditionFirmwareStateKept on a backup: False if it holds no firmware state, and an earlier one of the machine does.
	ConditionFirmwareStateKept = "FirmwareStateKept"
	// ConditionCatalogued on a store: it was listed, and what it holds is what is known here.
	ConditionCatalogued = "Catalogued"
	// ConditionMaintained on a store: what nothing needs any more is removed from the bucket.
	ConditionMaintained = "Maintained"
	// ConditionVerified on a backup: all that it consists of was read back from the store, and is as
	// it was written. On a store: nothing that was read back is damaged.
	ConditionVerified = "Verified"
)

// Reasons of DriverTrusted and Suspect.
const (
	// ReasonChangesUntold: something had changed where the driver told of no change.
	ReasonChangesUntold = "ChangesUntold"
	// ReasonDriverChecked: a person has looked into it.
	ReasonDriverChecked = "DriverChecked"
)

// Reasons of a backup that go on by themselves.
const (
	// ReasonWitnessing: the firmware state is read before the cut.
	ReasonWitnessing = "Witnessing"
	// ReasonFreezing: the guest is asked to freeze its filesystems.
	ReasonFreezing = "Freezing"
	// ReasonPausing: the guest is being paused for the cut.
	ReasonPausing = "Pausing"
	// ReasonTakingSnapshot: the snapshots are cut.
	ReasonTakingSnapshot = "TakingSnapshot"
	// ReasonBinding: the firmware state is read again and compared.
	ReasonBinding = "Binding"
	// ReasonExporting: the moment is read and sent to the store.
	ReasonExporting = "Exporting"
	// ReasonKeeping: the firmware state is written into its claim.
	ReasonKeeping = "Keeping"
	// ReasonCleaningUp: what was made on the way is removed.
	ReasonCleaningUp = "CleaningUp"
	// ReasonMigrating: a migration of the virtual machine is under way; the backup goes on after it.
	ReasonMigrating = "Migrating"
	// ReasonWaitingForTurn: another backup of the virtual machine is taking its moment.
	ReasonWaitingForTurn = "WaitingForTurn"
	// ReasonWaitingForStore: the store is not writable (yet).
	ReasonWaitingForStore = "WaitingForStore"
	// ReasonWaitingForMover: the store has as many movers as spec.limits allows; the message is the place among those who
	// wait. It is no failure, however long it takes.
	ReasonWaitingForMover = "WaitingForMover"
	// ReasonJobPending: a Job does not start; the message says what keeps it.
	ReasonJobPending = "JobPending"
)

// Reasons of a backup that is done.
const (
	// ReasonStored: committed, and every object confirmed by the store.
	ReasonStored = "Stored"
	// ReasonKept: the snapshots are ready and the firmware state is in its claim.
	ReasonKept = "Kept"
)

// Reasons of a backup that failed: the guest was not touched, or was released.
const (
	// ReasonVMNotFound: there is no such VirtualMachine.
	ReasonVMNotFound = "VMNotFound"
	// ReasonVMDeleting: the VirtualMachine is being deleted.
	ReasonVMDeleting = "VMDeleting"
	// ReasonNoVolumes: it has no persistent volume.
	ReasonNoVolumes = "NoVolumes"
	// ReasonStateAmbiguous: several claims carry the label of its firmware state, or the label, the
	// running pod and the spec disagree about which claim it is.
	ReasonStateAmbiguous = "StateAmbiguous"
	// ReasonStateMissing: it asks for persistent TPM or EFI, and there is no claim with the state.
	ReasonStateMissing = "StateMissing"
	// ReasonStateVanished: the virtual machine kept firmware state before, and keeps none any more.
	ReasonStateVanished = "StateVanished"
	// ReasonStateDamaged: the firmware state is empty, cut, or another machine's.
	ReasonStateDamaged = "StateDamaged"
	// ReasonStateUnsupported: the firmware state is kept in a way that vmstate cannot read (a Block volume).
	ReasonStateUnsupported = "StateUnsupported"
	// ReasonVolumeShared: a disk is shared with other virtual machines.
	ReasonVolumeShared = "VolumeShared"
	// ReasonVolumeUnsupported: a disk cannot be captured; the message says why and what to do.
	ReasonVolumeUnsupported = "VolumeUnsupported"
	// ReasonVolumeNotReady: a claim does not exist, is not bound, or an attachment is under way.
	ReasonVolumeNotReady = "VolumeNotReady"
	// ReasonNoSnapshotClass: a disk's storage cannot make snapshots.
	ReasonNoSnapshotClass = "NoSnapshotClass"
	// ReasonNoCommonInstant: several disks of a running virtual machine cannot be cut together.
	ReasonNoCommonInstant = "NoCommonInstant"
	// ReasonVMUnsettled: the virtual machine is starting, stopping or crashing, or its volumes are being moved.
	ReasonVMUnsettled = "VMUnsettled"
	// ReasonSpecIncomplete: the virtual machine's instancetype or preference cannot be applied, so what
	// it asks for is not known.
	ReasonSpecIncomplete = "SpecIncomplete"
	// ReasonSnapshotFailed: the storage did not cut the snapshots in time.
	ReasonSnapshotFailed = "SnapshotFailed"
	// ReasonQuiesceFailed: the guest could not be frozen, and quiesce is Required.
	ReasonQuiesceFailed = "QuiesceFailed"
	// ReasonPauseFailed: the guest could not be paused, and nothing else binds its disks together.
	ReasonPauseFailed = "PauseFailed"
	// ReasonPauseExceeded: the storage did not cut the disks within maxPause.
	ReasonPauseExceeded = "PauseExceeded"
	// ReasonStateChanged: the firmware state changed during every attempt.
	ReasonStateChanged = "StateChanged"
	// ReasonVMChanged: the virtual machine moved, restarted or changed its volumes meanwhile.
	ReasonVMChanged = "VMChanged"
	// ReasonWitnessFailed: the firmware state could not be read.
	ReasonWitnessFailed = "WitnessFailed"
	// ReasonExportFailed: the moment could not be sent.
	ReasonExportFailed = "ExportFailed"
	// ReasonStoreNotFound: there is no such VMStateStore.
	ReasonStoreNotFound = "StoreNotFound"
	// ReasonStoreNotWritable: the store did not become writable in time.
	ReasonStoreNotWritable = "StoreNotWritable"
)

// Reasons of a store.
const (
	// ReasonProbing: the store is being probed.
	ReasonProbing = "Probing"
	// ReasonProbed: the probe found all that is needed.
	ReasonProbed = "Probed"
	// ReasonUnreachable: the server does not answer.
	ReasonUnreachable = "Unreachable"
	// ReasonAccessDenied: the server refuses the credentials.
	ReasonAccessDenied = "AccessDenied"
	// ReasonBucketNotFound: there is no such bucket.
	ReasonBucketNotFound = "BucketNotFound"
	// ReasonClockSkew: the clocks of server and cluster are too far apart.
	ReasonClockSkew = "ClockSkew"
	// ReasonNoConditionalWrites: the server does not refuse to overwrite, so two writers could not be told apart.
	ReasonNoConditionalWrites = "NoConditionalWrites"
	// ReasonSecretNotFound: a Secret or ConfigMap that the store names is absent, or lacks a key.
	ReasonSecretNotFound = "SecretNotFound"
	// ReasonNoObjectLock: spec.s3.objectLock is set, and the bucket has no object lock.
	ReasonNoObjectLock = "NoObjectLock"
	// ReasonObjectLocked: an object lock forbids to delete; it is tried again when that has ended.
	ReasonObjectLocked = "ObjectLocked"
	// ReasonStoreFull: the store has no room.
	ReasonStoreFull = "StoreFull"
	// ReasonInvalidRecipients: a recipient cannot be used.
	ReasonInvalidRecipients = "InvalidRecipients"
	// ReasonKeysElsewhere: the repository was made by another cluster or namespace, which holds its keys.
	ReasonKeysElsewhere = "KeysElsewhere"
	// ReasonKeysHere: this namespace holds the repository's keys.
	ReasonKeysHere = "KeysHere"
	// ReasonRepositoryDamaged: the repository's own objects are altered or missing.
	ReasonRepositoryDamaged = "RepositoryDamaged"
	// ReasonSetupFailed: the setup Job failed otherwise.
	ReasonSetupFailed = "SetupFailed"
	// ReasonKeysSuperseded: the keys here are of an epoch that is over.
	ReasonKeysSuperseded = "KeysSuperseded"
	// ReasonKeysSetBack: the bucket does not show what was seen of the repository's signing keys (status.trust).
	ReasonKeysSetBack = "KeysSetBack"
	// ReasonNotProven: nobody has shown yet that an identity opens the backups; the message is the command to type.
	ReasonNotProven = "NotProven"
	// ReasonProvenByHolder: an identity was shown to open the backups.
	ReasonProvenByHolder = "ProvenByHolder"
	// ReasonOneRecipient: only one recipient can read the backups.
	ReasonOneRecipient = "OneRecipient"
	// ReasonSeveralRecipients: two recipients or more can read the backups.
	ReasonSeveralRecipients = "SeveralRecipients"
)

// Reasons of Catalogued, on a store, and of backups that it holds.
const (
	// ReasonCatalogueComplete: every backup that is known here is in the store, and every record can be used.
	ReasonCatalogueComplete = "CatalogueComplete"
	// ReasonCatalogueIncomplete: something that should be in the store is not, or cannot be used.
	ReasonCatalogueIncomplete = "CatalogueIncomplete"
	// ReasonCatalogueFailed: the store could not be listed.
	ReasonCatalogueFailed = "CatalogueFailed"
	// ReasonNoCatalogueKey: neither the repository's keys nor an identity are here, so that no record can be read.
	ReasonNoCatalogueKey = "NoCatalogueKey"
	// ReasonAdopting: the backup is being looked for in its store.
	ReasonAdopting = "Adopting"
	// ReasonAdopted: the backup was found in its store.
	ReasonAdopted = "Adopted"
	// ReasonCommitMissing: the backup's record is not in the store, or another one is in its place.
	ReasonCommitMissing = "CommitMissing"
	// ReasonCommitDamaged: the backup's record is in the store, and cannot be used.
	ReasonCommitDamaged = "CommitDamaged"
	// ReasonMaintained: the last pass of maintenance did what there was to do.
	ReasonMaintained = "Maintained"
	// ReasonMaintenanceHeld: of a part of the store nothing was deleted, since it cannot be relied on.
	ReasonMaintenanceHeld = "MaintenanceHeld"
	// ReasonMaintenanceFailed: the last pass of maintenance failed.
	ReasonMaintenanceFailed = "MaintenanceFailed"
	// ReasonNoMaintenance: maintenance is not set up, suspended, or lacks the repository's keys.
	ReasonNoMaintenance = "NoMaintenance"
	// ReasonLocksLapse: the store has object lock, and no maintenance extends its locks.
	ReasonLocksLapse = "LocksLapse"
	// ReasonVerified: what was read back is as it was written.
	ReasonVerified = "Verified"
	// ReasonDamaged: something that was read back is not as it was written.
	ReasonDamaged = "Damaged"
	// ReasonVerificationFailed: the store could not be read back.
	ReasonVerificationFailed = "VerificationFailed"
	// ReasonNotVerified: the backup has not been read back yet.
	ReasonNotVerified = "NotVerified"
)

// Reasons of a restore.
const (
	// ReasonResolving: the backup is looked up and checked.
	ReasonResolving = "Resolving"
	// ReasonWaitingForUnlock: the keys of the backup are waited for; the message is the command to type.
	ReasonWaitingForUnlock = "WaitingForUnlock"
	// ReasonIdentitySecret: spec.identitySecretRef names a Secret with identities.
	ReasonIdentitySecret = "IdentitySecret"
	// ReasonPreflight: what could stand in the way is checked.
	ReasonPreflight = "Preflight"
	// ReasonPreflightFailed: something stands in the way; nothing was changed.
	ReasonPreflightFailed = "PreflightFailed"
	// ReasonDryRun: the preflight is done, and the restore was only asked for that.
	ReasonDryRun = "DryRun"
	// ReasonFilling: the new volumes are filled and read back.
	ReasonFilling = "Filling"
	// ReasonImportStalled: the Job that fills the volumes makes no progress; the message says how its pod stands.
	ReasonImportStalled = "ImportStalled"
	// ReasonStopping: the virtual machine is being stopped.
	ReasonStopping = "Stopping"
	// ReasonSwitching: the new volumes are put in place.
	ReasonSwitching = "Switching"
	// ReasonRollingBack: the steps of a switch that cannot be finished are undone.
	ReasonRollingBack = "RollingBack"
	// ReasonStarting: the virtual machine is being started.
	ReasonStarting = "Starting"
	// ReasonRestored: the virtual machine is whole.
	ReasonRestored = "Restored"
	// ReasonBackupNotFound: there is no such backup.
	ReasonBackupNotFound = "BackupNotFound"
	// ReasonBackupNotReady: the backup is not Ready.
	ReasonBackupNotReady = "BackupNotReady"
	// ReasonWrongIdentity: none of the identities opens the backup.
	ReasonWrongIdentity = "WrongIdentity"
	// ReasonBackupDamaged: an object of the backup is altered, cut, swapped or missing.
	ReasonBackupDamaged = "BackupDamaged"
	// ReasonNotAuthentic: the backup is not signed by the key that it must be signed by.
	ReasonNotAuthentic = "NotAuthentic"
	// ReasonImportFailed: the volumes could not be filled.
	ReasonImportFailed = "ImportFailed"
	// ReasonSwitchFailed: the new volumes could not be put in place; the old ones are.
	ReasonSwitchFailed = "SwitchFailed"
)
