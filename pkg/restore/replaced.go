package restore

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
)

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
	kept := in.Claims[r.KeptClaimName]
	old := in.Claims[r.ClaimName]
	if old != nil && old.UID != r.ClaimUID {
		old = nil // another one of that name is not ours to judge
	}
	switch {
	case old != nil && old.DeletionTimestamp != nil:
		return nil, false
	case old != nil:
		return detach(r, old, pv), false
	case pv == nil || pv.Spec.ClaimRef == nil:
		return nil, true // nothing was bound, or it is gone
	case string(pv.Spec.ClaimRef.UID) == string(r.ClaimUID):
		return []action.Action{action.ReserveVolume{Volume: pv.Name, ClaimUID: r.ClaimUID, For: r.KeptClaimName}}, false
	case pv.Spec.ClaimRef.Name != r.KeptClaimName || pv.Spec.ClaimRef.Namespace != in.Restore.Namespace:
		return nil, true // somebody took it
	case kept == nil:
		claim := &corev1.PersistentVolumeClaim{}
		if r.Claim == nil || json.Unmarshal(r.Claim.Raw, claim) != nil {
			return nil, true
		}
		return []action.Action{action.KeepVolume{Claim: keeping(in, r, claim)}}, false
	case kept.Status.Phase != corev1.ClaimBound || kept.UID != pv.Spec.ClaimRef.UID:
		return nil, false
	case r.ReclaimPolicy != "" && string(pv.Spec.PersistentVolumeReclaimPolicy) != r.ReclaimPolicy:
		return []action.Action{action.SetReclaimPolicy{Volume: pv.Name, ClaimUID: kept.UID, Policy: r.ReclaimPolicy}}, false
	}
	return nil, true
}

// detach deletes the old claim once its volume is one that stays without it.
func detach(r v1alpha1.ReplacedClaim, old *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) []action.Action {
	if owner := metav1.GetControllerOf(old); owner != nil && owner.Kind == "DataVolume" {
		return []action.Action{action.OrphanDataVolume{Name: owner.Name, ClaimUID: old.UID}}
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

// afterwards keeps the replaced volumes for as long as asked, and then removes them.
func afterwards(in Observed) Decision {
	s := in.Restore.Status
	if in.Restore.Spec.DryRun {
		return done(in).do(removeJobs(in)...)
	}
	if len(s.Replaced) == 0 || s.ReplacedRemovedAt != nil || in.Restore.DeletionTimestamp != nil {
		return done(in).do(letGo(in)...)
	}
	left := s.CompletedAt.Add(keepFor(in.Restore)).Sub(in.Now)
	if left > 0 {
		d := done(in).do(letGo(in)...)
		d.RequeueAfter = left
		return d
	}
	var out []action.Action
	gone := true
	for _, r := range s.Replaced {
		c := in.Claims[r.KeptClaimName]
		if c == nil || r.KeptClaimUID == "" || c.UID != r.KeptClaimUID {
			continue
		}
		gone = false
		if c.DeletionTimestamp == nil {
			out = append(out, action.DeleteMade{Kind: action.KindClaim, Name: c.Name, UID: c.UID})
		}
	}
	if !gone {
		d := done(in).do(letGo(in)...).do(out...)
		d.RequeueAfter = patience
		return d
	}
	return done(in).do(letGo(in)...).record(func(s *v1alpha1.VMStateRestoreStatus) {
		s.ReplacedRemovedAt = &metav1.Time{Time: in.Now}
	})
}

// done says again what was said when the restore ended: it does not change with what
// becomes of the machine later.
func done(in Observed) Decision {
	d := decide(in, conditions.Done, v1alpha1.ReasonRestored, "%s", "")
	for _, c := range in.Restore.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			d.Reason, d.Message = c.Reason, c.Message
		}
	}
	return d
}

func keepFor(r *v1alpha1.VMStateRestore) time.Duration {
	if r.Spec.KeepReplacedSeconds == nil {
		return 24 * time.Hour
	}
	return time.Duration(*r.Spec.KeepReplacedSeconds) * time.Second
}
