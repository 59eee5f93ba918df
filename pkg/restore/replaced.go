package restore

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
)

// replacedClaims are the claims that the virtual machine is on now: its disks that the
// backup holds, and its firmware state.
func replacedClaims(in Observed) ([]v1alpha1.ReplacedClaim, error) {
	roles, err := replacedRoles(in)
	if err != nil {
		return nil, err
	}
	var out []v1alpha1.ReplacedClaim
	for _, name := range slices.Sorted(maps.Keys(roles)) {
		c := in.Claims[name]
		if c == nil {
			continue // a disk that is lost is what restores are for
		}
		kept, err := json.Marshal(keptForm(c))
		if err != nil {
			return nil, err
		}
		out = append(out, v1alpha1.ReplacedClaim{
			ClaimName: name, ClaimUID: c.UID, Role: roles[name], PersistentVolumeName: c.Spec.VolumeName,
			ReclaimPolicy: reclaimPolicy(in, c), KeptClaimName: keptClaim(name, in.Restore.UID),
			Claim: &runtime.RawExtension{Raw: kept},
		})
	}
	return out, nil
}

func replacedRoles(in Observed) (map[string]v1alpha1.VolumeRole, error) {
	volumes, err := volumesOf(in.Target.Spec)
	if err != nil {
		return nil, err
	}
	roles := map[string]v1alpha1.VolumeRole{}
	for _, v := range volumes {
		name, _ := v["name"].(string)
		if claim := claimOf(v); claim != "" && slices.Contains(diskNames(*in.Machine), name) {
			roles[claim] = v1alpha1.RoleDisk
		}
	}
	for _, claim := range stateClaims(in, in.Target.VM.Name) {
		roles[claim] = v1alpha1.RoleFirmwareState
	}
	return roles, nil
}

func reclaimPolicy(in Observed, c *corev1.PersistentVolumeClaim) string {
	if pv := in.Volumes[c.Spec.VolumeName]; pv != nil {
		return string(pv.Spec.PersistentVolumeReclaimPolicy)
	}
	return ""
}

// setAside puts the replaced volumes out of reach: each keeps its contents under another
// claim name, so that a spec with the old names, whoever writes it back, finds nothing.
// True when all of them are.
func setAside(in Observed) ([]action.Action, bool) {
	var out []action.Action
	done := true
	for _, r := range in.Restore.Status.Replaced {
		actions, aside := setOneAside(in, r)
		out = append(out, actions...)
		done = done && aside
	}
	return out, done
}

// outOfReach says that no new pod can be given a replaced claim by its old name.
func outOfReach(in Observed) bool {
	for _, r := range in.Restore.Status.Replaced {
		if c := in.Claims[r.ClaimName]; c != nil && c.UID == r.ClaimUID && c.DeletionTimestamp == nil {
			return false
		}
	}
	return true
}

func setOneAside(in Observed, r v1alpha1.ReplacedClaim) ([]action.Action, bool) {
	pv := in.Volumes[r.PersistentVolumeName]
	if in.NamespaceGoes {
		return goesWithNamespace(r, pv)
	}
	kept := in.Claims[r.KeptClaimName]
	old := in.Claims[r.ClaimName]
	if old != nil && old.UID != r.ClaimUID {
		old = nil // another one of that name is not ours to judge
	}
	switch {
	case old != nil && old.DeletionTimestamp != nil:
		return nil, false
	case old != nil && usedAgain(in, r.ClaimName):
		return leave(r, old, pv)
	case old != nil:
		return detach(r, old, pv), false
	case pv == nil || pv.Spec.ClaimRef == nil:
		return nil, true // nothing was bound, or it is gone
	case pv.Spec.ClaimRef.UID == r.ClaimUID && goes(pv):
		return nil, true // somebody deleted the claim before we did, and the volume is going with it
	case pv.Spec.ClaimRef.UID == r.ClaimUID:
		return []action.Action{action.ReserveVolume{Volume: pv.Name, ClaimUID: r.ClaimUID, For: r.KeptClaimName}}, false
	case pv.Spec.ClaimRef.Name != r.KeptClaimName || pv.Spec.ClaimRef.Namespace != in.Restore.Namespace:
		return nil, true // somebody took it
	case kept == nil && pv.Spec.ClaimRef.UID != "":
		return goesWithIt(r, pv)
	case kept == nil:
		form := recordedForm(r)
		if form == nil {
			return nil, true // see strayed
		}
		return []action.Action{action.KeepVolume{Claim: keeping(in, r, form)}}, false
	case kept.Status.Phase != corev1.ClaimBound || kept.UID != pv.Spec.ClaimRef.UID:
		return nil, false
	}
	return goesWithIt(r, pv)
}

// goes says that a volume does not stay without its claim. What is on the storage may be gone
// before the PersistentVolume is: such a one is kept by nobody.
func goes(pv *corev1.PersistentVolume) bool {
	return pv.DeletionTimestamp != nil || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain
}

// goesWithIt gives a volume that its kept claim has, or had, the reclaim policy back that it had:
// whoever deletes that claim deletes the volume, as it was before.
func goesWithIt(r v1alpha1.ReplacedClaim, pv *corev1.PersistentVolume) ([]action.Action, bool) {
	if r.ReclaimPolicy == "" || string(pv.Spec.PersistentVolumeReclaimPolicy) == r.ReclaimPolicy {
		return nil, true
	}
	return []action.Action{action.SetReclaimPolicy{Volume: pv.Name, ClaimUID: pv.Spec.ClaimRef.UID, Policy: r.ReclaimPolicy}}, false
}

// detach deletes the old claim once its volume is one that stays without it.
func detach(r v1alpha1.ReplacedClaim, old *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) []action.Action {
	if owner := metav1.GetControllerOf(old); owner != nil && owner.Kind == "DataVolume" {
		return []action.Action{action.OrphanDataVolume{Name: owner.Name, UID: owner.UID, Claim: old.Name, ClaimUID: old.UID}}
	}
	if pv != nil && pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		return []action.Action{action.SetReclaimPolicy{Volume: pv.Name, ClaimUID: old.UID, Policy: string(corev1.PersistentVolumeReclaimRetain)}}
	}
	return []action.Action{action.DeleteReplaced{Claim: r.ClaimName, UID: r.ClaimUID, Volume: r.PersistentVolumeName}}
}

// keptForm is what is recorded of a claim in order to make it again.
func keptForm(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Labels: carried(c.Labels), Annotations: carried(c.Annotations)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: c.Spec.AccessModes, Resources: c.Spec.Resources, VolumeName: c.Spec.VolumeName,
			StorageClassName: c.Spec.StorageClassName, VolumeMode: c.Spec.VolumeMode,
			VolumeAttributesClassName: c.Spec.VolumeAttributesClassName,
		},
	}
}

func keeping(in Observed, r v1alpha1.ReplacedClaim, form *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	c := form.DeepCopy()
	c.Name, c.Namespace = r.KeptClaimName, in.Restore.Namespace
	c.Labels = withOwner(c.Labels, in.Restore.UID)
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[v1alpha1.AnnotationReplaced] = r.ClaimName
	return c
}

// recordedForm is the claim as it was; nil if that cannot be read.
func recordedForm(r v1alpha1.ReplacedClaim) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{}
	if r.Claim == nil || json.Unmarshal(r.Claim.Raw, claim) != nil {
		return nil
	}
	return claim
}

// strayed names the volumes that no claim can be made for, to be said where the restore ends.
func strayed(in Observed) string {
	var out []string
	for _, r := range in.Restore.Status.Replaced {
		pv := in.Volumes[r.PersistentVolumeName]
		if pv == nil || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.Name != r.KeptClaimName || in.Claims[r.KeptClaimName] != nil || recordedForm(r) != nil {
			continue
		}
		out = append(out, pv.Name)
	}
	if len(out) == 0 {
		return ""
	}
	return "; what was recorded of replaced claims cannot be read, so their PersistentVolumes stay until a person makes claims for them or deletes them: " + strings.Join(out, ", ")
}
