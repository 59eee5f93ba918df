package action

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// CreateSnapshot makes a VolumeSnapshot of a claim, controlled by the owner.
type CreateSnapshot struct {
	Name  string
	Claim string
	Class string
}

// CreateGroupSnapshot makes a VolumeGroupSnapshot, controlled by the owner, over every claim
// that carries v1alpha1.LabelGroupMember with this value.
type CreateGroupSnapshot struct {
	Name   string
	Class  string
	Member string
}

// LabelClaim puts v1alpha1.LabelGroupMember with this value on a claim, if it is still the one
// with this UID.
type LabelClaim struct {
	Claim  string
	UID    types.UID
	Member string
}

// UnlabelClaim takes v1alpha1.LabelGroupMember off a claim, if it still has this value. A claim
// that is gone, or another one by now, is no error.
type UnlabelClaim struct {
	Claim  string
	UID    types.UID
	Member string
}

// LockVM sets status.snapshotInProgress of a halted VirtualMachine, so that admission denies
// its start. A VirtualMachine that carries another holder's value is an error.
type LockVM struct {
	VM     string
	UID    types.UID
	Holder string
}

// UnlockVM clears status.snapshotInProgress, if it still has the holder's value.
type UnlockVM struct {
	VM     string
	UID    types.UID
	Holder string
}

// Freeze asks the guest agent to freeze the guest's filesystems. KubeVirt thaws them by itself
// after Timeout. Its outcome is an Answer.
type Freeze struct {
	Instance string
	UID      types.UID
	Timeout  time.Duration
}

// Unfreeze asks the guest agent to thaw. An instance that is gone counts as thawed. Its
// outcome is an Answer.
type Unfreeze struct {
	Instance string
	UID      types.UID
}

// Pause asks KubeVirt to pause an instance, and waits until its status says so, both within Limit. Its
// outcome is an Answer.
type Pause struct {
	Instance string
	UID      types.UID
	Limit    time.Duration
}

// Unpause asks KubeVirt to unpause an instance, if its status says that it is paused. An instance that
// is gone counts as released. Its outcome is an Answer; after a failure an Unfreeze that follows is left
// out, since the agent of a paused guest cannot answer.
type Unpause struct {
	Instance string
	UID      types.UID
}

// Answer is what came of an action whose failure is a fact, not an error.
type Answer struct {
	// Action that was carried out: Freeze, Unfreeze, Pause or Unpause.
	Action Action
	// At is when the answer came.
	At time.Time
	// Failure is the answer's text; empty if it worked.
	Failure string
	// GuestSeen says that the instance could be looked at; GuestStatus is then what its status says
	// of the guest's filesystems: "frozen", or empty.
	GuestSeen   bool
	GuestStatus string
	// KubeVirtGone says that the cluster defines no instances any more.
	KubeVirtGone bool
	// Refused says that the failure is an answer which leaves nothing under way: not a time-out,
	// and not an error on the way to the guest.
	Refused bool
	// PausedSince is what the instance's Paused condition said when a Pause had worked.
	PausedSince *metav1.Time
}

func (CreateSnapshot) action()      {}
func (CreateGroupSnapshot) action() {}
func (LabelClaim) action()          {}
func (UnlabelClaim) action()        {}
func (LockVM) action()              {}
func (UnlockVM) action()            {}
func (Freeze) action()              {}
func (Unfreeze) action()            {}
func (Pause) action()               {}
func (Unpause) action()             {}
