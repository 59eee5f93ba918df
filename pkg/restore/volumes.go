package restore

import "slices"

// VolumesToRead are the PersistentVolumes that a plan looks at: those of the claims that
// the virtual machine is on, and of the replaced ones. It needs Target and Claims.
func VolumesToRead(in Observed) []string {
	var out []string
	add := func(name string) {
		if name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, r := range in.Restore.Status.Replaced {
		add(r.PersistentVolumeName)
	}
	if in.Target == nil || in.Restore.Status.Switch != nil {
		return out
	}
	volumes, err := volumesOf(in.Target.Spec)
	if err != nil {
		return out
	}
	for _, v := range volumes {
		if c := in.Claims[claimOf(v)]; c != nil {
			add(c.Spec.VolumeName)
		}
	}
	for _, name := range stateClaims(in, in.Target.VM.Name) {
		add(in.Claims[name].Spec.VolumeName)
	}
	return out
}
