package restore

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
)

// finish goes forward from the point of no return: the spec with all new claims, the
// holds off, the start, the replaced volumes out of reach.
func finish(in Observed) Decision {
	name := targetName(in.Restore, in.Restore.Status.From)
	record := in.Restore.Status.Switch
	if in.Target == nil || in.Target.VM.UID != record.VMUID || in.Target.VM.DeletionTimestamp != nil {
		return orphaned(in, name)
	}
	if in.Machine == nil {
		return stalled(in, v1alpha1.ReasonSwitching, "virtual machine %q is past the point of no return, and what was recorded of the backup cannot be read (%s): "+
			"put its volumes on the restored claims by hand (%s), or delete it and restore again as a new virtual machine", name, in.Unreadable, restoredOn(in))
	}
	if record.DoneAt != nil {
		return start(in)
	}
	vm := in.Target.VM
	if !onNewClaims(in) {
		spec, err := finalSpec(*in.Machine, wanted(in))
		if err != nil {
			return stalled(in, v1alpha1.ReasonSwitching, "virtual machine %q cannot be put on its new volumes: %v", name, err)
		}
		return working(in, v1alpha1.ReasonSwitching, "putting virtual machine %q on its new volumes", name).do(action.WriteVM{
			VM: vm.Name, UID: vm.UID, ResourceVersion: vm.ResourceVersion, Spec: spec,
		})
	}
	if in.Instance != nil {
		d, _ := waitForInstance(in)
		return d
	}
	// A tool that writes the old spec back is denied as long as starts are, so the old names
	// stop resolving before that ends.
	if !outOfReach(in) {
		aside, _ := setAside(in)
		return working(in, v1alpha1.ReasonSwitching, "putting the replaced volumes of virtual machine %q out of reach", name).do(aside...)
	}
	if holder := vm.Status.RestoreInProgress; holder != nil && *holder == holderName(in.Restore) {
		return working(in, v1alpha1.ReasonSwitching, "allowing starts of virtual machine %q", name).
			do(action.ReleaseVM{VM: vm.Name, UID: vm.UID, Holder: holderName(in.Restore)})
	}
	return working(in, v1alpha1.ReasonSwitching, "virtual machine %q is on its new volumes", name).record(func(s *v1alpha1.VMStateRestoreStatus) {
		s.Switch.DoneAt = microTimePtr(in)
	})
}

// restoredOn tells which claim each volume was restored to.
func restoredOn(in Observed) string {
	var out []string
	for _, v := range in.Restore.Status.Volumes {
		out = append(out, v.Name+" on "+v.ClaimName)
	}
	return strings.Join(out, ", ")
}

// onNewClaims says that every disk of the machine is on its new claim, and its firmware
// UUID is the one that its TPM has.
func onNewClaims(in Observed) bool {
	w := wanted(in)
	volumes, err := volumesOf(in.Target.Spec)
	if err != nil {
		return false
	}
	on := 0
	for _, v := range volumes {
		name, _ := v["name"].(string)
		claim := claimOf(v)
		if claim == "" {
			continue
		}
		if claim != w.Claims[name] {
			return false
		}
		on++
	}
	f := in.Target.VM.Spec.Template.Spec.Domain.Firmware
	return on == expectedDisks(in) && f != nil && strings.EqualFold(string(f.UUID), w.firmwareUUID(*in.Machine))
}

// expectedDisks is how many volumes of the final spec are on claims.
func expectedDisks(in Observed) int {
	spec, err := finalSpec(*in.Machine, wanted(in))
	if err != nil {
		return -1
	}
	volumes, err := volumesOf(spec)
	if err != nil {
		return -1
	}
	return len(volumes) - len(slices.DeleteFunc(slices.Clone(volumes), func(v map[string]any) bool { return claimOf(v) != "" }))
}

// start gives the machine the run strategy that it is to have, once, and is done when it
// runs. Meanwhile the replaced volumes are put out of reach.
func start(in Observed) Decision {
	vm, record := in.Target.VM, in.Restore.Status.Switch
	aside, tidy := setAside(in)
	strategy, request := startWith(in)
	if record.StartedAt == nil {
		d := startStep(in, strategy, request)
		if d.State != conditions.Stalled || in.Restore.DeletionTimestamp == nil || !tidy {
			return d.do(aside...)
		}
		// A restore that is deleted does not wait for the person that a start would need.
	}
	// Somebody who stops it by now, or deletes the restore, need not wait for the guest.
	waits := runsBy(strategy, request) && runStrategy(&vm.Spec) == strategy && in.Restore.DeletionTimestamp == nil
	if waits && !ran(in.Instance) {
		return working(in, v1alpha1.ReasonStarting, "virtual machine %q is on its restored volumes and starts: %s", vm.Name, printable(vm)).do(aside...)
	}
	if !tidy {
		return working(in, v1alpha1.ReasonCleaningUp, "virtual machine %q is restored; putting the replaced volumes out of reach", vm.Name).do(aside...)
	}
	if actions := removeJobs(in); len(actions) > 0 {
		return working(in, v1alpha1.ReasonCleaningUp, "virtual machine %q is restored; removing what was made on the way", vm.Name).do(actions...)
	}
	return decide(in, conditions.Done, v1alpha1.ReasonRestored, "%s", whole(in)).record(func(s *v1alpha1.VMStateRestoreStatus) {
		s.CompletedAt = &metav1.Time{Time: in.Now}
		recordKept(in, s)
	})
}

// startStep starts a machine whose claims are the ones that were filled, and no other's.
func startStep(in Observed, strategy string, request bool) Decision {
	vm := in.Target.VM
	if why := lostAfter(in); why != "" {
		return stalled(in, v1alpha1.ReasonSwitchFailed, "virtual machine %q is not started: %s", vm.Name, why)
	}
	if why := foreignState(in, vm.Name); why != "" {
		return stalled(in, v1alpha1.ReasonSwitchFailed, "virtual machine %q is not started: %s: take the label off it, or delete it", vm.Name, why)
	}
	if !onNewClaims(in) && in.Instance == nil {
		return stalled(in, v1alpha1.ReasonSwitchFailed, "virtual machine %q is restored and not started: somebody changed its volumes or its firmware UUID since; start it by hand if that was meant", vm.Name)
	}
	d := working(in, v1alpha1.ReasonStarting, "starting virtual machine %q", vm.Name)
	switch {
	case runStrategy(&vm.Spec) != strategy:
		return d.do(action.SetRunStrategy{VM: vm.Name, UID: vm.UID, Strategy: strategy})
	case request && in.Instance == nil:
		if len(vm.Status.StateChangeRequests) == 0 {
			d = d.do(action.RequestStart{VM: vm.Name, UID: vm.UID})
		}
		return d
	}
	return d.record(func(s *v1alpha1.VMStateRestoreStatus) { s.Switch.StartedAt = microTimePtr(in) })
}

// lostAfter says which claim that the machine is on is not the one that was filled.
func lostAfter(in Observed) string {
	for _, v := range in.Restore.Status.Volumes {
		if c := in.Claims[v.ClaimName]; c == nil || c.UID != v.ClaimUID {
			return fmt.Sprintf("claim %q of volume %q was deleted by somebody", v.ClaimName, v.Name)
		}
	}
	return ""
}

// startWith is the run strategy to give, and whether a start must be asked for beside it.
func startWith(in Observed) (strategy string, request bool) {
	record := in.Restore.Status.Switch
	had, ran := record.PreviousRunStrategy, record.Ran
	if in.Restore.Spec.Mode == v1alpha1.RestoreNewVM {
		had, ran = runStrategy(&in.Machine.VM.Spec), in.Machine.VMI != nil
	}
	const manual = string(kubevirtv1.RunStrategyManual)
	switch in.Restore.Spec.StartPolicy {
	case v1alpha1.StartHalt:
		return string(kubevirtv1.RunStrategyHalted), false
	case v1alpha1.StartStart:
		if runsBy(had, false) || had == manual {
			return had, had == manual
		}
		return string(kubevirtv1.RunStrategyAlways), false
	}
	return had, had == manual && ran
}

// runsBy says that a machine with this strategy comes up by itself, or was asked to.
func runsBy(strategy string, request bool) bool {
	return request || slices.Contains([]string{
		string(kubevirtv1.RunStrategyAlways), string(kubevirtv1.RunStrategyRerunOnFailure), string(kubevirtv1.RunStrategyOnce),
	}, strategy)
}

// ran says that an instance came up, whether or not the guest has ended by now.
func ran(i *kubevirtv1.VirtualMachineInstance) bool {
	return i != nil && (i.Status.Phase == kubevirtv1.Running || i.Status.Phase == kubevirtv1.Succeeded)
}

func printable(vm *kubevirtv1.VirtualMachine) string {
	if vm.Status.PrintableStatus == "" {
		return "no status yet"
	}
	return string(vm.Status.PrintableStatus)
}

func whole(in Observed) string {
	text := fmt.Sprintf("virtual machine %q is whole again, as of backup %q", in.Target.VM.Name, in.Restore.Status.From.BackupName)
	if in.Machine.State() != nil && in.Restore.Spec.TPMPolicy == v1alpha1.TPMBlank {
		text += ", with a blank TPM"
	}
	if ran(in.Instance) {
		text += "; it runs"
	} else {
		text += "; it is stopped"
	}
	return text + strayed(in)
}

// removeJobs takes away the Jobs, whose pods are in the way of whoever deletes a claim, and
// what was made for them.
func removeJobs(in Observed) []action.Action {
	var out []action.Action
	for _, j := range []*JobSeen{in.Resolve, in.Import} {
		if j == nil {
			continue
		}
		if j.UID != "" {
			out = append(out, action.Delete{Kind: action.KindJob, Name: j.Name, UID: j.UID})
		}
		if j.Report != nil {
			out = append(out, action.Delete{Kind: action.KindReport, Name: j.Report.Name, UID: j.Report.UID})
		}
	}
	for _, a := range in.Accounts {
		out = append(out, action.Delete{Kind: a.Kind, Name: a.Name, UID: a.UID})
	}
	return out
}

// runStrategy that a spec asks for, the deprecated field included.
func runStrategy(spec *kubevirtv1.VirtualMachineSpec) string {
	switch {
	case spec.RunStrategy != nil:
		return string(*spec.RunStrategy)
	case spec.Running != nil && *spec.Running:
		return string(kubevirtv1.RunStrategyAlways)
	}
	return string(kubevirtv1.RunStrategyHalted)
}
