package inventory

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/job"
)

func exists(in Seen) *Refusal {
	switch {
	case in.VM == nil:
		return refuse(v1alpha1.ReasonVMNotFound, machine(in.Name), "there is no VirtualMachine %q in this namespace", in.Name)
	case in.VM.DeletionTimestamp != nil:
		return refuse(v1alpha1.ReasonVMDeleting, machine(in.VM.Name), "VM %q is being deleted", in.VM.Name)
	default:
		return nil
	}
}

// complete says that the instancetype and the preference could be applied.
func complete(in Seen) *Refusal {
	if in.ExpandFailure == "" {
		return nil
	}
	return refuse(v1alpha1.ReasonSpecIncomplete, machine(in.VM.Name),
		"the instancetype or preference of VM %q cannot be applied, so what it asks for is not known: %s", in.VM.Name, in.ExpandFailure).
		next("put back what spec.instancetype and spec.preference name, or change them")
}

// unsettled is all that moves the machine or its claims at present.
func unsettled(in Seen) refusals {
	var found refusals
	found.add(still(in), restoring(in))
	moved := in.VM.Status.VolumeUpdateState != nil && in.VM.Status.VolumeUpdateState.VolumeMigrationState != nil
	if moved || running(in) && len(in.VMI.Status.MigratedVolumes) > 0 {
		found.add(wait(v1alpha1.ReasonVMUnsettled, machine(in.VM.Name), "volumes of VM %q are being moved to other claims", in.VM.Name).
			next("wait for the end of the volume migration, or take it back"))
	}
	if in.VMI != nil && !metav1.IsControlledBy(in.VMI, in.VM) {
		found.add(wait(v1alpha1.ReasonVMUnsettled, instance(in.VMI.Name), "instance %q was not made by VM %q", in.VMI.Name, in.VM.Name).
			next("delete it, or wait until the VM has adopted it"))
	}
	if running(in) {
		found.add(settledInstance(in))
	} else {
		found.add(podsEnded(in), atRest(in))
	}
	return found
}

// still says that no migration is under way: during one there are two state claims and two pods. One whose instance is
// gone goes on until KubeVirt has found out which of the two claims holds the state.
func still(in Seen) *Refusal {
	for i := range in.Migrations {
		if m := &in.Migrations[i]; !m.IsFinal() {
			return wait(v1alpha1.ReasonMigrating, "virtualmachineinstancemigration/"+m.Name, "migration %q of VM %q is under way", m.Name, in.VM.Name).
				next("the backup goes on after it")
		}
	}
	if !running(in) {
		return nil
	}
	s := in.VMI.Status.MigrationState
	if s != nil && s.StartTimestamp != nil && s.EndTimestamp == nil {
		return wait(v1alpha1.ReasonMigrating, instance(in.VMI.Name), "a migration of VM %q is under way", in.VM.Name).next("the backup goes on after it")
	}
	return nil
}

// running says that an instance runs the guest (also while its owner paused it).
func running(in Seen) bool { return in.VMI != nil && !in.VMI.IsFinal() }

func lockedByOthers(in Seen) *Refusal {
	holder := in.VM.Status.SnapshotInProgress
	if holder == nil || *holder == in.LockHolder {
		return nil
	}
	return wait(v1alpha1.ReasonVMUnsettled, machine(in.VM.Name), "snapshot %q of VM %q is in progress", *holder, in.VM.Name).next("wait for its end")
}

func restoring(in Seen) *Refusal {
	holder := in.VM.Status.RestoreInProgress
	if holder == nil {
		return nil
	}
	return wait(v1alpha1.ReasonVMUnsettled, machine(in.VM.Name), "restore %q of VM %q is in progress", *holder, in.VM.Name).next("wait for its end")
}

func settledInstance(in Seen) *Refusal {
	name := in.VM.Name
	switch {
	case in.VMI.DeletionTimestamp != nil:
		return wait(v1alpha1.ReasonVMUnsettled, instance(in.VMI.Name), "VM %q is stopping", name).next("wait until it has stopped")
	case in.VMI.Status.Phase != kubevirtv1.Running:
		return wait(v1alpha1.ReasonVMUnsettled, instance(in.VMI.Name), "VM %q is starting: its instance is %q", name, in.VMI.Status.Phase).
			next("wait until it runs")
	case launcher(in) == nil:
		return wait(v1alpha1.ReasonVMUnsettled, instance(in.VMI.Name), "the launcher pod of VM %q is not known on node %q", name, in.VMI.Status.NodeName).
			next("wait until KubeVirt knows it again")
	default:
		return nil
	}
}

func podsEnded(in Seen) *Refusal {
	for i := range in.Launchers {
		if p := &in.Launchers[i]; p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			return wait(v1alpha1.ReasonVMUnsettled, pod(p.Name), "VM %q is stopping: pod %q has not ended", in.VM.Name, p.Name).next("wait for its end")
		}
	}
	return nil
}

// atRest says that nothing runs and nothing is about to: a run strategy that starts an instance
// by itself would do so during the cut.
func atRest(in Seen) *Refusal {
	name := in.VM.Name
	strategy, err := in.VM.RunStrategy()
	if err != nil {
		return refuse(v1alpha1.ReasonVMUnsettled, machine(name), "VM %q has both running and runStrategy set", name).next("take one of them off")
	}
	succeeded := in.VMI != nil && in.VMI.Status.Phase == kubevirtv1.Succeeded
	switch {
	case strategy == kubevirtv1.RunStrategyHalted, strategy == kubevirtv1.RunStrategyManual, strategy == kubevirtv1.RunStrategyOnce:
		return nil
	case strategy == kubevirtv1.RunStrategyRerunOnFailure && succeeded:
		return nil
	case in.VM.Status.PrintableStatus == kubevirtv1.VirtualMachineStatusCrashLoopBackOff:
		return wait(v1alpha1.ReasonVMUnsettled, machine(name), "VM %q crashes at every start, and KubeVirt starts it again at any moment (run strategy %s)", name, strategy).
			next("stop it (virtctl stop %s) to back it up at rest", name)
	default:
		return wait(v1alpha1.ReasonVMUnsettled, machine(name), "VM %q is starting or crashing: run strategy %s, and no instance runs (%s)",
			name, strategy, in.VM.Status.PrintableStatus).next("wait until it runs, or stop it (virtctl stop %s) to back it up at rest", name)
	}
}

// launcher is the one pod that runs the instance; nil if there is not exactly one.
func launcher(in Seen) *corev1.Pod {
	var found *corev1.Pod
	for i := range in.Launchers {
		p := &in.Launchers[i]
		active := p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil
		if !active || p.Spec.NodeName != in.VMI.Status.NodeName {
			continue
		}
		if found != nil {
			return nil
		}
		found = p
	}
	return found
}

// identify records who the VM is at this moment.
func identify(in Seen) v1alpha1.CapturedVM {
	out := v1alpha1.CapturedVM{UID: in.VM.UID, FirmwareUUID: firmwareUUID(in)}
	if !running(in) {
		return out
	}
	out.InstanceUID = in.VMI.UID
	out.NodeName = in.VMI.Status.NodeName
	if p := launcher(in); p != nil {
		out.LauncherUID = p.UID
	}
	if s := in.VMI.Status.MigrationState; s != nil {
		out.MigrationUID = types.UID(s.MigrationUID)
	}
	return out
}

// placement of a pod beside the launcher. A pod with other security labels would make the
// container runtime relabel live files, so unknown labels are waited for, never guessed.
func placement(in Seen) (*job.Placement, *Refusal) {
	pod := launcher(in)
	out := &job.Placement{NodeName: in.VMI.Status.NodeName}
	for _, t := range pod.Spec.Tolerations {
		if t.Effect != corev1.TaintEffectNoExecute {
			out.Tolerations = append(out.Tolerations, t)
		}
	}
	if c := pod.Spec.SecurityContext; c != nil && c.SELinuxOptions != nil {
		out.SELinux, out.SELinuxChangePolicy = c.SELinuxOptions.DeepCopy(), c.SELinuxChangePolicy
	}
	context := in.VMI.Status.SelinuxContext
	if context == "none" || out.SELinux != nil && out.SELinux.Level != "" {
		return out, nil
	}
	// Without a level the container runtime would make one up, and relabel the live volume to it.
	parts := strings.SplitN(context, ":", 4)
	if len(parts) < 4 {
		return nil, wait(v1alpha1.ReasonVMUnsettled, instance(in.VMI.Name), "the security labels of VM %q's launcher are not known yet", in.VM.Name).
			next("wait until KubeVirt knows them")
	}
	if out.SELinux == nil {
		policy := corev1.SELinuxChangePolicyMountOption
		out.SELinux, out.SELinuxChangePolicy = &corev1.SELinuxOptions{}, &policy
	}
	out.SELinux.Level = parts[3]
	return out, nil
}
