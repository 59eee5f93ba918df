package inventory

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// disks lists every volume of the VM's spec and of its instance, state apart.
func disks(in Seen) ([]Volume, *Refusal) {
	volumes, r := volumesOf(in)
	if r != nil {
		return nil, r
	}
	var out []Volume
	captured := 0
	for _, v := range volumes {
		if r := supported(in, v); r != nil {
			return nil, r
		}
		claim := claimOf(v)
		if claim == "" {
			out = append(out, Volume{BackupVolume: excluded(v)})
			continue
		}
		volume, r := included(in, v.Name, claim, v1alpha1.RoleDisk)
		if r == nil && !readOnly(in, v) {
			r = inUse(in, v.Name, claim)
		}
		if r != nil {
			return nil, r
		}
		out = append(out, volume)
		captured++
	}
	if captured == 0 {
		return nil, refuse(v1alpha1.ReasonNoVolumes,
			"VM %q has no disk on a claim, so there is nothing that a restore could bring back", in.VM.Name)
	}
	return out, nil
}

// volumesOf is the VM's list, and what its instance has beside it. A claim that differs
// between the two is about to be changed.
func volumesOf(in Seen) ([]kubevirtv1.Volume, *Refusal) {
	var out []kubevirtv1.Volume
	if in.VM.Spec.Template != nil {
		out = slices.Clone(in.VM.Spec.Template.Spec.Volumes)
	}
	if !running(in) {
		return out, nil
	}
	for _, v := range out {
		seen := volumeNamed(in.VMI.Spec.Volumes, v.Name)
		if seen != nil && claimOf(*seen) != claimOf(v) {
			return nil, wait(v1alpha1.ReasonVMUnsettled, "volume %q of VM %q is on claim %q, and its spec asks for %q: restart the VM, or undo the change",
				v.Name, in.VM.Name, claimOf(*seen), claimOf(v))
		}
	}
	for _, v := range in.VMI.Spec.Volumes {
		if volumeNamed(out, v.Name) != nil {
			continue
		}
		if claimOf(v) != "" {
			return nil, refuse(v1alpha1.ReasonVolumeUnsupported,
				"disk %q was plugged into the instance alone and is not in the spec of VM %q: plug it in persistently (virtctl addvolume --persist), or unplug it",
				v.Name, in.VM.Name)
		}
		out = append(out, v)
	}
	return out, nil
}

func volumeNamed(volumes []kubevirtv1.Volume, name string) *kubevirtv1.Volume {
	i := slices.IndexFunc(volumes, func(v kubevirtv1.Volume) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &volumes[i]
}

// claimOf is the claim that a volume's persistent bytes are in; "" if it has none.
func claimOf(v kubevirtv1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.DataVolume != nil:
		return v.DataVolume.Name // its claim has its name
	default:
		return ""
	}
}

// supported refuses what holds persistent bytes that cannot be captured.
func supported(in Seen, v kubevirtv1.Volume) *Refusal {
	spec := effective(in)
	if v.HostDisk != nil {
		return refuse(v1alpha1.ReasonVolumeUnsupported, "volume %q is a file on a node (hostDisk): move it to a claim", v.Name)
	}
	if claimOf(v) == "" {
		return nil
	}
	for _, f := range spec.Domain.Devices.Filesystems {
		if f.Name == v.Name {
			return refuse(v1alpha1.ReasonVolumeUnsupported,
				"volume %q is shared with the guest as a folder (virtiofs), not as a disk: detach it, and back it up as files", v.Name)
		}
	}
	for _, d := range spec.Domain.Devices.Disks {
		if d.Name != v.Name {
			continue
		}
		if d.Shareable != nil && *d.Shareable {
			return refuse(v1alpha1.ReasonVolumeShared,
				"disk %q is shareable: others may write it during the cut; detach it, or give this VM a disk of its own", v.Name)
		}
		if d.LUN != nil {
			return refuse(v1alpha1.ReasonVolumeUnsupported,
				"disk %q is a LUN, which the guest may share by SCSI reservations: attach it as a disk", v.Name)
		}
	}
	return attached(in, v)
}

// attached waits for a hot plug that is under way.
func attached(in Seen, v kubevirtv1.Volume) *Refusal {
	if !running(in) {
		return nil
	}
	for _, s := range in.VMI.Status.VolumeStatus {
		if s.Name == v.Name && s.HotplugVolume != nil && s.Phase != kubevirtv1.VolumeReady {
			return wait(v1alpha1.ReasonVolumeNotReady, "disk %q is being plugged in or out: %s", v.Name, s.Phase)
		}
	}
	return nil
}

// excluded says why a volume without a claim loses nothing.
func excluded(v kubevirtv1.Volume) v1alpha1.BackupVolume {
	return v1alpha1.BackupVolume{
		VolumeFacts: v1alpha1.VolumeFacts{Name: v.Name, Role: v1alpha1.RoleDisk},
		Outcome:     v1alpha1.VolumeExcluded,
		Reason:      whyExcluded(v),
	}
}

func whyExcluded(v kubevirtv1.Volume) string {
	switch {
	case v.ContainerDisk != nil:
		return "containerDisk: comes from its image at every start, writes are lost"
	case v.EmptyDisk != nil:
		return "emptyDisk: empty at every start"
	case v.Ephemeral != nil:
		return "ephemeral: writes are lost at every stop; the claim behind it is not the VM's own"
	case v.CloudInitNoCloud != nil, v.CloudInitConfigDrive != nil:
		return "cloud-init: made from the VM's spec at every start"
	case v.Sysprep != nil:
		return "sysprep: made from a Secret or ConfigMap at every start"
	case v.MemoryDump != nil:
		return "memoryDump: a diagnostic copy of the guest's memory"
	case v.ConfigMap != nil, v.Secret != nil, v.ServiceAccount != nil, v.DownwardAPI != nil, v.DownwardMetrics != nil:
		return "made from objects of the cluster at every start"
	default:
		return "not on a claim: made at every start"
	}
}

// included is a volume on a claim, with the facts of the claim.
func included(in Seen, name, claim string, role v1alpha1.VolumeRole) (Volume, *Refusal) {
	c := in.Claims[claim]
	switch {
	case c == nil:
		return Volume{}, refuse(v1alpha1.ReasonVolumeNotReady, "claim %q of volume %q does not exist", claim, name)
	case c.DeletionTimestamp != nil:
		return Volume{}, refuse(v1alpha1.ReasonVolumeNotReady, "claim %q of volume %q is being deleted", claim, name)
	case c.Status.Phase == corev1.ClaimLost:
		return Volume{}, refuse(v1alpha1.ReasonVolumeNotReady, "claim %q of volume %q has lost its PersistentVolume", claim, name)
	case c.Status.Phase != corev1.ClaimBound:
		return Volume{}, wait(v1alpha1.ReasonVolumeNotReady, "claim %q of volume %q is not bound", claim, name)
	}
	out := Volume{BackupVolume: v1alpha1.BackupVolume{
		VolumeFacts: facts(name, role, c),
		Outcome:     v1alpha1.VolumeIncluded,
	}}
	out.RequestBytes = c.Spec.Resources.Requests.Storage().Value()
	if pv := in.Volumes[c.Spec.VolumeName]; pv != nil && pv.Spec.CSI != nil {
		out.Driver, out.Handle = pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle
	}
	return out, nil
}

func facts(name string, role v1alpha1.VolumeRole, c *corev1.PersistentVolumeClaim) v1alpha1.VolumeFacts {
	out := v1alpha1.VolumeFacts{
		Name: name, Role: role, ClaimName: c.Name, ClaimUID: c.UID,
		VolumeMode: string(corev1.PersistentVolumeFilesystem),
		SizeBytes:  c.Status.Capacity.Storage().Value(),
	}
	if c.Spec.StorageClassName != nil {
		out.StorageClassName = *c.Spec.StorageClassName
	}
	if c.Spec.VolumeMode != nil {
		out.VolumeMode = string(*c.Spec.VolumeMode)
	}
	for _, m := range c.Spec.AccessModes {
		out.AccessModes = append(out.AccessModes, string(m))
	}
	return out
}
