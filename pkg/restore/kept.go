package restore

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
)

// A replaced volume outlives the restore that replaced it: its kept claim says itself until
// when, and whose it is. The restore writes that down before it lets go, and who removes
// the claim needs no restore. What is not in that record is never removed.

// afterwards notes on the kept claims until when they are kept, lets the restore go, and records
// when they are gone.
func afterwards(in Observed) Decision {
	s, d := in.Restore.Status, ended(in)
	if in.Restore.Spec.DryRun {
		return d.do(removeJobs(in)...)
	}
	if marks := unmarked(in); len(marks) > 0 {
		d.RequeueAfter = step
		return d.do(marks...)
	}
	d = d.do(letGo(in)...)
	if len(s.Replaced) == 0 || s.Switch == nil || s.Switch.CommittedAt == nil || s.ReplacedRemovedAt != nil || in.Restore.DeletionTimestamp != nil {
		return d
	}
	if left := keptUntil(in.Restore).Sub(in.Now); left > 0 {
		d.RequeueAfter = left
		return d
	}
	for _, c := range keptClaims(in) {
		if _, expires := Expiry(c); expires || c.DeletionTimestamp != nil {
			d.RequeueAfter = patience
			return d
		}
	}
	return d.record(func(s *v1alpha1.VMStateRestoreStatus) {
		s.ReplacedRemovedAt = &metav1.Time{Time: in.Now}
	})
}

// unmarked are the notes that are missing. The finalizer is there until all of them were written;
// one that is missing later was taken away by a person, who wants to keep the claim.
func unmarked(in Observed) []action.Action {
	if len(letGo(in)) == 0 {
		return nil
	}
	var out []action.Action
	for _, c := range keptClaims(in) {
		if c.DeletionTimestamp == nil && c.Annotations[v1alpha1.AnnotationKeptUID] != string(c.UID) {
			out = append(out, action.MarkKept{Claim: c.Name, UID: c.UID, Until: keptUntil(in.Restore)})
		}
	}
	return out
}

// keptClaims are those that were recorded when the restore ended.
func keptClaims(in Observed) []*corev1.PersistentVolumeClaim {
	var out []*corev1.PersistentVolumeClaim
	for _, r := range in.Restore.Status.Replaced {
		if c := in.Claims[r.KeptClaimName]; c != nil && r.KeptClaimUID != "" && c.UID == r.KeptClaimUID {
			out = append(out, c)
		}
	}
	return out
}

// recordKept records which claims keep the replaced volumes.
func recordKept(in Observed, s *v1alpha1.VMStateRestoreStatus) {
	for i := range s.Replaced {
		if c := in.Claims[s.Replaced[i].KeptClaimName]; c != nil && ours(in, c.Labels) {
			s.Replaced[i].KeptClaimUID = c.UID
		}
	}
}

func keptNames(in Observed) []string {
	var out []string
	for _, r := range in.Restore.Status.Replaced {
		if c := in.Claims[r.KeptClaimName]; c != nil && ours(in, c.Labels) {
			out = append(out, c.Name)
		}
	}
	return out
}

// keptUntil is when the replaced volumes may go, of a restore that has ended.
func keptUntil(r *v1alpha1.VMStateRestore) time.Time { return r.Status.CompletedAt.Add(keepFor(r)) }

func keepFor(r *v1alpha1.VMStateRestore) time.Duration {
	if r.Spec.KeepReplacedSeconds == nil {
		return 24 * time.Hour
	}
	return time.Duration(*r.Spec.KeepReplacedSeconds) * time.Second
}

// Expiry says until when a claim is kept that a restore made to keep a replaced volume; false for
// any other claim, for a copy of such a claim, for one that somebody adopted, and for one
// whose time a person took away.
func Expiry(c *corev1.PersistentVolumeClaim) (time.Time, bool) {
	owner, name := types.UID(c.Labels[v1alpha1.LabelOwnerUID]), c.Annotations[v1alpha1.AnnotationReplaced]
	recorded := owner != "" && name != "" && c.Name == keptClaim(name, owner) &&
		c.UID != "" && c.Annotations[v1alpha1.AnnotationKeptUID] == string(c.UID)
	until, err := time.Parse(time.RFC3339, c.Annotations[v1alpha1.AnnotationKeptUntil])
	return until, recorded && err == nil && c.DeletionTimestamp == nil && len(c.OwnerReferences) == 0
}

// Around is what could use a claim: all of its namespace.
type Around struct {
	Machines  []kubevirtv1.VirtualMachine
	Instances []kubevirtv1.VirtualMachineInstance
	Pods      []corev1.Pod
}

// User is who has put a claim to use, in words; empty if nobody has.
func (a Around) User(claim string) string {
	for i := range a.Machines {
		if t := a.Machines[i].Spec.Template; t != nil && slices.Contains(claimsOf(t.Spec.Volumes), claim) {
			return "virtual machine " + a.Machines[i].Name
		}
	}
	for i := range a.Instances {
		if vmi := &a.Instances[i]; !vmi.IsFinal() && slices.Contains(instanceClaims(vmi), claim) {
			return "instance " + vmi.Name
		}
	}
	for i := range a.Pods {
		pod := &a.Pods[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
		}) {
			return "pod " + pod.Name
		}
	}
	return ""
}

// ended says again what was said when the restore ended: it does not change with what
// becomes of the machine later.
func ended(in Observed) Decision {
	if f := in.Restore.Status.Failure; f != nil {
		return decide(in, conditions.Stalled, f.Reason, "%s", f.Message)
	}
	d := decide(in, conditions.Done, v1alpha1.ReasonRestored, "%s", "")
	for _, c := range in.Restore.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			d.Reason, d.Message = c.Reason, c.Message
		}
	}
	return d
}
