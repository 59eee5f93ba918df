package restore

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// LooksAround says that a restore looks at the cluster beside its own objects: before it makes
// anything, and again before it replaces anything.
func LooksAround(r *v1alpha1.VMStateRestore) bool {
	s := r.Status
	if s.From == nil || s.CompletedAt != nil || s.Failure != nil {
		return false
	}
	return len(s.Volumes) == 0 || s.Switch == nil && filled(Observed{Restore: r})
}

// checkUsers finds machines and instances that use a claim which a restore in place replaces:
// it would be taken from them.
func checkUsers(in Observed) []v1alpha1.Finding {
	if in.Restore.Spec.Mode != v1alpha1.RestoreInPlace || in.Target == nil {
		return nil
	}
	roles, err := replacedRoles(in)
	if err != nil {
		return []v1alpha1.Finding{failed("Shared", "the volumes of virtual machine %q cannot be read: %v", in.Target.VM.Name, err)}
	}
	var out []v1alpha1.Finding
	for _, claim := range slices.Sorted(maps.Keys(roles)) {
		if who := usersOf(in, claim); len(who) > 0 {
			out = append(out, failed("Shared/"+claim, "claim %q, which would be replaced, is used by %s as well: detach it there first, or restore as a new virtual machine",
				claim, strings.Join(who, ", ")))
		}
	}
	return out
}

// usersOf are the machines and instances of the restore's namespace that are on a claim, but
// for the one that is restored; sorted.
func usersOf(in Observed, claim string) []string {
	var who []string
	for i := range in.Cluster.Machines {
		vm := &in.Cluster.Machines[i]
		if vm.Namespace != in.Restore.Namespace || isTarget(in, vm.Namespace, vm.Name) || vm.Spec.Template == nil {
			continue
		}
		if slices.Contains(claimsOf(vm.Spec.Template.Spec.Volumes), claim) {
			who = append(who, "virtual machine "+vm.Name)
		}
	}
	for _, vmi := range livingInstances(in) {
		if vmi.Namespace == in.Restore.Namespace && slices.Contains(instanceClaims(vmi), claim) && !slices.Contains(who, "virtual machine "+vmi.Name) {
			who = append(who, "instance "+vmi.Name)
		}
	}
	slices.Sort(who)
	return who
}

// livingInstances are those that have not ended, of every machine but the one that is restored.
func livingInstances(in Observed) []*kubevirtv1.VirtualMachineInstance {
	var out []*kubevirtv1.VirtualMachineInstance
	for i := range in.Cluster.Instances {
		if vmi := &in.Cluster.Instances[i]; !vmi.IsFinal() && !isTarget(in, vmi.Namespace, vmi.Name) {
			out = append(out, vmi)
		}
	}
	return out
}

// claimsOf are the claims that volumes are on, read-only ones included.
func claimsOf(volumes []kubevirtv1.Volume) []string {
	var out []string
	for _, v := range volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		case v.DataVolume != nil:
			out = append(out, v.DataVolume.Name)
		case v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil:
			out = append(out, v.Ephemeral.PersistentVolumeClaim.ClaimName)
		}
	}
	return out
}

// instanceClaims are the claims that an instance is on: those of its spec, and those that
// KubeVirt says it has, which hold the firmware state too.
func instanceClaims(i *kubevirtv1.VirtualMachineInstance) []string {
	out := claimsOf(i.Spec.Volumes)
	for _, s := range i.Status.VolumeStatus {
		if s.PersistentVolumeClaimInfo != nil && s.PersistentVolumeClaimInfo.ClaimName != "" {
			out = append(out, s.PersistentVolumeClaimInfo.ClaimName)
		}
	}
	return out
}

// livingSource is who has the TPM of the backup and could run with it: the machine that was
// backed up, or an instance of it, also one that was made without the machine. Empty if nobody has.
func livingSource(in Observed) string {
	uid := in.Restore.Status.From.VMUID
	for _, vm := range in.Cluster.Machines {
		if vm.UID == uid && vm.DeletionTimestamp == nil {
			return "virtual machine " + vm.Namespace + "/" + vm.Name
		}
	}
	for _, vmi := range livingInstances(in) {
		if made := metav1.GetControllerOf(vmi); made != nil && made.UID == uid || onSourceClaims(in, vmi) {
			return "instance " + vmi.Namespace + "/" + vmi.Name
		}
	}
	return ""
}

// onSourceClaims says that an instance is on a claim that was backed up: the very one, by its UID.
func onSourceClaims(in Observed, vmi *kubevirtv1.VirtualMachineInstance) bool {
	if vmi.Namespace != in.Restore.Namespace {
		return false // claims of other namespaces are not looked at
	}
	uids := map[types.UID]bool{}
	for _, v := range in.Restore.Status.From.Volumes {
		uids[v.ClaimUID] = v.ClaimUID != ""
	}
	return slices.ContainsFunc(instanceClaims(vmi), func(name string) bool {
		c := in.Claims[name]
		return c != nil && uids[c.UID]
	})
}
