package inventory

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/test/build"
)

// beside adds a pod that is none of the VM's.
func beside(pod *corev1.Pod) func(*Seen) {
	return func(s *Seen) { s.Others = append(s.Others, *pod) }
}

// tool is a pod of a person's with a claim.
func tool(claim string, readOnly bool) *corev1.Pod {
	pod := build.Launcher(build.VM("x"), claim)
	pod.Name, pod.Labels, pod.Annotations = "guestfs", map[string]string{}, nil
	pod.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: claim, MountPath: "/disk", ReadOnly: readOnly}}}}
	return pod
}

// Who only reads, has ended or is ours is in nobody's way, and many VMs may read one disk.
func TestInUseByHarmless(t *testing.T) {
	changed := func(pod *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod { change(pod); return pod }
	cdrom := sealed()
	cdrom.Spec.Template.Spec.Domain.Devices.Disks[0].DiskDevice = kubevirtv1.DiskDevice{CDRom: &kubevirtv1.CDRomTarget{}}
	for name, in := range map[string]Seen{
		"ReadOnly":    with(halted(), beside(tool("root-db", true))),
		"Ended":       with(halted(), beside(changed(tool("root-db", false), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }))),
		"Unscheduled": with(halted(), beside(changed(tool("root-db", false), func(p *corev1.Pod) { p.Spec.NodeName = "" }))),
		"Ours":        with(halted(), beside(changed(tool("persistent-state-for-db-abcde", false), func(p *corev1.Pod) { p.Labels[v1alpha1.LabelTask] = "Witness" }))),
		"AnotherDisk": with(halted(), beside(tool("data-db", false))),
		"CDROM":       with(seen(cdrom, build.Claim("root-db"), build.StateClaim("db", "abcde")), beside(tool("root-db", false))),
	} {
		t.Run(name, func(t *testing.T) {
			if _, found := Of(in); len(found) > 0 {
				t.Errorf("refused: %+v", found)
			}
		})
	}
}
