package inventory

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// inUse waits while a pod beside the VM's own may write a claim: an instance that was made
// directly, a rescue tool. What is cut meanwhile is of no one moment, whether the VM runs or not.
func inUse(in Seen, name, claim string) *Refusal {
	for i := range in.Others {
		p := &in.Others[i]
		if !mayWrite(p, claim) {
			continue
		}
		who, object := "pod "+p.Name, pod(p.Name)
		if vmi := p.Annotations[kubevirtv1.DomainAnnotation]; vmi != "" {
			who, object = "instance "+vmi, instance(vmi)
		}
		return wait(v1alpha1.ReasonVolumeShared, object, "claim %q of volume %q is in use by %s as well, which may write it during the cut", claim, name, who).
			of(name).next("end that, or detach the claim there")
	}
	return nil
}

// mayWrite says that a pod has a claim and is not known to only read it. One that has ended, or
// has no node yet, writes nothing; vmstate's own only read what a guest uses.
func mayWrite(pod *corev1.Pod, claim string) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.Spec.NodeName == "" || pod.Labels[v1alpha1.LabelTask] != "" {
		return false
	}
	for _, v := range pod.Spec.Volumes {
		if c := v.PersistentVolumeClaim; c != nil && c.ClaimName == claim && !c.ReadOnly && !onlyRead(pod, v.Name) {
			return true
		}
	}
	return false
}

// onlyRead says that every container mounts a volume read-only. A device may always be written.
func onlyRead(pod *corev1.Pod, volume string) bool {
	mounted := false
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if slices.ContainsFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == volume }) {
			return false
		}
		for _, m := range c.VolumeMounts {
			if m.Name == volume && !m.ReadOnly {
				return false
			}
			mounted = mounted || m.Name == volume
		}
	}
	return mounted
}

// readOnly says that the guest only reads a volume: many VMs may have one such disk.
func readOnly(in Seen, v kubevirtv1.Volume) bool {
	if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ReadOnly {
		return true
	}
	return slices.ContainsFunc(effective(in).Domain.Devices.Disks, func(d kubevirtv1.Disk) bool {
		return d.Name == v.Name && (d.CDRom != nil && (d.CDRom.ReadOnly == nil || *d.CDRom.ReadOnly) || d.Disk != nil && d.Disk.ReadOnly)
	})
}
