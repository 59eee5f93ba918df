package backup

import (
	"fmt"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/pkg/snapshotset"
)

// WitnessName is the witness's Job of an attempt.
func WitnessName(b *v1alpha1.VMStateBackup, attempt int32) string {
	return job.Name(b.UID, fmt.Sprintf("witness-%d", attempt))
}

// DocumentsName is the ConfigMap with the documents of the open attempt. It goes with an attempt
// that is given up, so that the next one keeps its own.
func DocumentsName(b *v1alpha1.VMStateBackup) string { return job.Name(b.UID, "spec") }

// SnapshotName is the snapshot of the disk with that index.
func SnapshotName(b *v1alpha1.VMStateBackup, attempt int32, disk int) string {
	return job.Name(b.UID, fmt.Sprintf("snap-%d-%d", attempt, disk))
}

// GroupName is the group snapshot of an attempt.
func GroupName(b *v1alpha1.VMStateBackup, attempt int32) string {
	return job.Name(b.UID, fmt.Sprintf("group-%d", attempt))
}

// Member is the label value that the claims of an attempt's group carry: of no other backup,
// and of no other attempt.
func Member(b *v1alpha1.VMStateBackup, attempt int32) string {
	return fmt.Sprintf("%s-%d", b.UID, attempt)
}

// CloneName is the claim made from the snapshot of the disk with that index.
func CloneName(b *v1alpha1.VMStateBackup, disk int) string {
	return job.Name(b.UID, fmt.Sprintf("disk-%d", disk))
}

// ExportName is the export's Job.
func ExportName(b *v1alpha1.VMStateBackup) string { return job.Name(b.UID, "export") }

// KeepName is the Job that keeps the firmware state of a backup without a store.
func KeepName(b *v1alpha1.VMStateBackup) string { return job.Name(b.UID, "keepstate") }

// StateClaimName is the claim that keeps it.
func StateClaimName(b *v1alpha1.VMStateBackup) string { return job.Name(b.UID, "state") }

// Holder is the value of the VM's lock.
func Holder(b *v1alpha1.VMStateBackup) string { return "vmstate-" + string(b.UID) }

// disksOf are the recorded disks, in their order: the index in names counts them.
func disksOf(s *v1alpha1.VMStateBackupStatus) []v1alpha1.BackupVolume {
	return includedOf(s, v1alpha1.RoleDisk)
}

func includedOf(s *v1alpha1.VMStateBackupStatus, role v1alpha1.VolumeRole) []v1alpha1.BackupVolume {
	var out []v1alpha1.BackupVolume
	for _, v := range s.Volumes {
		if v.Outcome == v1alpha1.VolumeIncluded && v.Role == role {
			out = append(out, v)
		}
	}
	return out
}

// Disks are the recorded disks as snapshots are looked for.
func Disks(b *v1alpha1.VMStateBackup) []snapshotset.Disk {
	var out []snapshotset.Disk
	for _, v := range disksOf(&b.Status) {
		out = append(out, snapshotset.Disk{Volume: v.Name, Claim: v.ClaimName, Driver: v.Driver, Handle: v.Handle})
	}
	return out
}

// BindingOf says how the last attempt binds the recorded machine's disks together.
func BindingOf(b *v1alpha1.VMStateBackup) v1alpha1.DiskBinding {
	vm, last := b.Status.VM, Last(b)
	switch {
	case last != nil && last.Disks != "":
		return last.Disks
	case vm == nil || vm.InstanceUID == "":
		return v1alpha1.DisksOffline
	case len(disksOf(&b.Status)) == 1: // an attempt that was recorded before attempts said how
		return v1alpha1.DisksSingle
	default:
		return v1alpha1.DisksGroup
	}
}

func hasState(b *v1alpha1.VMStateBackup) bool {
	return b.Status.VM != nil && b.Status.VM.StateClaimName != ""
}
