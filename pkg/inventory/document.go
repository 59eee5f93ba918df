package inventory

import (
	"slices"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/document"
)

// legacyNamespace is what KubeVirt 1.5 and older derive a firmware UUID from, with the VM's name
// (kubevirt.io/kubevirt, pkg/virt-controller/watch/vm/firmware.go).
var legacyNamespace = uuid.MustParse("6a1a24a1-4061-4607-8bf4-a3963d0c5895")

// firmwareUUID in effect: of the instance, else of the spec, else the legacy one.
func firmwareUUID(in Seen) string {
	if in.VMI != nil && in.VMI.Spec.Domain.Firmware != nil && in.VMI.Spec.Domain.Firmware.UUID != "" {
		return string(in.VMI.Spec.Domain.Firmware.UUID)
	}
	return uuidOf(effective(in), in.VM.Name)
}

// InstanceUUID is the firmware UUID that the guest of an instance sees.
func InstanceUUID(vmi *kubevirtv1.VirtualMachineInstance) string { return uuidOf(&vmi.Spec, vmi.Name) }

func uuidOf(spec *kubevirtv1.VirtualMachineInstanceSpec, name string) string {
	if f := spec.Domain.Firmware; f != nil && f.UUID != "" {
		return string(f.UUID)
	}
	return uuid.NewSHA1(legacyNamespace, []byte(name)).String()
}

// Documents describe the virtual machine for a restore.
func Documents(in Seen, inv Inventory) document.Documents {
	out := document.Documents{
		Version:    document.Version,
		VM:         *in.VM,
		Expanded:   *in.VM,
		Revisions:  in.Revisions,
		Identity:   identity(in, inv),
		Volumes:    inv.Recorded(),
		References: references(in),
	}
	out.VM.ManagedFields = nil
	if in.Expanded != nil {
		out.Expanded = *in.Expanded
		out.Expanded.ManagedFields = nil
	}
	if running(in) {
		vmi := in.VMI.DeepCopy()
		vmi.ManagedFields = nil
		out.VMI = vmi
		out.KubeVirtVersion = vmi.Status.LauncherContainerImageVersion
	}
	for _, v := range inv.Volumes {
		if c := in.Claims[v.ClaimName]; v.Outcome == v1alpha1.VolumeIncluded && c != nil {
			out.Claims = append(out.Claims, document.Claim{Volume: v.Name, Labels: c.Labels, Annotations: c.Annotations})
		}
	}
	return out
}

func identity(in Seen, inv Inventory) document.Identity {
	spec := effective(in)
	out := document.Identity{
		FirmwareUUID:  inv.VM.FirmwareUUID,
		MachineType:   machineType(in),
		MACs:          macs(in),
		SecureBoot:    secureBoot(spec),
		PersistentTPM: inv.VM.PersistentTPM,
		PersistentEFI: inv.VM.PersistentEFI,
	}
	if spec.Domain.Firmware != nil {
		out.FirmwareSerial = spec.Domain.Firmware.Serial
	}
	if spec.Domain.CPU != nil {
		out.CPUModel = spec.Domain.CPU.Model
	}
	if in.VM.Spec.Template != nil {
		out.PCIAnnotations = pciAnnotations(in.VM.Spec.Template.ObjectMeta.Annotations)
	}
	return out
}

func machineType(in Seen) string {
	if running(in) && in.VMI.Status.Machine != nil && in.VMI.Status.Machine.Type != "" {
		return in.VMI.Status.Machine.Type
	}
	if m := effective(in).Domain.Machine; m != nil {
		return m.Type
	}
	return ""
}

// macs as the guest sees them; an address that only the pod network knows is not in the spec.
func macs(in Seen) map[string]string {
	out := map[string]string{}
	for _, i := range effective(in).Domain.Devices.Interfaces {
		if i.MacAddress != "" {
			out[i.Name] = i.MacAddress
		}
	}
	if running(in) {
		for _, i := range in.VMI.Status.Interfaces {
			if i.Name != "" && i.MAC != "" {
				out[i.Name] = i.MAC
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func secureBoot(spec *kubevirtv1.VirtualMachineInstanceSpec) bool {
	efi := efiOf(spec)
	return efi != nil && (efi.SecureBoot == nil || *efi.SecureBoot)
}

func pciAnnotations(all map[string]string) map[string]string {
	var out map[string]string
	for _, key := range []string{kubevirtv1.PciTopologyVersionAnnotation, kubevirtv1.PciInterfaceSlotCountAnnotation} {
		if value, ok := all[key]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

// references are the names of what the VM needs and the backup does not hold.
func references(in Seen) []document.Reference {
	var out []document.Reference
	add := func(kind, name, usedBy string) {
		r := document.Reference{Kind: kind, Name: name, UsedBy: usedBy}
		if name != "" && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	for _, v := range effective(in).Volumes {
		volumeReferences(v, add)
	}
	for _, n := range effective(in).Networks {
		if n.Multus != nil {
			add("NetworkAttachmentDefinition", n.Multus.NetworkName, "network "+n.Name)
		}
	}
	for _, c := range effective(in).AccessCredentials {
		if k := c.SSHPublicKey; k != nil && k.Source.Secret != nil {
			add("Secret", k.Source.Secret.SecretName, "access credentials")
		}
		if p := c.UserPassword; p != nil && p.Source.Secret != nil {
			add("Secret", p.Source.Secret.SecretName, "access credentials")
		}
	}
	if m := in.VM.Spec.Instancetype; m != nil {
		add(kindOr(m.Kind, "VirtualMachineClusterInstancetype"), m.Name, "instancetype")
	}
	if m := in.VM.Spec.Preference; m != nil {
		add(kindOr(m.Kind, "VirtualMachineClusterPreference"), m.Name, "preference")
	}
	return out
}

func kindOr(kind, otherwise string) string {
	if kind == "" {
		return otherwise
	}
	return kind
}

func volumeReferences(v kubevirtv1.Volume, add func(kind, name, usedBy string)) {
	usedBy := "volume " + v.Name
	if c := v.CloudInitNoCloud; c != nil {
		for _, ref := range []*localRef{c.UserDataSecretRef, c.NetworkDataSecretRef} {
			addLocal("Secret", ref, usedBy, add)
		}
	}
	if c := v.CloudInitConfigDrive; c != nil {
		for _, ref := range []*localRef{c.UserDataSecretRef, c.NetworkDataSecretRef} {
			addLocal("Secret", ref, usedBy, add)
		}
	}
	if s := v.Sysprep; s != nil {
		addLocal("Secret", s.Secret, usedBy, add)
		addLocal("ConfigMap", s.ConfigMap, usedBy, add)
	}
	switch {
	case v.Secret != nil:
		add("Secret", v.Secret.SecretName, usedBy)
	case v.ConfigMap != nil:
		add("ConfigMap", v.ConfigMap.Name, usedBy)
	case v.ServiceAccount != nil:
		add("ServiceAccount", v.ServiceAccount.ServiceAccountName, usedBy)
	case v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil:
		add("PersistentVolumeClaim", v.Ephemeral.PersistentVolumeClaim.ClaimName, usedBy)
	case v.ContainerDisk != nil:
		add("Secret", v.ContainerDisk.ImagePullSecret, usedBy)
	}
}

type localRef = corev1.LocalObjectReference

func addLocal(kind string, ref *localRef, usedBy string, add func(kind, name, usedBy string)) {
	if ref != nil {
		add(kind, ref.Name, usedBy)
	}
}
