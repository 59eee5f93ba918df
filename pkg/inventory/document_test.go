package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/pkg/document"
	"github.com/vmstate/vmstate/test/build"
)

// TestDocuments: what a sealed guest sees is taken from the instance that it saw it on.
func TestDocuments(t *testing.T) {
	vm := sealed(
		build.Volume("init", kubevirtv1.VolumeSource{CloudInitNoCloud: &kubevirtv1.CloudInitNoCloudSource{
			UserDataSecretRef: &corev1.LocalObjectReference{Name: "user-data"},
		}}),
		build.Volume("answers", kubevirtv1.VolumeSource{Sysprep: &kubevirtv1.SysprepSource{ConfigMap: &corev1.LocalObjectReference{Name: "unattend"}}}),
	)
	vm.Spec.Template.ObjectMeta.Annotations = map[string]string{kubevirtv1.PciTopologyVersionAnnotation: "v2", "other": "x"}
	vm.Spec.Template.Spec.Domain.Firmware.Serial = "serial-1"
	vm.Spec.Template.Spec.Networks = []kubevirtv1.Network{
		{Name: "lan", NetworkSource: kubevirtv1.NetworkSource{Multus: &kubevirtv1.MultusNetwork{NetworkName: "infra/lan"}}},
	}
	vm.Spec.Instancetype = &kubevirtv1.InstancetypeMatcher{Name: "u1.small"}
	in := runs(seen(vm, build.Claim("root-db"), build.StateClaim("db", "abcde")), func(s *Seen) {
		s.VMI.Status.Machine = &kubevirtv1.Machine{Type: "pc-q35-rhel9.6.0"}
		s.VMI.Status.Interfaces = []kubevirtv1.VirtualMachineInstanceNetworkInterface{{Name: "lan", MAC: "02:00:00:00:00:01"}, {InterfaceName: "docker0", MAC: "x"}}
		s.VMI.Status.LauncherContainerImageVersion = "v1.9.0"
	})
	inv, refusal := Of(in)
	if refusal != nil {
		t.Fatal(refusal)
	}
	got := Documents(in, inv)
	want := document.Documents{
		Version: document.Version, VM: *vm, Expanded: *vm, VMI: in.VMI, KubeVirtVersion: "v1.9.0", Volumes: inv.Recorded(),
		Identity: document.Identity{
			FirmwareUUID: build.FirmwareUUID, FirmwareSerial: "serial-1", MachineType: "pc-q35-rhel9.6.0",
			MACs:           map[string]string{"lan": "02:00:00:00:00:01"},
			PCIAnnotations: map[string]string{kubevirtv1.PciTopologyVersionAnnotation: "v2"},
			SecureBoot:     true, PersistentTPM: true, PersistentEFI: true,
		},
		Claims: []document.Claim{
			{Volume: "root"},
			{Volume: "persistent-state-for-db-abcde", Labels: map[string]string{"persistent-state-for": "db"}},
		},
		References: []document.Reference{
			{Kind: "Secret", Name: "user-data", UsedBy: "volume init"},
			{Kind: "ConfigMap", Name: "unattend", UsedBy: "volume answers"},
			{Kind: "NetworkAttachmentDefinition", Name: "infra/lan", UsedBy: "network lan"},
			{Kind: "VirtualMachineClusterInstancetype", Name: "u1.small", UsedBy: "instancetype"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
