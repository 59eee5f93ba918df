package restore

import (
	"slices"

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
	for _, step := range []func(Observed) []action.Action{undoState, undoMachine, undoNewMachine, removeMade, removeJobs} {
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
			return []action.Action{action.UnlabelState{Claim: c.Name, UID: c.UID}}
		}
	}
	for _, r := range in.Restore.Status.Replaced {
		c := in.Claims[r.ClaimName]
		if r.Role == v1alpha1.RoleFirmwareState && c != nil && c.UID == r.ClaimUID && hadLabel(r) &&
			c.Labels[v1alpha1.LabelPersistentState] != name {
			return []action.Action{action.LabelState{Claim: c.Name, UID: c.UID, VM: name}}
		}
	}
	return nil
}

// hadLabel: replaced firmware state is found by its label alone, so it had one.
func hadLabel(r v1alpha1.ReplacedClaim) bool { return r.Role == v1alpha1.RoleFirmwareState }

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
	if runStrategy(&vm.Spec) == string(kubevirtv1.RunStrategyHalted) && record.PreviousRunStrategy != string(kubevirtv1.RunStrategyHalted) {
		return []action.Action{action.SetRunStrategy{VM: vm.Name, UID: vm.UID, Strategy: record.PreviousRunStrategy}}
	}
	manual := runStrategy(&vm.Spec) == string(kubevirtv1.RunStrategyManual)
	if manual && record.Ran && in.Instance == nil && len(vm.Status.StateChangeRequests) == 0 {
		return []action.Action{action.RequestStart{VM: vm.Name, UID: vm.UID}}
	}
	return nil
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
	if !ours(in, vm.Labels) || vm.DeletionTimestamp != nil || !(mine(in) || in.Restore.Status.Switch.VMUID == "") {
		return nil
	}
	return []action.Action{action.DeleteVM{VM: vm.Name, UID: vm.UID}}
}

// removeMade removes the claims and revisions that were made for this restore.
func removeMade(in Observed) []action.Action {
	var out []action.Action
	for _, v := range in.Restore.Status.Volumes {
		c := in.Claims[v.ClaimName]
		if c != nil && ours(in, c.Labels) && (v.ClaimUID == "" || c.UID == v.ClaimUID) && c.DeletionTimestamp == nil {
			out = append(out, action.DeleteMade{Kind: action.KindClaim, Name: c.Name, UID: c.UID})
		}
	}
	for _, r := range in.Revisions {
		if ours(in, r.Labels) && r.DeletionTimestamp == nil {
			out = append(out, action.DeleteMade{Kind: action.KindRevision, Name: r.Name, UID: r.UID})
		}
	}
	return out
}

// waiting: something that was made is still going.
func waiting(in Observed) bool {
	for _, v := range in.Restore.Status.Volumes {
		if c := in.Claims[v.ClaimName]; c != nil && ours(in, c.Labels) {
			return true
		}
	}
	return in.Restore.Spec.Mode == v1alpha1.RestoreNewVM && in.Target != nil && mine(in)
}
