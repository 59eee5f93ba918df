package inventory

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// disks lists every volume of the VM's spec and of its instance, state apart.
func disks(in Seen, found *refusals) []Volume {
	var out []Volume
	captured := 0
	for _, v := range volumesOf(in, found) {
		found.add(supported(in, v))
		name := claimOf(v)
		switch {
		case v.HostDisk != nil:
			captured++ // persistent, and refused
			continue
		case name == "":
			out = append(out, Volume{BackupVolume: excluded(v)})
			continue
		}
		captured++
		volume, r := included(in, v.Name, name, v1alpha1.RoleDisk)
		found.add(r)
		if volume != nil {
			out = append(out, *volume)
		}
		if !readOnly(in, v) {
			found.add(inUse(in, v.Name, name))
		}
	}
	if captured == 0 {
		found.add(refuse(v1alpha1.ReasonNoVolumes, machine(in.VM.Name),
			"VM %q has no disk on a claim, so there is nothing that a restore could bring back", in.VM.Name))
	}
	return out
}

// volumesOf is the VM's list, and what its instance has beside it. A claim that differs
// between the two is about to be changed.
func volumesOf(in Seen, found *refusals) []kubevirtv1.Volume {
	var out []kubevirtv1.Volume
	if in.VM.Spec.Template != nil {
		out = slices.Clone(in.VM.Spec.Template.Spec.Volumes)
	}
	if !running(in) {
		return out
	}
	for _, v := range out {
		seen := volumeNamed(in.VMI.Spec.Volumes, v.Name)
		if seen != nil && claimOf(*seen) != claimOf(v) {
			found.add(wait(v1alpha1.ReasonVMUnsettled, machine(in.VM.Name), "volume %q of VM %q is on claim %q, and its spec asks for %q",
				v.Name, in.VM.Name, claimOf(*seen), claimOf(v)).of(v.Name).next("restart the VM, or undo the change"))
		}
	}
	for _, v := range in.VMI.Spec.Volumes {
		if volumeNamed(out, v.Name) != nil {
			continue
		}
		if claimOf(v) != "" {
			found.add(refuse(v1alpha1.ReasonVolumeUnsupported, instance(in.VMI.Name),
				"disk %q was plugged into the instance alone and is not in the spec of VM %q", v.Name, in.VM.Name).of(v.Name).
				next("plug it in persistently (virtctl addvolume --persist), or unplug it"))
		}
		out = append(out, v)
	}
	return out
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
	spec, vm := effective(in), machine(in.VM.Name)
	if v.HostDisk != nil {
		return refuse(v1alpha1.ReasonVolumeUnsupported, vm, "volume %q is a file on a node (hostDisk)", v.Name).of(v.Name).next("move it to a claim")
	}
	if claimOf(v) == "" {
		return nil
	}
	for _, f := range spec.Domain.Devices.Filesystems {
		if f.Name == v.Name {
			return refuse(v1alpha1.ReasonVolumeUnsupported, vm, "volume %q is shared with the guest as a folder (virtiofs), not as a disk", v.Name).
				of(v.Name).next("detach it, and back it up as files")
		}
	}
	for _, d := range spec.Domain.Devices.Disks {
		if d.Name != v.Name {
			continue
		}
		if d.Shareable != nil && *d.Shareable {
			return refuse(v1alpha1.ReasonVolumeShared, vm, "disk %q is shareable: others may write it during the cut", v.Name).
				of(v.Name).next("detach it, or give this VM a disk of its own")
		}
		if d.LUN != nil {
			return refuse(v1alpha1.ReasonVolumeUnsupported, vm, "disk %q is a LUN, which the guest may share by SCSI reservations", v.Name).
				of(v.Name).next("attach it as a disk")
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
			return wait(v1alpha1.ReasonVolumeNotReady, instance(in.VMI.Name), "disk %q is being plugged in or out: %s", v.Name, s.Phase).
				of(v.Name).next("wait for its end")
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

// included is a volume on a claim, with the facts of the claim; nil if there is none.
func included(in Seen, name, claimName string, role v1alpha1.VolumeRole) (*Volume, *Refusal) {
	c := in.Claims[claimName]
	if c == nil {
		return nil, refuse(v1alpha1.ReasonVolumeNotReady, claim(claimName), "claim %q of volume %q does not exist", claimName, name).
			of(name).next("restore it, or detach the volume")
	}
	out := &Volume{
		BackupVolume: v1alpha1.BackupVolume{VolumeFacts: facts(name, role, c), Outcome: v1alpha1.VolumeIncluded},
		RequestBytes: c.Spec.Resources.Requests.Storage().Value(),
		ClaimLabels:  c.Labels,
	}
	if pv := in.Volumes[c.Spec.VolumeName]; pv != nil && pv.Spec.CSI != nil {
		out.Driver, out.Handle = pv.Spec.CSI.Driver, pv.Spec.CSI.VolumeHandle
	}
	switch {
	case c.DeletionTimestamp != nil:
		return out, refuse(v1alpha1.ReasonVolumeNotReady, claim(claimName), "claim %q of volume %q is being deleted", claimName, name).
			of(name).next("detach the volume, or restore it")
	case c.Status.Phase == corev1.ClaimLost:
		return out, refuse(v1alpha1.ReasonVolumeNotReady, claim(claimName), "claim %q of volume %q has lost its PersistentVolume", claimName, name).
			of(name).next("restore it, or detach the volume")
	case c.Status.Phase != corev1.ClaimBound:
		return out, wait(v1alpha1.ReasonVolumeNotReady, claim(claimName), "claim %q of volume %q is not bound", claimName, name).
			of(name).next("kubectl describe pvc %s says what it waits for", claimName)
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
