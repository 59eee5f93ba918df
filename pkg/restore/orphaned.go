package restore

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
)

// orphaned: the machine was deleted by somebody after the point of no return. Nothing is made
// again behind their back. The replaced volumes are set aside all the same: they were taken from
// the machine already, and would stay on the storage with nobody to remove them.
func orphaned(in Observed, name string) Decision {
	left := "its restored volumes went with it"
	if claims := restoredClaims(in); len(claims) > 0 {
		left = "restored volumes that are left: " + strings.Join(claims, ", ")
	}
	message := fmt.Sprintf("virtual machine %q was deleted by somebody before the restore was done; %s; restore again as a new virtual machine", name, left)
	d := decide(in, conditions.Failing, v1alpha1.ReasonSwitchFailed, "%s", message)
	d.RequeueAfter = patience
	if aside, tidy := setAside(in); !tidy {
		d.Message += "; its replaced volumes are being put under claims of their own: " + strings.Join(underWay(in), ", ")
		return d.do(aside...)
	}
	if actions := removeJobs(in); len(actions) > 0 {
		return d.do(actions...)
	}
	if kept := keptNames(in); len(kept) > 0 {
		message += fmt.Sprintf("; its replaced volumes are kept for %s as %s", keepFor(in.Restore), strings.Join(kept, ", "))
	}
	message += strayed(in)
	return decide(in, conditions.Stalled, v1alpha1.ReasonSwitchFailed, "%s", message).record(func(s *v1alpha1.VMStateRestoreStatus) {
		s.Failure = &v1alpha1.RestoreFailure{At: microTime(in), Reason: v1alpha1.ReasonSwitchFailed, Message: message}
		s.CompletedAt = &metav1.Time{Time: in.Now}
		recordKept(in, s)
	})
}

// restoredClaims are the new claims that are there and stay.
func restoredClaims(in Observed) []string {
	var out []string
	for _, v := range in.Restore.Status.Volumes {
		if c := in.Claims[v.ClaimName]; c != nil && c.UID == v.ClaimUID && c.DeletionTimestamp == nil {
			out = append(out, v.ClaimName)
		}
	}
	return out
}

// usedAgain says that a machine which was made anew, or an instance, is on a replaced claim by
// its old name: the claim is theirs by now.
func usedAgain(in Observed, claim string) bool {
	if in.Target != nil && !mine(in) {
		volumes, err := volumesOf(in.Target.Spec)
		if err != nil || slices.ContainsFunc(volumes, func(v map[string]any) bool { return claimOf(v) == claim }) {
			return true
		}
	}
	return in.Target == nil && in.Instance != nil && !in.Instance.IsFinal() && slices.Contains(instanceClaims(in.Instance), claim)
}

// leave gives a claim that is used again the volume that it had, as it was.
func leave(r v1alpha1.ReplacedClaim, old *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) ([]action.Action, bool) {
	if pv == nil || r.ReclaimPolicy == "" || string(pv.Spec.PersistentVolumeReclaimPolicy) == r.ReclaimPolicy {
		return nil, true
	}
	return []action.Action{action.SetReclaimPolicy{Volume: pv.Name, ClaimUID: old.UID, Policy: r.ReclaimPolicy}}, false
}

// goesWithNamespace gives a volume whose namespace is being deleted the reclaim policy back that it had: it
// goes with its claim, as it would have without the restore. One that is reserved for a claim which
// cannot be made any more is retained, and stays for a person.
func goesWithNamespace(r v1alpha1.ReplacedClaim, pv *corev1.PersistentVolume) ([]action.Action, bool) {
	if pv == nil || pv.Spec.ClaimRef == nil {
		return nil, true
	}
	ref := pv.Spec.ClaimRef
	if ref.UID == r.ClaimUID || ref.UID != "" && ref.Name == r.KeptClaimName {
		return goesWithIt(r, pv)
	}
	return nil, true
}

// underWay are the replaced claims whose volumes are not out of the way yet.
func underWay(in Observed) []string {
	var out []string
	for _, r := range in.Restore.Status.Replaced {
		if _, aside := setOneAside(in, r); !aside {
			out = append(out, r.ClaimName)
		}
	}
	return out
}
