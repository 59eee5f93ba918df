package inventory

import (
	"slices"

	kubevirtv1 "kubevirt.io/api/core/v1"
)

// ClaimNames are the claims that the VM or its instance names.
func ClaimNames(in Seen) []string {
	var out []string
	add := func(volumes []kubevirtv1.Volume) {
		for _, v := range volumes {
			if name := claimOf(v); name != "" && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	if in.VM.Spec.Template != nil {
		add(in.VM.Spec.Template.Spec.Volumes)
	}
	if running(in) {
		add(in.VMI.Spec.Volumes)
	}
	return out
}

// RevisionNames are the ControllerRevisions that the VM or its instance refers to.
func RevisionNames(in Seen) []string {
	var out []string
	add := func(name string) {
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	if m := in.VM.Spec.Instancetype; m != nil {
		add(m.RevisionName)
	}
	if m := in.VM.Spec.Preference; m != nil {
		add(m.RevisionName)
	}
	for _, ref := range []*kubevirtv1.InstancetypeStatusRef{in.VM.Status.InstancetypeRef, in.VM.Status.PreferenceRef} {
		if ref != nil && ref.ControllerRevisionRef != nil {
			add(ref.ControllerRevisionRef.Name)
		}
	}
	if running(in) {
		add(in.VMI.Status.VirtualMachineRevisionName)
	}
	return out
}
