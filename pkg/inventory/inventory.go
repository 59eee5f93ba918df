package inventory

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/job"
)

// Seen is what was read of one virtual machine, all of it live. Absent objects are nil or not
// in their map.
type Seen struct {
	VM *kubevirtv1.VirtualMachine
	// Name that VM was looked for by.
	Name string
	VMI  *kubevirtv1.VirtualMachineInstance
	// Expanded is VM with instancetype and preference applied.
	Expanded *kubevirtv1.VirtualMachine
	// ExpandFailure is why they cannot be applied; "" if they can.
	ExpandFailure string
	// Launchers are the pods of VMI.
	Launchers []corev1.Pod
	// Others are the pods of the namespace that are none of VMI's.
	Others []corev1.Pod
	// Migrations of the instance's name, of all times.
	Migrations []kubevirtv1.VirtualMachineInstanceMigration
	// Claims by name: those that the VM or its instance names, and those with the state's label.
	Claims map[string]*corev1.PersistentVolumeClaim
	// Targets are the names of claims that migrations of the VM made for its state and that were not put in the place of
	// the one before; looked for only while no instance runs, since a running one tells by what it mounts.
	Targets []string
	// Volumes by name: those that the claims are bound to.
	Volumes map[string]*corev1.PersistentVolume
	// Revisions that the VM or its instance refers to.
	Revisions []appsv1.ControllerRevision
	// LockHolder is the value of status.snapshotInProgress that is ours.
	LockHolder string
}

// Volume is one volume with what only planning needs.
type Volume struct {
	v1alpha1.BackupVolume
	// RequestBytes that the claim asks for.
	RequestBytes int64
	// ClaimLabels are the labels of the claim.
	ClaimLabels map[string]string
}

// Inventory is one virtual machine that can be captured.
type Inventory struct {
	// VM as it is recorded, and compared after the cut.
	VM v1alpha1.CapturedVM
	// Volumes of the VM in the order of its spec, the firmware state last.
	Volumes []Volume
	// Running says that an instance runs; otherwise the VM is at rest.
	Running bool
	// Paused says that its owner paused it.
	Paused bool
	// PausedSince is when it was paused, to the second, and PauseReason KubeVirt's word for why; nil and ""
	// if it is not.
	PausedSince *metav1.Time
	PauseReason string
	// Agent says that a guest agent is connected.
	Agent bool
	// Frozen says that KubeVirt reports the guest's filesystems as frozen; it may lag.
	Frozen bool
	// Unpausable is why KubeVirt will not pause the guest; "" if it will.
	Unpausable string
	// Placement of a pod that shares the launcher's view of its files; nil if nothing runs.
	Placement *job.Placement
	// Locked says that we hold status.snapshotInProgress.
	Locked bool
	// Warnings for a person: what this backup will not be able to bring back.
	Warnings []string
}

// Of lists what must be captured, or says all that stands in its way. With refusals the inventory holds
// what is known all the same, for a person to look at.
func Of(in Seen) (Inventory, []Refusal) {
	if r := exists(in); r != nil {
		return Inventory{}, []Refusal{*r}
	}
	var found refusals
	found.add(complete(in), lockedByOthers(in))
	flux := unsettled(in)
	found = append(found, flux...)
	out := Inventory{Running: running(in), VM: identify(in)}
	out.Volumes = disks(in, &found)
	state := stateOf{}
	if in.ExpandFailure == "" {
		state = findState(in, len(flux) == 0, &found)
	}
	if state.volume != nil {
		out.Volumes = append(out.Volumes, *state.volume)
	}
	out.VM.PersistentTPM, out.VM.PersistentEFI = state.tpm, state.efi
	if state.captured() {
		out.VM.StateClaimName, out.VM.StatePVCUID = state.volume.ClaimName, state.volume.ClaimUID
	}
	out.Warnings = warnings(in)
	out.Locked = in.VM.Status.SnapshotInProgress != nil && *in.VM.Status.SnapshotInProgress == in.LockHolder
	if !out.Running {
		return out, found
	}
	out.Paused, out.Agent, out.Frozen, out.Unpausable = Paused(in.VMI), Agent(in.VMI), Frozen(in.VMI), unpausable(in.VMI)
	out.PausedSince, out.PauseReason = PausedSince(in.VMI)
	if launcher(in) != nil {
		place, r := placement(in)
		found.add(r)
		out.Placement = place
	}
	return out, found
}

// Disks are the included disks, in the order of the VM's spec.
func (i Inventory) Disks() []Volume {
	var out []Volume
	for _, v := range i.Volumes {
		if v.Outcome == v1alpha1.VolumeIncluded && v.Role == v1alpha1.RoleDisk {
			out = append(out, v)
		}
	}
	return out
}

// Recorded is the list of volumes as a backup's status holds it.
func (i Inventory) Recorded() []v1alpha1.BackupVolume {
	out := make([]v1alpha1.BackupVolume, len(i.Volumes))
	for n, v := range i.Volumes {
		out[n] = v.BackupVolume
	}
	return out
}

// HasState says that there is firmware state to capture.
func (i Inventory) HasState() bool { return i.VM.StateClaimName != "" }

// effective is the spec that decides what the guest sees: the instance's while one runs.
func effective(in Seen) *kubevirtv1.VirtualMachineInstanceSpec {
	switch {
	case running(in):
		return &in.VMI.Spec
	case in.Expanded != nil && in.Expanded.Spec.Template != nil:
		return &in.Expanded.Spec.Template.Spec
	case in.VM.Spec.Template != nil:
		return &in.VM.Spec.Template.Spec
	default:
		return &kubevirtv1.VirtualMachineInstanceSpec{}
	}
}

// frozen is what KubeVirt says of a guest that it was asked to freeze (kubevirt.io/api v1.9.0, FSFreezeStatus).
const frozen = "frozen"

// unpausable says why KubeVirt refuses to pause an instance (kubevirt.io/kubevirt v1.9.0, pkg/virt-api/rest/lifecycle.go):
// the kubelet would take the paused guest for a dead one.
func unpausable(vmi *kubevirtv1.VirtualMachineInstance) string {
	if p := vmi.Spec.LivenessProbe; p != nil && p.GuestAgentPing == nil {
		return "its liveness probe would fail meanwhile, so KubeVirt does not pause it"
	}
	return ""
}

// Agent says that a guest agent is connected.
func Agent(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return has(vmi, kubevirtv1.VirtualMachineInstanceAgentConnected) != nil
}

// Frozen says that KubeVirt reports the guest's filesystems as frozen (kubevirt.io/api v1.9.0, FSFreezeStatus).
func Frozen(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return vmi.Status.FSFreezeStatus == frozen
}

// Paused says that the instance is paused.
func Paused(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return has(vmi, kubevirtv1.VirtualMachineInstancePaused) != nil
}

// PausedSince is when an instance was paused, to the second, and why; nil if it is not. KubeVirt takes the
// condition away when the guest runs, and refuses to pause it again before, so that another pause has
// another time.
func PausedSince(vmi *kubevirtv1.VirtualMachineInstance) (since *metav1.Time, reason string) {
	c := has(vmi, kubevirtv1.VirtualMachineInstancePaused)
	if c == nil {
		return nil, ""
	}
	return &c.LastTransitionTime, c.Reason
}

// has is the condition of that type, if it is true.
func has(vmi *kubevirtv1.VirtualMachineInstance, kind kubevirtv1.VirtualMachineInstanceConditionType) *kubevirtv1.VirtualMachineInstanceCondition {
	for i := range vmi.Status.Conditions {
		if c := &vmi.Status.Conditions[i]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}
