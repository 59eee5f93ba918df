package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/test/build"
)

func onClaim(name, claim string, role v1alpha1.VolumeRole) Volume {
	return Volume{
		BackupVolume: v1alpha1.BackupVolume{
			VolumeFacts: v1alpha1.VolumeFacts{
				Name: name, Role: role, ClaimName: claim, ClaimUID: build.Claim(claim).UID, StorageClassName: build.Class,
				Driver: build.Driver, VolumeMode: "Filesystem", AccessModes: []string{"ReadWriteOnce"}, SizeBytes: 1 << 30,
			},
			Outcome: v1alpha1.VolumeIncluded, Handle: "handle-" + claim,
		},
		RequestBytes: 1 << 30,
	}
}

func left(name, why string) Volume {
	return Volume{BackupVolume: v1alpha1.BackupVolume{
		VolumeFacts: v1alpha1.VolumeFacts{Name: name, Role: v1alpha1.RoleDisk}, Outcome: v1alpha1.VolumeExcluded, Reason: why,
	}}
}

func TestOf(t *testing.T) {
	const state = "persistent-state-for-db-abcde"
	vm := v1alpha1.CapturedVM{
		UID: "vm-db", FirmwareUUID: build.FirmwareUUID, PersistentTPM: true, PersistentEFI: true,
		StateClaimName: state, StatePVCUID: "claim-" + state,
	}
	live := vm
	live.InstanceUID, live.NodeName, live.LauncherUID = "vmi-db", build.Node, "pod-db"
	sealing := onClaim(state, state, v1alpha1.RoleFirmwareState)
	sealing.ClaimLabels = map[string]string{v1alpha1.LabelPersistentState: "db"}
	both := []Volume{onClaim("root", "root-db", v1alpha1.RoleDisk), sealing}
	tests := map[string]struct {
		why  string
		in   Seen
		want Inventory
	}{
		"Halted": {why: "at rest", in: halted(), want: Inventory{VM: vm, Volumes: both}},
		"Running": {
			why: "beside its launcher", in: runs(halted()),
			want: Inventory{VM: live, Volumes: both, Running: true, Placement: &job.Placement{NodeName: build.Node}},
		},
		"ByPreference": {
			why: "FC-001: running, the instance says that the state persists though the template does not",
			in: func() Seen {
				in := runs(seen(build.VM("db", build.Disk("root")), build.Claim("root-db"), build.StateClaim("db", "abcde")))
				in.VMI.Spec.Domain = sealed().Spec.Template.Spec.Domain
				return in
			}(),
			want: Inventory{VM: live, Volumes: both, Running: true, Placement: &job.Placement{NodeName: build.Node}},
		},
		"PausedWithAgent": {
			why: "FC-034: a VM paused by its owner is captured, and stays paused",
			in: runs(halted(), func(s *Seen) {
				build.Agent(s.VMI)
				s.VMI.Status.Conditions = append(s.VMI.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{
					Type: kubevirtv1.VirtualMachineInstancePaused, Status: "True", LastTransitionTime: metav1.Unix(60, 0), Reason: "PausedByUser",
				})
			}),
			want: Inventory{
				VM: live, Volumes: both, Running: true, Paused: true, Agent: true, Placement: &job.Placement{NodeName: build.Node},
				PausedSince: new(metav1.Unix(60, 0)), PauseReason: "PausedByUser",
			},
		},
		"Evacuating": {
			why: "a drain asks for a migration, and the guard before migrations asks for a backup: the backup goes first",
			in:  runs(halted(), func(s *Seen) { s.VMI.Status.EvacuationNodeName = build.Node }),
			want: Inventory{VM: live, Volumes: both, Running: true, Placement: &job.Placement{NodeName: build.Node}, Warnings: []string{
				`node "node-1" is being drained: a migration that begins during the cut spoils the moment, which is taken again after it`,
			}},
		},
		"Evacuated": {
			why:  "the node that was drained is not the one that it runs on by now",
			in:   runs(halted(), func(s *Seen) { s.VMI.Status.EvacuationNodeName = "node-2" }),
			want: Inventory{VM: live, Volumes: both, Running: true, Placement: &job.Placement{NodeName: build.Node}},
		},
		"FrozenAndProbed": {
			why: "another tool has frozen it, and KubeVirt pauses no guest whose probe would fail",
			in: runs(halted(), func(s *Seen) {
				s.VMI.Status.FSFreezeStatus = "frozen"
				s.VMI.Spec.LivenessProbe = &kubevirtv1.Probe{Handler: kubevirtv1.Handler{TCPSocket: &corev1.TCPSocketAction{}}}
			}),
			want: Inventory{VM: live, Volumes: both, Running: true, Frozen: true, Placement: &job.Placement{NodeName: build.Node},
				Unpausable: "its liveness probe would fail meanwhile, so KubeVirt does not pause it"},
		},
		"PausedByItsDisk": {
			why: "the guest's own trouble is said",
			in: runs(halted(), func(s *Seen) {
				s.VMI.Spec.LivenessProbe = &kubevirtv1.Probe{Handler: kubevirtv1.Handler{GuestAgentPing: &kubevirtv1.GuestAgentPing{}}}
				s.VMI.Status.Conditions = append(s.VMI.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{
					Type: kubevirtv1.VirtualMachineInstancePaused, Status: "True", Reason: "PausedIOError",
				})
			}),
			want: Inventory{VM: live, Volumes: both, Running: true, Paused: true, PauseReason: "PausedIOError", PausedSince: &metav1.Time{}, Placement: &job.Placement{NodeName: build.Node}, Warnings: []string{
				"the guest is paused because of an I/O error on a disk: the backup holds its disks as they are",
			}},
		},
		"Labels": {
			why: "the witness shares the launcher's labels and must not relabel",
			in:  runs(halted(), func(s *Seen) { s.VMI.Status.SelinuxContext = "system_u:object_r:container_file_t:s0:c1,c2" }),
			want: Inventory{VM: live, Volumes: both, Running: true, Placement: &job.Placement{
				NodeName: build.Node, SELinux: &corev1.SELinuxOptions{Level: "s0:c1,c2"},
				SELinuxChangePolicy: func() *corev1.PodSELinuxChangePolicy { p := corev1.SELinuxChangePolicyMountOption; return &p }(),
			}},
		},
		"LabelsWithoutLevel": {
			why: "a level made up by the runtime would be put on the live volume",
			in: runs(halted(), func(s *Seen) {
				s.VMI.Status.SelinuxContext = "system_u:object_r:container_file_t:s0:c1,c2"
				s.Launchers[0].Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: "virt_launcher.process"}}
			}),
			want: Inventory{VM: live, Volumes: both, Running: true, Placement: &job.Placement{
				NodeName: build.Node, SELinux: &corev1.SELinuxOptions{Type: "virt_launcher.process", Level: "s0:c1,c2"},
			}},
		},
		"EveryKindOfVolume": {
			why: "nothing is left out silently",
			in: seen(build.VM("db",
				build.Volume("image", kubevirtv1.VolumeSource{ContainerDisk: &kubevirtv1.ContainerDiskSource{}}),
				build.Disk("root"),
				build.Volume("scratch", kubevirtv1.VolumeSource{EmptyDisk: &kubevirtv1.EmptyDiskSource{}}),
				build.Volume("init", kubevirtv1.VolumeSource{CloudInitNoCloud: &kubevirtv1.CloudInitNoCloudSource{}}),
				build.Volume("dump", kubevirtv1.VolumeSource{MemoryDump: &kubevirtv1.MemoryDumpVolumeSource{}}),
				build.Volume("dv", kubevirtv1.VolumeSource{DataVolume: &kubevirtv1.DataVolumeSource{Name: "data"}}),
			), build.Claim("root-db"), build.Claim("data")),
			want: Inventory{
				VM: v1alpha1.CapturedVM{UID: "vm-db", FirmwareUUID: build.FirmwareUUID},
				Volumes: []Volume{
					left("image", "containerDisk: comes from its image at every start, writes are lost"),
					onClaim("root", "root-db", v1alpha1.RoleDisk),
					left("scratch", "emptyDisk: empty at every start"),
					left("init", "cloud-init: made from the VM's spec at every start"),
					left("dump", "memoryDump: a diagnostic copy of the guest's memory"),
					onClaim("dv", "data", v1alpha1.RoleDisk),
				},
			},
		},
		"NotPersistent": {
			why: "FC-006: a TPM that forgets is said",
			in: seen(build.VM("db", build.Disk("root"), func(vm *kubevirtv1.VirtualMachine) {
				vm.Spec.Template.Spec.Domain.Devices.TPM = &kubevirtv1.TPMDevice{}
				vm.Spec.Template.Spec.Domain.Firmware.Bootloader = &kubevirtv1.Bootloader{EFI: &kubevirtv1.EFI{}}
			}), build.Claim("root-db")),
			want: Inventory{
				VM:      v1alpha1.CapturedVM{UID: "vm-db", FirmwareUUID: build.FirmwareUUID},
				Volumes: []Volume{onClaim("root", "root-db", v1alpha1.RoleDisk)},
				Warnings: []string{
					"the TPM is not persistent: what the guest seals to it is lost at every stop, and no backup can bring it back",
					"the EFI variables are not persistent: boot entries and enrolled keys are lost at every stop, and no backup can bring them back",
				},
			},
		},
		"LegacyUUID": {
			why: "FC-026: KubeVirt 1.5 derives the UUID from the name and does not store it",
			in: seen(build.VM("db", build.Disk("root"), func(vm *kubevirtv1.VirtualMachine) { vm.Spec.Template.Spec.Domain.Firmware = nil }),
				build.Claim("root-db")),
			want: Inventory{
				VM:      v1alpha1.CapturedVM{UID: "vm-db", FirmwareUUID: "afbfbee4-e771-559c-b6d5-41f26cb027a0"},
				Volumes: []Volume{onClaim("root", "root-db", v1alpha1.RoleDisk)},
			},
		},
		"StateWithoutLabel": {
			why: "KubeVirt 1.3 made it by name alone",
			in:  seen(sealed(), build.Claim("root-db"), build.Claim("persistent-state-for-db")),
			want: Inventory{
				VM: v1alpha1.CapturedVM{
					UID: "vm-db", FirmwareUUID: build.FirmwareUUID, PersistentTPM: true, PersistentEFI: true,
					StateClaimName: "persistent-state-for-db", StatePVCUID: "claim-persistent-state-for-db",
				},
				Volumes: []Volume{onClaim("root", "root-db", v1alpha1.RoleDisk), onClaim("persistent-state-for-db", "persistent-state-for-db", v1alpha1.RoleFirmwareState)},
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, found := Of(tc.in)
			if len(found) > 0 {
				t.Fatalf("%s: refused: %+v", tc.why, found)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
