package restore

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
)

// undo takes back what was done before the point of no return, in reverse order, and
// removes what was made. The old firmware state has its label back before the machine is
// let go: there is no instant at which a start would find none.
func undo(in Observed) Decision {
	if actions := undoState(in); len(actions) > 0 {
		return failing(in).do(actions...)
	}
	// Held: a start now would be one on another firmware state, or on no disks.
	for _, why := range []string{wrongState(in), unreadable(in)} {
		if why != "" {
			f := in.Restore.Status.Failure
			return stalled(in, f.Reason, "%s; the virtual machine stays held, and nothing more is undone: %s", f.Message, why)
		}
	}
	for _, step := range []func(Observed) []action.Action{undoMachine, undoNewMachine, removeMade, removeJobs} {
		if actions := step(in); len(actions) > 0 {
			return failing(in).do(actions...)
		}
	}
	if waiting(in) {
		return failing(in)
	}
	return failing(in).record(func(s *v1alpha1.VMStateRestoreStatus) {
		s.CompletedAt = &metav1.Time{Time: in.Now}
		if s.Switch != nil {
			s.Switch.RolledBackAt = microTimePtr(in)
		}
	})
}

func failing(in Observed) Decision {
	f := in.Restore.Status.Failure
	d := decide(in, conditions.Failing, f.Reason, "%s", f.Message)
	d.RequeueAfter = patience
	return d
}

// mine says that the machine is the one that the switch was recorded for.
func mine(in Observed) bool {
	record := in.Restore.Status.Switch
	return record != nil && in.Target != nil && record.VMUID != "" && in.Target.VM.UID == record.VMUID
}

// undoState gives the label back.
func undoState(in Observed) []action.Action {
	name := targetName(in.Restore, in.Restore.Status.From)
	for _, v := range in.Restore.Status.Volumes {
		c := in.Claims[v.ClaimName]
		if c != nil && v.ClaimUID != "" && c.UID == v.ClaimUID && c.Labels[v1alpha1.LabelPersistentState] != "" {
			return []action.Action{action.UnlabelState{Claim: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion}}
		}
	}
	for _, r := range in.Restore.Status.Replaced {
		c := in.Claims[r.ClaimName]
		if r.Role == v1alpha1.RoleFirmwareState && c != nil && c.UID == r.ClaimUID && len(stateClaims(in, name)) == 0 {
			return []action.Action{action.LabelState{Claim: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion, VM: name}}
		}
	}
	return nil
}

// wrongState says why a machine in place must not be let go: the claims with the label of
// its firmware state are not exactly the one that it had.
func wrongState(in Observed) string {
	if in.Restore.Spec.Mode != v1alpha1.RestoreInPlace || !mine(in) || !holdsMachine(in) {
		return ""
	}
	name := in.Target.VM.Name
	labelled := stateClaims(in, name)
	for _, r := range in.Restore.Status.Replaced {
		if r.Role != v1alpha1.RoleFirmwareState {
			continue
		}
		c := in.Claims[r.ClaimName]
		if c == nil || c.UID != r.ClaimUID || c.DeletionTimestamp != nil {
			return fmt.Sprintf("claim %q, its firmware state, was deleted by somebody; restore again, or put a copy of it in its place", r.ClaimName)
		}
		labelled = slices.DeleteFunc(labelled, func(l string) bool { return l == r.ClaimName })
	}
	if len(labelled) == 0 {
		return ""
	}
	return fmt.Sprintf("claim %s carries the label %s=%s as well: take it off, or delete the claim", strings.Join(labelled, ", "), v1alpha1.LabelPersistentState, name)
}

// unreadable says why the volumes of a machine that is held cannot be put back: what they were is
// recorded, and is not guessed at.
func unreadable(in Observed) string {
	if in.Restore.Spec.Mode != v1alpha1.RestoreInPlace || !mine(in) || !isHeld(in.Target.Spec, holdClaim(in.Restore)) {
		return ""
	}
	_, err := unheldSpec(in)
	if err == nil {
		return ""
	}
	var claims []string
	for _, r := range in.Restore.Status.Replaced {
		claims = append(claims, r.ClaimName)
	}
	return fmt.Sprintf("what its volumes were cannot be read (%v): put them back in its spec by hand, on its claims (%s); the rest is undone then",
		err, strings.Join(claims, ", "))
}

// holdsMachine says that it is this restore that keeps the machine from starting.
func holdsMachine(in Observed) bool {
	holder := in.Target.VM.Status.RestoreInProgress
	return isHeld(in.Target.Spec, holdClaim(in.Restore)) || holder != nil && *holder == holderName(in.Restore)
}

// undoMachine puts the machine's volumes, its leave to start and its run strategy back.
func undoMachine(in Observed) []action.Action {
	if in.Restore.Spec.Mode != v1alpha1.RestoreInPlace || !mine(in) || in.Target.VM.DeletionTimestamp != nil {
		return nil
	}
	vm, record := in.Target.VM, in.Restore.Status.Switch
	hold := holdClaim(in.Restore)
	if isHeld(in.Target.Spec, hold) {
		if spec, err := unheldSpec(in); err == nil {
			return []action.Action{action.WriteVM{VM: vm.Name, UID: vm.UID, ResourceVersion: vm.ResourceVersion, Spec: spec}}
		}
	}
	if i := in.Instance; i != nil && heldInstance(i, hold) && i.DeletionTimestamp == nil {
		return []action.Action{action.DeleteInstance{Instance: i.Name, UID: i.UID}}
	}
	if holder := vm.Status.RestoreInProgress; holder != nil {
		if *holder != holderName(in.Restore) {
			return nil // another restore has it now, and its run strategy
		}
		return []action.Action{action.ReleaseVM{VM: vm.Name, UID: vm.UID, Holder: holderName(in.Restore)}}
	}
	if runStrategy(&vm.Spec) == string(kubevirtv1.RunStrategyHalted) && comesBack(record) {
		return []action.Action{action.SetRunStrategy{VM: vm.Name, UID: vm.UID, Strategy: record.PreviousRunStrategy}}
	}
	manual := runStrategy(&vm.Spec) == string(kubevirtv1.RunStrategyManual)
	if manual && record.Ran && in.Instance == nil && len(vm.Status.StateChangeRequests) == 0 {
		return []action.Action{action.RequestStart{VM: vm.Name, UID: vm.UID}}
	}
	return nil
}

// comesBack says that the run strategy from before is to be put back. One that runs a machine
// once would run it again: where it did not run, it stays halted.
func comesBack(record *v1alpha1.RestoreSwitch) bool {
	switch record.PreviousRunStrategy {
	case string(kubevirtv1.RunStrategyHalted):
		return false
	case string(kubevirtv1.RunStrategyOnce), string(kubevirtv1.RunStrategyRerunOnFailure):
		return record.Ran
	}
	return true
}

// unheldSpec is the machine's present spec with the volumes that were recorded: what
// else was changed meanwhile stays.
func unheldSpec(in Observed) (map[string]any, error) {
	previous, err := previousSpec(in)
	if err != nil {
		return nil, err
	}
	volumes, err := volumesOf(previous)
	if err != nil {
		return nil, err
	}
	spec, err := heldSpec(in.Target.Spec, holdClaim(in.Restore)) // a deep copy
	if err != nil {
		return nil, err
	}
	if templates, had := previous["dataVolumeTemplates"]; had {
		spec["dataVolumeTemplates"] = templates
	}
	return spec, setVolumes(spec, volumes)
}

func heldInstance(i *kubevirtv1.VirtualMachineInstance, hold string) bool {
	return slices.ContainsFunc(i.Spec.Volumes, func(v kubevirtv1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == hold
	})
}

// undoNewMachine removes the machine that was made, which never ran.
func undoNewMachine(in Observed) []action.Action {
	if in.Restore.Spec.Mode != v1alpha1.RestoreNewVM || in.Restore.Status.Switch == nil || in.Target == nil {
		return nil
	}
	vm := in.Target.VM
	// One that is not recorded yet is known by the hold that it was made with: a label can be copied.
	unrecorded := in.Restore.Status.Switch.VMUID == "" && isHeld(in.Target.Spec, holdClaim(in.Restore))
	if !ours(in, vm.Labels) || vm.DeletionTimestamp != nil || !mine(in) && !unrecorded {
		return nil
	}
	return []action.Action{action.DeleteVM{VM: vm.Name, UID: vm.UID}}
}

// removeMade removes the claims and revisions that were made for this restore.
func removeMade(in Observed) []action.Action {
	var out []action.Action
	for _, v := range in.Restore.Status.Volumes {
		c := in.Claims[v.ClaimName]
		if madeFor(in, v, c) && c.DeletionTimestamp == nil {
			out = append(out, action.DeleteMade{Kind: action.KindClaim, Name: c.Name, UID: c.UID})
		}
	}
	for _, r := range in.Revisions {
		if ours(in, r.Labels) && (madeBy(r, in.Restore) || handedOver(in, r)) && r.DeletionTimestamp == nil {
			out = append(out, action.DeleteMade{Kind: action.KindRevision, Name: r.Name, UID: r.UID})
		}
	}
	return out
}

// madeFor says that a claim is the one that was made for a volume: the recorded one, or, where none
// was recorded yet, one that the restore controls. A label can be copied.
func madeFor(in Observed, v v1alpha1.RestoredVolume, c *corev1.PersistentVolumeClaim) bool {
	return c != nil && ours(in, c.Labels) && (c.UID == v.ClaimUID || v.ClaimUID == "" && madeBy(c, in.Restore))
}

// handedOver says that an object is controlled by the machine that is switched.
func handedOver(in Observed, obj metav1.Object) bool {
	record, owner := in.Restore.Status.Switch, metav1.GetControllerOf(obj)
	return record != nil && record.VMUID != "" && owner != nil && owner.UID == record.VMUID
}

// waiting: something that was made is still going.
func waiting(in Observed) bool {
	for _, v := range in.Restore.Status.Volumes {
		if madeFor(in, v, in.Claims[v.ClaimName]) {
			return true
		}
	}
	return in.Restore.Spec.Mode == v1alpha1.RestoreNewVM && in.Target != nil && mine(in)
}
