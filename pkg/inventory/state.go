package inventory

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// launcherStateVolume is the name of the pod volume that holds the firmware state
// (kubevirt.io/kubevirt v1.9.0, pkg/virt-controller/services/rendervolumes.go).
const launcherStateVolume = "vm-state"

// stateOf is what is known of the firmware state.
type stateOf struct {
	tpm, efi bool
	// volume that holds the state; excluded if it holds none of the two.
	volume *Volume
}

func (s stateOf) captured() bool {
	return s.volume != nil && s.volume.Outcome == v1alpha1.VolumeIncluded
}

// findState finds the claim of the firmware state by its label, by what the launcher mounts and by what the spec
// in effect asks for. All three must agree, once the machine is settled: one that starts or moves may have no
// claim yet, or two.
func findState(in Seen, settled bool, found *refusals) stateOf {
	spec := effective(in)
	out := stateOf{tpm: persistentTPM(spec), efi: persistentEFI(spec)}
	claims := stateClaims(in)
	if settled {
		interrupted := handedOver(in, claims)
		found.add(interrupted)
		if interrupted == nil {
			found.add(agree(in, out, claims))
		}
	}
	if len(claims) != 1 {
		return out
	}
	volume, r := included(in, claims[0], claims[0], v1alpha1.RoleFirmwareState)
	found.add(r)
	switch {
	case volume == nil:
		return out
	case !out.tpm && !out.efi:
		volume.Outcome = v1alpha1.VolumeExcluded
		volume.Reason = "holds neither TPM nor EFI variables, only marks of changed blocks, which a restore must not keep"
	case volume.VolumeMode == string(corev1.PersistentVolumeBlock):
		found.add(refuse(v1alpha1.ReasonStateUnsupported, claim(claims[0]),
			"claim %q holds the firmware state on a Block volume, which cannot be read file by file", claims[0]).of(claims[0]).
			next("let KubeVirt keep it on a claim of mode Filesystem (vmStateStorageClass of the KubeVirt object)"))
	}
	out.volume = volume
	found.add(inUse(in, claims[0], claims[0]))
	return out
}

// agree compares the three ways to know of the state.
func agree(in Seen, s stateOf, claims []string) *Refusal {
	wanted := s.tpm || s.efi
	mounted := MountedState(in)
	name := in.VM.Name
	switch {
	case len(claims) > 1 && slices.Contains(claims, mounted):
		return refuse(v1alpha1.ReasonStateAmbiguous, claim(claims[1]), "claims %s all carry the label %s=%s, and the running pod keeps the firmware state in %q",
			strings.Join(claims, ", "), v1alpha1.LabelPersistentState, name, mounted).
			next("take the label off the others, or KubeVirt may start the VM with one of them")
	case len(claims) > 1:
		return refuse(v1alpha1.ReasonStateAmbiguous, claim(claims[1]), "claims %s all carry the label %s=%s",
			strings.Join(claims, ", "), v1alpha1.LabelPersistentState, name).
			next("find out which one is the VM's firmware state, and take the label off the others")
	case running(in) && mounted != "" && !slices.Contains(claims, mounted):
		return refuse(v1alpha1.ReasonStateAmbiguous, claim(mounted),
			"the running pod keeps the firmware state in claim %q, which does not carry the label %s=%s", mounted, v1alpha1.LabelPersistentState, name).
			of(mounted).next("put the label back")
	case running(in) && mounted == "" && wanted:
		return refuse(v1alpha1.ReasonStateAmbiguous, pod(launcher(in).Name),
			"the running instance asks for persistent %s, and its pod mounts no firmware state", wantedNames(s)).next("restart VM %q", name)
	case wanted && len(claims) == 0:
		return refuse(v1alpha1.ReasonStateMissing, machine(name),
			"VM %q asks for persistent %s, and no claim carries the label %s=%s: its firmware state was lost, or it was never started",
			name, wantedNames(s), v1alpha1.LabelPersistentState, name).next("start it once, or restore it")
	case !wanted && len(claims) == 1 && mounted == "" && !tracksBlocks(in):
		return refuse(v1alpha1.ReasonStateAmbiguous, claim(claims[0]),
			"claim %q holds firmware state of VM %q, and the VM asks for no persistent TPM or EFI (KubeVirt deletes the claim at the next start)",
			claims[0], name).of(claims[0]).next("make TPM and EFI persistent again, or delete the claim")
	default:
		return nil
	}
}

// stateClaims are the names of the claims with the label, or of the one that KubeVirt 1.3 and
// older made without it. A migration's target carries the label only after the hand-over.
func stateClaims(in Seen) []string {
	var out []string
	for name, c := range in.Claims {
		_, target := c.Labels[v1alpha1.LabelMigrationName]
		if c.Labels[v1alpha1.LabelPersistentState] == in.VM.Name && c.DeletionTimestamp == nil && !target {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	legacy := in.Claims[LegacyStateClaim(in.VM.Name)]
	if len(out) == 0 && legacy != nil && legacy.DeletionTimestamp == nil && legacy.Labels[v1alpha1.LabelPersistentState] == "" {
		return []string{legacy.Name}
	}
	return out
}

// LegacyStateClaim is the name that KubeVirt 1.3 and older gave the state claim of a VM.
func LegacyStateClaim(vm string) string { return v1alpha1.LabelPersistentState + "-" + vm }

// MountedState is the claim that the launcher keeps the state in; "" if there is none.
func MountedState(in Seen) string {
	if !running(in) || launcher(in) == nil {
		return ""
	}
	for _, v := range launcher(in).Spec.Volumes {
		if v.Name == launcherStateVolume && v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return ""
}

func persistentTPM(spec *kubevirtv1.VirtualMachineInstanceSpec) bool {
	tpm := spec.Domain.Devices.TPM
	return tpmEnabled(tpm) && tpm.Persistent != nil && *tpm.Persistent
}

func tpmEnabled(tpm *kubevirtv1.TPMDevice) bool {
	return tpm != nil && (tpm.Enabled == nil || *tpm.Enabled)
}

func efiOf(spec *kubevirtv1.VirtualMachineInstanceSpec) *kubevirtv1.EFI {
	if f := spec.Domain.Firmware; f != nil && f.Bootloader != nil {
		return f.Bootloader.EFI
	}
	return nil
}

func persistentEFI(spec *kubevirtv1.VirtualMachineInstanceSpec) bool {
	efi := efiOf(spec)
	return efi != nil && efi.Persistent != nil && *efi.Persistent
}

// tracksBlocks says that changed block tracking keeps its marks in the state claim.
func tracksBlocks(in Seen) bool {
	s := in.VM.Status.ChangedBlockTracking
	return s != nil && (s.State == kubevirtv1.ChangedBlockTrackingInitializing || s.State == kubevirtv1.ChangedBlockTrackingEnabled)
}

func wantedNames(s stateOf) string {
	switch {
	case s.tpm && s.efi:
		return "TPM and EFI variables"
	case s.tpm:
		return "TPM"
	default:
		return "EFI variables"
	}
}

// warnings name what does not persist, so that no backup can bring it back (FC-006), and what may spoil the moment.
func warnings(in Seen) []string {
	spec := effective(in)
	var out []string
	if tpmEnabled(spec.Domain.Devices.TPM) && !persistentTPM(spec) {
		out = append(out, "the TPM is not persistent: what the guest seals to it is lost at every stop, and no backup can bring it back")
	}
	if efiOf(spec) != nil && !persistentEFI(spec) {
		out = append(out, "the EFI variables are not persistent: boot entries and enrolled keys are lost at every stop, and no backup can bring them back")
	}
	if !running(in) {
		return out
	}
	if node := in.VMI.Status.EvacuationNodeName; node != "" && node == in.VMI.Status.NodeName {
		out = append(out, fmt.Sprintf("node %q is being drained: a migration that begins during the cut spoils the moment, which is taken again after it", node))
	}
	for _, c := range in.VMI.Status.Conditions {
		if c.Type == kubevirtv1.VirtualMachineInstancePaused && c.Reason == "PausedIOError" {
			out = append(out, "the guest is paused because of an I/O error on a disk: the backup holds its disks as they are")
		}
	}
	return out
}
