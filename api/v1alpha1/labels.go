package v1alpha1

const (
	// LabelOwnerUID on everything that vmstate makes: the UID of the object that it was made for.
	LabelOwnerUID = "vmstate.io/owner-uid"
	// LabelTask on Jobs, their pods and Secrets: what the Job does.
	LabelTask = "vmstate.io/task"
	// LabelStore on Jobs that move data and their pods: the VMStateStore that they count for.
	LabelStore = "vmstate.io/store"
	// LabelNodeSlot on such Jobs and pods where the store bounds how many there are on a node: two pods of one store and
	// slot never run on one node.
	LabelNodeSlot = "vmstate.io/node-slot"
	// LabelGroupMember on the claims of one group snapshot, while it is cut. Its value is
	// unique to the attempt: a selector must never match a claim of anything else.
	LabelGroupMember = "vmstate.io/group-member"
	// LabelManagedBy is the field's own label for who made an object.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of LabelManagedBy.
	ManagedBy = "vmstate"

	// FinalizerRelease keeps a backup until no guest is frozen for it and its API objects are gone.
	FinalizerRelease = "vmstate.io/release"
	// FinalizerStored keeps a backup with deletionPolicy Delete until it is gone from its store.
	FinalizerStored = "vmstate.io/stored"
	// FinalizerSwitch keeps a restore until a switch that has begun is finished or undone.
	FinalizerSwitch = "vmstate.io/switch"

	// AnnotationImport on a store: a new value has it listed and every backup adopted that is not
	// here, also those that were deleted here.
	AnnotationImport = "vmstate.io/import"

	// AnnotationReplaced on a claim that keeps a replaced volume: the claim name that it had.
	AnnotationReplaced = "vmstate.io/replaced-claim"
	// AnnotationKeptUntil on such a claim: when the manager removes it, as RFC 3339. It may be changed;
	// without it the claim stays until a person deletes it.
	AnnotationKeptUntil = "vmstate.io/kept-until"
	// AnnotationKeptUID on such a claim: its own UID, so that a copy of it is nothing that may be removed.
	AnnotationKeptUID = "vmstate.io/kept-uid"

	// AnnotationDriverChecked on a backup whose audit found fault with a CSI driver: a person has looked into it, and what
	// the driver tells may be used again. Any value but the empty one. On a store the same of all that it has found so far: the
	// driver's name, and behind a space whatever makes the value a new one; several are separated by commas.
	AnnotationDriverChecked = "vmstate.io/driver-checked"

	// LabelPersistentState is KubeVirt's: its value is the VM whose firmware state the claim holds.
	// One claim in a namespace may carry it (kubevirt.io/kubevirt, pkg/storage/backend-storage).
	LabelPersistentState = "persistent-state-for"
	// LabelMigrationName is KubeVirt's: a claim made as the target of a migration carries it until
	// the hand-over (kubevirt.io/api, core/v1 MigrationNameLabel).
	LabelMigrationName = "kubevirt.io/migrationName"
	// LabelVeleroExclude keeps Velero from copying an object (velero.io documentation, resource filtering).
	LabelVeleroExclude = "velero.io/exclude-from-backup"
)
