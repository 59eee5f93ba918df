package action

import (
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// KindRevision is a kind that a restore makes and may delete.
const KindRevision Kind = "ControllerRevision"

// ErrDenied: the API server understood and refused, and would again. Errors of CreateVM,
// WriteVM, HoldVM and SetRunStrategy are this where it applies.
var ErrDenied = errors.New("denied")

// ErrNoRoom: a quota of the namespace is used up. RunJob and CreateClaim have it; it ends when others leave, or when somebody
// raises the quota.
var ErrNoRoom = errors.New("no room")

// CreateVM makes a VirtualMachine that carries v1alpha1.LabelOwnerUID of the owner, and is not
// controlled by it: it outlives the restore. One of that name without the label is an error.
type CreateVM struct {
	Object map[string]any
	// DryRun only asks whether it would be admitted.
	DryRun bool
}

// CreateRevision makes a ControllerRevision in the owner's namespace, controlled by the owner.
type CreateRevision struct{ Revision *appsv1.ControllerRevision }

// WriteVM replaces the spec of a VirtualMachine, if it is still as it was seen: one write, all
// of it or nothing.
type WriteVM struct {
	VM              string
	UID             types.UID
	ResourceVersion string
	Spec            map[string]any
	// DryRun only asks whether the write would be admitted.
	DryRun bool
}

// SetRunStrategy changes the run strategy of a VirtualMachine.
type SetRunStrategy struct {
	VM       string
	UID      types.UID
	Strategy string
}

// RequestStart asks for one start of a VirtualMachine whose run strategy is Manual, as virtctl does.
type RequestStart struct {
	VM  string
	UID types.UID
}

// HoldVM sets status.restoreInProgress of a VirtualMachine, so that admission denies its start. A
// VirtualMachine that carries another holder's value is an error.
type HoldVM struct {
	VM     string
	UID    types.UID
	Holder string
}

// ReleaseVM clears status.restoreInProgress, if it still has the holder's value.
type ReleaseVM struct {
	VM     string
	UID    types.UID
	Holder string
}

// DeleteVM removes a VirtualMachine that the owner made, if it is still the one with this UID.
type DeleteVM struct {
	VM  string
	UID types.UID
}

// DeleteInstance removes a VirtualMachineInstance, if it is still the one with this UID.
type DeleteInstance struct {
	Instance string
	UID      types.UID
}

// HandOver takes the owner's control off a claim or revision that it made, if it is still as it
// was seen. Owner, if not nil, controls it from then on. StateOf, if not empty, is the VirtualMachine
// whose firmware state the claim becomes, in the same write.
type HandOver struct {
	Kind            Kind
	Name            string
	UID             types.UID
	ResourceVersion string
	Owner           *metav1.OwnerReference
	StateOf         string
}

// LabelState makes a claim the firmware state of a VirtualMachine, if it is still as it was seen.
type LabelState struct {
	Claim           string
	UID             types.UID
	ResourceVersion string
	VM              string
}

// UnlabelState takes v1alpha1.LabelPersistentState off a claim, if it is still as it was seen. A
// claim that is gone, or another one by now, is no error.
type UnlabelState struct {
	Claim           string
	UID             types.UID
	ResourceVersion string
}

// DeleteMade removes a claim or revision that carries v1alpha1.LabelOwnerUID of the owner,
// whoever controls it by now, if it is still the one with this UID. One that is gone is no error.
type DeleteMade struct {
	Kind Kind
	Name string
	UID  types.UID
}

// OrphanDataVolume removes the DataVolume with this UID and leaves its claim, if that is the one with
// ClaimUID.
type OrphanDataVolume struct {
	Name     string
	UID      types.UID
	Claim    string
	ClaimUID types.UID
}

// SetReclaimPolicy changes what becomes of a PersistentVolume whose claim is deleted, if it
// belongs to the claim with this UID.
type SetReclaimPolicy struct {
	Volume   string
	ClaimUID types.UID
	Policy   string
}

// DeleteReplaced removes the claim that a restore replaced, if it is still the one with this
// UID and its volume is one that stays.
type DeleteReplaced struct {
	Claim  string
	UID    types.UID
	Volume string
}

// ReserveVolume gives a PersistentVolume whose claim is gone to a claim of another name, which
// nobody else can take.
type ReserveVolume struct {
	Volume string
	// ClaimUID of the claim that is gone.
	ClaimUID types.UID
	// For is the name of the claim in the owner's namespace that it is reserved for.
	For string
}

// KeepVolume makes the claim under which a replaced volume is kept. It carries
// v1alpha1.LabelOwnerUID of the owner, and is not controlled by it: what is kept outlives the restore.
type KeepVolume struct{ Claim *corev1.PersistentVolumeClaim }

// MarkKept notes on a claim that keeps a replaced volume that it is the one with this UID, and
// when it is removed. From then on it needs no restore. A claim that is gone, or another one by
// now, is no error.
type MarkKept struct {
	Claim string
	UID   types.UID
	Until time.Time
}

func (KeepVolume) action()       {}
func (MarkKept) action()         {}
func (CreateVM) action()         {}
func (CreateRevision) action()   {}
func (WriteVM) action()          {}
func (SetRunStrategy) action()   {}
func (RequestStart) action()     {}
func (HoldVM) action()           {}
func (ReleaseVM) action()        {}
func (DeleteVM) action()         {}
func (DeleteInstance) action()   {}
func (HandOver) action()         {}
func (LabelState) action()       {}
func (UnlabelState) action()     {}
func (DeleteMade) action()       {}
func (OrphanDataVolume) action() {}
func (SetReclaimPolicy) action() {}
func (DeleteReplaced) action()   {}
func (ReserveVolume) action()    {}
