package restore

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
)

// switchOver puts the filled claims in the place of the old ones, up to the point of no
// return. One step a pass: what it did is seen before the next is planned.
func switchOver(in Observed) Decision {
	if in.Machine == nil {
		return working(in, v1alpha1.ReasonSwitching, "reading what was recorded")
	}
	if !slices.Contains(in.Restore.Finalizers, v1alpha1.FinalizerSwitch) {
		return working(in, v1alpha1.ReasonSwitching, "about to put the new volumes in place").
			do(action.AddFinalizer{Finalizer: v1alpha1.FinalizerSwitch})
	}
	if why := lost(in); why != "" {
		return giveUp(in, v1alpha1.ReasonSwitchFailed, "%s; nothing was replaced", why)
	}
	if in.Claims[holdClaim(in.Restore)] != nil {
		return giveUp(in, v1alpha1.ReasonSwitchFailed, "claim %q exists, which must not: delete it and create the restore again; nothing was replaced", holdClaim(in.Restore))
	}
	if in.Restore.Status.Switch == nil {
		return begin(in)
	}
	if in.Restore.Spec.Mode == v1alpha1.RestoreNewVM {
		if d, wait := makeNew(in); wait {
			return d
		}
	} else if d, wait := stopAndHold(in); wait {
		return d
	}
	if d, wait := moveClaims(in); wait {
		return d
	}
	final, err := finalSpec(*in.Machine, wanted(in))
	if err != nil {
		return giveUp(in, v1alpha1.ReasonSwitchFailed, "the spec of the backup cannot be put on its new volumes: %v", err)
	}
	// What admission would deny must be known now: after the commit there is no way back.
	try := action.WriteVM{VM: in.Target.VM.Name, UID: in.Target.VM.UID, ResourceVersion: in.Target.VM.ResourceVersion, Spec: final, DryRun: true}
	return working(in, v1alpha1.ReasonSwitching, "the new volumes are in place").do(try).record(func(s *v1alpha1.VMStateRestoreStatus) {
		s.Switch.CommittedAt = microTimePtr(in)
	})
}

// begin records everything that cannot be seen again once the switch is under way.
func begin(in Observed) Decision {
	if in.Cluster == nil {
		return working(in, v1alpha1.ReasonSwitching, "looking for what could stand in the way")
	}
	if why := unfit(in); why != "" {
		return giveUp(in, v1alpha1.ReasonPreflightFailed, "meanwhile, %s; nothing was replaced", why)
	}
	record := &v1alpha1.RestoreSwitch{BegunAt: microTime(in)}
	var replaced []v1alpha1.ReplacedClaim
	if in.Restore.Spec.Mode == v1alpha1.RestoreInPlace {
		raw, err := json.Marshal(in.Target.Spec)
		if err != nil {
			return giveUp(in, v1alpha1.ReasonSwitchFailed, "record the virtual machine's spec: %v", err)
		}
		record.Previous = &runtime.RawExtension{Raw: raw}
		record.PreviousRunStrategy = runStrategy(&in.Target.VM.Spec)
		record.VMUID = in.Target.VM.UID
		record.Ran = in.Instance != nil && !in.Instance.IsFinal()
		if replaced, err = replacedClaims(in); err != nil {
			return giveUp(in, v1alpha1.ReasonSwitchFailed, "record the claims that are replaced: %v", err)
		}
	}
	return working(in, v1alpha1.ReasonSwitching, "about to put the new volumes in place").record(func(s *v1alpha1.VMStateRestoreStatus) {
		s.Switch, s.Replaced = record, replaced
	})
}

// unfit repeats the checks of the preflight whose answers can have changed since.
func unfit(in Observed) string {
	var findings []v1alpha1.Finding
	for _, check := range []func(Observed) []v1alpha1.Finding{checkTarget, checkStateClaims, checkSource, checkUsers, checkUUID, checkAddresses} {
		findings = append(findings, check(in)...)
	}
	if blocking := blockers(findings); len(blocking) > 0 {
		return sentences(blocking)
	}
	return ""
}

// stopAndHold stops the virtual machine, denies its start, and points it at a claim that
// does not exist. True while that is under way.
func stopAndHold(in Observed) (Decision, bool) {
	if why := spoilt(in); why != "" {
		return giveUp(in, v1alpha1.ReasonSwitchFailed, "%s; the virtual machine is put back as it was", why), true
	}
	vm, record := in.Target.VM, in.Restore.Status.Switch
	hold := holdClaim(in.Restore)
	switch {
	case isHeld(in.Target.Spec, hold) && record.HeldAt != nil:
		return waitForInstance(in)
	case isHeld(in.Target.Spec, hold):
		return working(in, v1alpha1.ReasonSwitching, "virtual machine %q cannot start", vm.Name).record(func(s *v1alpha1.VMStateRestoreStatus) {
			s.Switch.HeldAt = microTimePtr(in)
		}), true
	case runStrategy(&vm.Spec) != string(kubevirtv1.RunStrategyHalted):
		return working(in, v1alpha1.ReasonStopping, "stopping virtual machine %q", vm.Name).
			do(action.SetRunStrategy{VM: vm.Name, UID: vm.UID, Strategy: string(kubevirtv1.RunStrategyHalted)}), true
	case in.Instance != nil:
		return working(in, v1alpha1.ReasonStopping, "waiting until virtual machine %q has stopped", vm.Name), true
	case vm.Status.RestoreInProgress == nil:
		return working(in, v1alpha1.ReasonSwitching, "denying starts of virtual machine %q", vm.Name).
			do(action.HoldVM{VM: vm.Name, UID: vm.UID, Holder: holderName(in.Restore)}), true
	}
	held, err := heldSpec(in.Target.Spec, hold)
	if err != nil {
		return giveUp(in, v1alpha1.ReasonSwitchFailed, "virtual machine %q cannot be held: %v", vm.Name, err), true
	}
	return working(in, v1alpha1.ReasonSwitching, "holding virtual machine %q", vm.Name).do(action.WriteVM{
		VM: vm.Name, UID: vm.UID, ResourceVersion: vm.ResourceVersion, Spec: held,
	}), true
}

// waitForInstance: an instance that somebody's start made waits with the spec that it was
// made with, and would start with old disks and new state once its claims resolve.
func waitForInstance(in Observed) (Decision, bool) {
	if in.Instance == nil {
		return Decision{}, false
	}
	if !madeBy(in.Instance, in.Target.VM) {
		return stalled(in, v1alpha1.ReasonSwitching, "instance %q was not made by virtual machine %q: delete it", in.Instance.Name, in.Target.VM.Name), true
	}
	d := working(in, v1alpha1.ReasonStopping, "waiting until instance %q is gone", in.Instance.Name)
	if in.Instance.DeletionTimestamp == nil {
		d = d.do(action.DeleteInstance{Instance: in.Instance.Name, UID: in.Instance.UID})
	}
	return d, true
}

// spoilt says what makes it impossible to go on with a virtual machine that exists.
func spoilt(in Observed) string {
	record := in.Restore.Status.Switch
	name := targetName(in.Restore, in.Restore.Status.From)
	switch {
	case in.Target == nil:
		return fmt.Sprintf("virtual machine %q was deleted meanwhile", name)
	case in.Target.VM.UID != record.VMUID:
		return fmt.Sprintf("virtual machine %q was deleted and made again meanwhile", name)
	case in.Target.VM.DeletionTimestamp != nil:
		return fmt.Sprintf("virtual machine %q is being deleted", name)
	case in.Instance != nil && !madeBy(in.Instance, in.Target.VM):
		return fmt.Sprintf("instance %q appeared that virtual machine %q did not make: delete it", in.Instance.Name, name)
	}
	if holder := in.Target.VM.Status.RestoreInProgress; holder != nil && *holder != holderName(in.Restore) {
		return fmt.Sprintf("restore %q of virtual machine %q began meanwhile", *holder, name)
	}
	if in.Restore.Spec.Mode == v1alpha1.RestoreInPlace {
		if startedMeanwhile(in) {
			return fmt.Sprintf("virtual machine %q was started meanwhile, and stopPolicy is Refuse", name)
		}
		if why := changed(in); why != "" {
			return why
		}
	}
	return foreignState(in, name)
}

// startedMeanwhile: it did not run when the switch began, and stopping it is not asked for.
func startedMeanwhile(in Observed) bool {
	return in.Restore.Spec.StopPolicy != v1alpha1.StopStop && in.Restore.Status.Switch.HeldAt == nil &&
		in.Instance != nil && !in.Instance.IsFinal() && in.Instance.DeletionTimestamp == nil
}

// changed says that somebody moved the virtual machine's volumes during the switch. What
// else is changed meanwhile (KubeVirt fills in defaults) is replaced, or kept by an undo.
func changed(in Observed) string {
	expected, err := previousSpec(in)
	if err == nil && isHeld(in.Target.Spec, holdClaim(in.Restore)) {
		expected, err = heldSpec(expected, holdClaim(in.Restore))
	}
	if err != nil {
		return err.Error()
	}
	was, errWas := volumesOf(expected)
	is, errIs := volumesOf(in.Target.Spec)
	if err := errors.Join(errWas, errIs); err != nil {
		return err.Error()
	}
	if reflect.DeepEqual(was, is) {
		return ""
	}
	return fmt.Sprintf("the volumes of virtual machine %q were changed by somebody during the restore", in.Target.VM.Name)
}

func previousSpec(in Observed) (map[string]any, error) {
	record := in.Restore.Status.Switch
	spec := map[string]any{}
	if record == nil || record.Previous == nil {
		return nil, fmt.Errorf("the virtual machine's spec was not recorded")
	}
	if err := utiljson.Unmarshal(record.Previous.Raw, &spec); err != nil {
		return nil, fmt.Errorf("decode the recorded spec: %w", err)
	}
	return spec, nil
}

// foreignState finds a claim that KubeVirt could take for the firmware state, beside the
// replaced one and ours.
func foreignState(in Observed, vm string) string {
	known := []string{stateClaim(vm, in.Restore.UID)}
	for _, r := range in.Restore.Status.Replaced {
		if c := in.Claims[r.ClaimName]; c != nil && c.UID == r.ClaimUID {
			known = append(known, r.ClaimName)
		}
	}
	others := slices.DeleteFunc(stateClaims(in, vm), func(c string) bool { return slices.Contains(known, c) })
	if len(others) == 0 {
		return ""
	}
	return fmt.Sprintf("claim %s appeared with the label %s=%s: KubeVirt would pick it or the restored one at random", strings.Join(others, ", "), v1alpha1.LabelPersistentState, vm)
}

// makeNew makes the virtual machine, held, and denies its start. True while that is under way.
func makeNew(in Observed) (Decision, bool) {
	name, record := targetName(in.Restore, in.Restore.Status.From), in.Restore.Status.Switch
	switch {
	case in.Target == nil && record.VMUID == "":
		return createHeld(in, name), true
	case record.VMUID == "" && !(ours(in, in.Target.VM.Labels) && isHeld(in.Target.Spec, holdClaim(in.Restore))):
		return giveUp(in, v1alpha1.ReasonSwitchFailed, "virtual machine %q appeared, which this restore did not make", name), true
	case record.VMUID == "":
		return working(in, v1alpha1.ReasonSwitching, "made virtual machine %q", name).record(func(s *v1alpha1.VMStateRestoreStatus) {
			s.Switch.VMUID = in.Target.VM.UID
		}), true
	}
	if why := spoilt(in); why != "" {
		return giveUp(in, v1alpha1.ReasonSwitchFailed, "%s", why), true
	}
	vm := in.Target.VM
	switch {
	case !isHeld(in.Target.Spec, holdClaim(in.Restore)):
		return giveUp(in, v1alpha1.ReasonSwitchFailed, "the spec of virtual machine %q was changed by somebody during the restore", name), true
	case vm.Status.RestoreInProgress == nil:
		return working(in, v1alpha1.ReasonSwitching, "denying starts of virtual machine %q", name).
			do(action.HoldVM{VM: vm.Name, UID: vm.UID, Holder: holderName(in.Restore)}), true
	case record.HeldAt == nil:
		return working(in, v1alpha1.ReasonSwitching, "virtual machine %q cannot start", name).record(func(s *v1alpha1.VMStateRestoreStatus) {
			s.Switch.HeldAt = microTimePtr(in)
		}), true
	}
	return waitForInstance(in)
}

func createHeld(in Observed, name string) Decision {
	object, err := heldMachine(in)
	if err != nil {
		return giveUp(in, v1alpha1.ReasonSwitchFailed, "virtual machine %q cannot be made: %v", name, err)
	}
	return working(in, v1alpha1.ReasonSwitching, "making virtual machine %q", name).do(action.CreateVM{Object: object})
}

// heldMachine is the new virtual machine, unable to start.
func heldMachine(in Observed) (map[string]any, error) {
	spec, err := finalSpec(*in.Machine, wanted(in))
	if err == nil {
		spec, err = heldSpec(spec, holdClaim(in.Restore))
	}
	if err != nil {
		return nil, err
	}
	return newMachine(*in.Machine, targetName(in.Restore, in.Restore.Status.From), in.Restore.Namespace, in.Restore.UID, spec), nil
}

// moveClaims takes the label off the replaced state, and gives the new claims to the
// virtual machine. True while that is under way.
func moveClaims(in Observed) (Decision, bool) {
	vm := in.Target.VM
	for _, r := range in.Restore.Status.Replaced {
		c := in.Claims[r.ClaimName]
		if c != nil && c.UID == r.ClaimUID && c.Labels[v1alpha1.LabelPersistentState] != "" {
			return working(in, v1alpha1.ReasonSwitching, "setting the old firmware state aside").
				do(action.UnlabelState{Claim: r.ClaimName, UID: r.ClaimUID, ResourceVersion: c.ResourceVersion}), true
		}
	}
	var hand []action.Action
	for _, v := range in.Restore.Status.Volumes {
		c := in.Claims[v.ClaimName]
		state := v.Role == v1alpha1.RoleFirmwareState
		if madeBy(c, in.Restore) || state && c.Labels[v1alpha1.LabelPersistentState] != vm.Name {
			hand = append(hand, handOver(in, v))
		}
	}
	for _, r := range plannedRevisions(in) {
		if made := in.Revisions[r.Name]; made != nil && !madeBy(made, vm) {
			hand = append(hand, action.HandOver{Kind: action.KindRevision, Name: made.Name, UID: made.UID, ResourceVersion: made.ResourceVersion, Owner: ownedBy(vm)})
		}
	}
	if len(hand) > 0 {
		return working(in, v1alpha1.ReasonSwitching, "giving the new volumes to virtual machine %q", vm.Name).do(hand...), true
	}
	want := []string{}
	for _, v := range in.Restore.Status.Volumes {
		if v.Role == v1alpha1.RoleFirmwareState {
			want = append(want, v.ClaimName)
		}
	}
	if have := stateClaims(in, vm.Name); !slices.Equal(have, want) && len(have)+len(want) > 0 {
		return giveUp(in, v1alpha1.ReasonSwitchFailed, "%d claims are labelled as the firmware state of virtual machine %q instead of %d", len(have), vm.Name, len(want)), true
	}
	return Decision{}, false
}

// handOver gives a new claim the owner that KubeVirt would have given it: the virtual
// machine owns its firmware state and the disks that it was to make by itself; a disk
// that somebody made beside it stays nobody's, and outlives it.
func handOver(in Observed, v v1alpha1.RestoredVolume) action.HandOver {
	h := action.HandOver{Kind: action.KindClaim, Name: v.ClaimName, UID: v.ClaimUID, ResourceVersion: in.Claims[v.ClaimName].ResourceVersion}
	if v.Role == v1alpha1.RoleFirmwareState {
		h.StateOf = in.Target.VM.Name
		h.Owner = ownedBy(in.Target.VM)
	} else if templated(*in.Machine, v.Name) {
		h.Owner = ownedBy(in.Target.VM)
	}
	return h
}

// templated says that the volume came from one of the machine's dataVolumeTemplates.
func templated(m Machine, volume string) bool {
	for _, v := range m.VM.Spec.Template.Spec.Volumes {
		if v.Name != volume || v.DataVolume == nil {
			continue
		}
		return slices.ContainsFunc(m.VM.Spec.DataVolumeTemplates, func(t kubevirtv1.DataVolumeTemplateSpec) bool {
			return t.Name == v.DataVolume.Name
		})
	}
	return false
}

func ownedBy(vm *kubevirtv1.VirtualMachine) *metav1.OwnerReference {
	return metav1.NewControllerRef(vm, kubevirtv1.VirtualMachineGroupVersionKind)
}
