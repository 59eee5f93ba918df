package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FreezeRecord is written before the guest is asked to freeze, so that whoever comes next,
// after any crash, knows that it must be released.
type FreezeRecord struct {
	// requestedAt is when the record was written.
	RequestedAt metav1.MicroTime `json:"requestedAt"`
	// deadline by which the guest is released, whatever happened.
	Deadline metav1.MicroTime `json:"deadline"`
	// requester is the manager process that wrote the record. Another process cannot know whether
	// the request was sent, and releases instead of asking.
	// +optional
	Requester string `json:"requester,omitempty"`
	// frozenAt is when the freeze was confirmed.
	// +optional
	FrozenAt *metav1.MicroTime `json:"frozenAt,omitempty"`
	// releasedAt is when the guest was seen thawed past every request that could be in flight.
	// +optional
	ReleasedAt *metav1.MicroTime `json:"releasedAt,omitempty"`
	// releaseFailure is what the agent or KubeVirt answered last instead of thawing.
	// +optional
	ReleaseFailure string `json:"releaseFailure,omitempty"`
	// releaseFailingSince is when the guest was first asked to thaw and did not.
	// +optional
	ReleaseFailingSince *metav1.MicroTime `json:"releaseFailingSince,omitempty"`
	// kubeVirtGoneSince is since when the cluster has had no KubeVirt that could be asked: its definition of
	// instances was looked for and is not there. An API that does not answer is not gone.
	// +optional
	KubeVirtGoneSince *metav1.MicroTime `json:"kubeVirtGoneSince,omitempty"`
	// unconfirmedAt is when the guest was not asked any more: that it is thawed was never confirmed.
	// +optional
	UnconfirmedAt *metav1.MicroTime `json:"unconfirmedAt,omitempty"`
	// guestStatus is what KubeVirt reported of the guest's filesystems at that time: "frozen", or
	// empty. It may lag, and proves nothing.
	// +optional
	GuestStatus string `json:"guestStatus,omitempty"`
	// failure is what the agent or KubeVirt answered instead of freezing.
	// +optional
	Failure string `json:"failure,omitempty"`
}

// FenceRecord is a pause of the guest, under which its disks are cut and its firmware state is read. It is
// written before the guest is asked to pause, so that whoever comes next, after any crash, knows that it
// must be released.
type FenceRecord struct {
	// requestedAt is when the record was written.
	RequestedAt metav1.MicroTime `json:"requestedAt"`
	// deadline by which the guest is released, whatever happened.
	Deadline metav1.MicroTime `json:"deadline"`
	// requester is the manager process that wrote the record. Another process cannot know whether
	// the request was sent, and releases instead of asking.
	// +optional
	Requester string `json:"requester,omitempty"`
	// ownersPause says that the guest was paused already, by its owner. It was not asked to pause, and
	// is not released.
	// +optional
	OwnersPause bool `json:"ownersPause,omitempty"`
	// pausedAt is when the instance was seen paused.
	// +optional
	PausedAt *metav1.MicroTime `json:"pausedAt,omitempty"`
	// pausedSince is what the instance's Paused condition said at that time. A cut that does not end
	// under the same pause is none.
	// +optional
	PausedSince *metav1.Time `json:"pausedSince,omitempty"`
	// releasedAt is when the guest was seen running past every request that could be in flight.
	// +optional
	ReleasedAt *metav1.MicroTime `json:"releasedAt,omitempty"`
	// releaseFailure is what KubeVirt answered last instead of unpausing.
	// +optional
	ReleaseFailure string `json:"releaseFailure,omitempty"`
	// kubeVirtGoneSince is since when the cluster was seen to define no instances any more.
	// +optional
	KubeVirtGoneSince *metav1.MicroTime `json:"kubeVirtGoneSince,omitempty"`
	// unconfirmedAt is when nobody was asked any more: that the guest runs was never seen.
	// +optional
	UnconfirmedAt *metav1.MicroTime `json:"unconfirmedAt,omitempty"`
	// failure is what KubeVirt answered instead of pausing.
	// +optional
	Failure string `json:"failure,omitempty"`
}

// AttemptVerdict is how an attempt at the moment ended.
// +kubebuilder:validation:Enum=Bound;StateChanged;Discarded
type AttemptVerdict string

const (
	// AttemptBound: disks and firmware state are of one moment.
	AttemptBound AttemptVerdict = "Bound"
	// AttemptStateChanged: the firmware state changed between the two readings.
	AttemptStateChanged AttemptVerdict = "StateChanged"
	// AttemptDiscarded: something else spoilt it; message says what.
	AttemptDiscarded AttemptVerdict = "Discarded"
)

// MomentAttempt is one try at the moment. Each field is written once, before the next step
// that depends on it.
type MomentAttempt struct {
	// number of the attempt, from 1.
	Number int32 `json:"number"`
	// startedAt is when the attempt was recorded; its waits count from here.
	StartedAt metav1.MicroTime `json:"startedAt"`
	// disks says how this attempt binds the disks together. Recorded before anything is made.
	// +optional
	Disks DiskBinding `json:"disks,omitempty"`
	// state says how this attempt binds the firmware state to the disks.
	// +optional
	State StateBinding `json:"state,omitempty"`
	// firstReading is the digest of the firmware state before the cut. Recorded before the
	// first snapshot is created; a reading that is not recorded never happened.
	// +optional
	FirstReading string `json:"firstReading,omitempty"`
	// freeze is the freeze of the guest, if there was one.
	// +optional
	Freeze *FreezeRecord `json:"freeze,omitempty"`
	// fence is the pause of the guest, if there was one.
	// +optional
	Fence *FenceRecord `json:"fence,omitempty"`
	// cutStarted is when the first snapshot was about to be created.
	// +optional
	CutStarted *metav1.MicroTime `json:"cutStarted,omitempty"`
	// cutEnded is when the last snapshot handle was known. The witness reads again when it sees this.
	// +optional
	CutEnded *metav1.MicroTime `json:"cutEnded,omitempty"`
	// skewMilliseconds between the first and the last creation time that the storage reported.
	// +optional
	SkewMilliseconds int64 `json:"skewMilliseconds,omitempty"`
	// verdict is how the attempt ended; empty while it goes on.
	// +optional
	Verdict AttemptVerdict `json:"verdict,omitempty"`
	// message says what spoilt the attempt.
	// +optional
	Message string `json:"message,omitempty"`
}
