package restore

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// Preflight lists what stands in the way of a restore, all of it at once, and what is
// well. It needs Machine and Cluster.
func Preflight(in Observed) []v1alpha1.Finding {
	checks := []func(Observed) []v1alpha1.Finding{
		checkNamespace, checkWhole, checkTarget, checkStateClaims, checkSource, checkUsers, checkAddresses, checkUUID,
		checkManaged, checkClaimNames, checkStorage, checkQuotas, checkRevisions, checkNeeds, checkKubeVirt, checkCPU, checkPinned,
	}
	var out []v1alpha1.Finding
	for _, check := range checks {
		for _, f := range check(in) {
			if !slices.ContainsFunc(out, func(o v1alpha1.Finding) bool { return o.Check == f.Check }) {
				out = append(out, f)
			}
		}
	}
	return out
}

// blockers are the findings that stand in the way.
func blockers(findings []v1alpha1.Finding) []v1alpha1.Finding {
	var out []v1alpha1.Finding
	for _, f := range findings {
		if f.Outcome == v1alpha1.FindingFailed {
			out = append(out, f)
		}
	}
	return out
}

func finding(outcome v1alpha1.FindingOutcome, check, format string, args ...any) v1alpha1.Finding {
	return v1alpha1.Finding{Check: check, Outcome: outcome, Message: fmt.Sprintf(format, args...)}
}

func failed(check, format string, args ...any) v1alpha1.Finding {
	return finding(v1alpha1.FindingFailed, check, format, args...)
}

func warning(check, format string, args ...any) v1alpha1.Finding {
	return finding(v1alpha1.FindingWarning, check, format, args...)
}

// or is the findings, or that check is well if there are none.
func or(findings []v1alpha1.Finding, check, format string, args ...any) []v1alpha1.Finding {
	if len(findings) > 0 {
		return findings
	}
	return []v1alpha1.Finding{finding(v1alpha1.FindingOK, check, format, args...)}
}

func checkNamespace(in Observed) []v1alpha1.Finding {
	ns := in.Cluster.Namespace
	if ns == nil || ns.DeletionTimestamp != nil || ns.Status.Phase == corev1.NamespaceTerminating {
		return []v1alpha1.Finding{failed("Namespace", "namespace %q is being deleted: restore into another one", in.Restore.Namespace)}
	}
	return nil
}

// checkWhole refuses what could only become half a machine.
func checkWhole(in Observed) []v1alpha1.Finding {
	m := *in.Machine
	var out []v1alpha1.Finding
	if (m.Identity.PersistentTPM || m.Identity.PersistentEFI) && m.State() == nil {
		out = append(out, failed("FirmwareState", "the virtual machine keeps its TPM or EFI variables, and the backup does not hold them: "+
			"its disks alone would meet blank firmware; choose another backup"))
	}
	if m.Identity.PersistentTPM && in.Restore.Spec.TPMPolicy == v1alpha1.TPMBlank {
		out = append(out, warning("TPM", "tpmPolicy Blank: what the guest sealed to its TPM (BitLocker, LUKS keys) will not open; have the recovery key at hand"))
	}
	spec, err := specOf(m.Raw)
	if err != nil {
		return append(out, failed("Disks", "the backup's virtual machine cannot be read: %v", err))
	}
	volumes, err := volumesOf(spec)
	if err != nil || holdable(volumes) < 0 {
		out = append(out, failed("Disks", "the virtual machine has no disk on a claim of its own: nothing would keep it from being started in the middle of the restore"))
	}
	held := diskNames(m)
	for _, v := range volumes {
		name, _ := v["name"].(string)
		_, dump := v["memoryDump"]
		if claimOf(v) != "" && !dump && !slices.Contains(held, name) {
			out = append(out, failed("Disk/"+name, "volume %q (claim %q) is not in the backup: the virtual machine would not be whole", name, claimOf(v)))
		}
	}
	return or(out, "Disks", "the backup holds all %d volumes of the virtual machine", len(m.Held))
}

func diskNames(m Machine) []string {
	var out []string
	for _, v := range m.Held {
		if v.Role == v1alpha1.RoleDisk {
			out = append(out, v.Name)
		}
	}
	return out
}

func checkTarget(in Observed) []v1alpha1.Finding {
	if in.Restore.Spec.Mode == v1alpha1.RestoreInPlace {
		return checkInPlace(in)
	}
	name := targetName(in.Restore, in.Restore.Status.From)
	var out []v1alpha1.Finding
	if in.Target != nil && !ours(in, in.Target.VM.Labels) {
		out = append(out, failed("Target", "virtual machine %q exists: choose another target.vmName, or mode InPlace", name))
	}
	if in.Instance != nil && in.Target == nil {
		out = append(out, failed("Instance", "an instance %q exists without its virtual machine: delete it, or choose another target.vmName", name))
	}
	return or(out, "Target", "no virtual machine %q is in the way", name)
}

func checkInPlace(in Observed) []v1alpha1.Finding {
	from := in.Restore.Status.From
	name := targetName(in.Restore, from)
	if in.Target == nil {
		return []v1alpha1.Finding{failed("Target", "virtual machine %q does not exist here: use mode NewVM", name)}
	}
	vm := in.Target.VM
	switch {
	case namespaceOf(from.VM) != in.Restore.Namespace:
		return []v1alpha1.Finding{failed("Target", "the backup is of %s, this restore is in namespace %q: in place means the same namespace; use mode NewVM", from.VM, in.Restore.Namespace)}
	case vm.UID != from.VMUID:
		return []v1alpha1.Finding{failed("Target", "virtual machine %q is not the one that was backed up (it was made again since): delete or rename it and use mode NewVM", name)}
	case vm.DeletionTimestamp != nil:
		return []v1alpha1.Finding{failed("Target", "virtual machine %q is being deleted: wait until it is gone and use mode NewVM", name)}
	}
	var out []v1alpha1.Finding
	if holder := vm.Status.RestoreInProgress; holder != nil && *holder != holderName(in.Restore) {
		out = append(out, failed("RestoreInProgress", "restore %q of virtual machine %q is under way: wait until it ends", *holder, name))
	}
	if holder := vm.Status.SnapshotInProgress; holder != nil {
		out = append(out, failed("SnapshotInProgress", "snapshot %q of virtual machine %q is under way: wait until it ends", *holder, name))
	}
	out = append(out, checkRunning(in, name)...)
	volumes, err := volumesOf(in.Target.Spec)
	if err != nil || holdable(volumes) < 0 {
		out = append(out, failed("Target", "virtual machine %q has no disk on a claim of its own: nothing would keep it from being started in the middle of the restore", name))
	}
	held := diskNames(*in.Machine)
	for _, v := range volumes {
		volume, _ := v["name"].(string)
		if claim := claimOf(v); claim != "" && !slices.Contains(held, volume) {
			out = append(out, warning("Added/"+volume, "volume %q is not in the backup: its claim %q stays, and is no longer attached", volume, claim))
		}
	}
	return or(out, "Target", "virtual machine %q is the one that was backed up", name)
}

func checkRunning(in Observed, name string) []v1alpha1.Finding {
	i := in.Instance
	switch {
	case i == nil || madeBy(i, in.Target.VM) && i.IsFinal():
		return nil
	case !madeBy(i, in.Target.VM):
		return []v1alpha1.Finding{failed("Instance", "instance %q was not made by virtual machine %q: delete it first", i.Name, name)}
	case i.IsMigratable() && i.Status.MigrationState != nil && i.Status.MigrationState.EndTimestamp == nil:
		return []v1alpha1.Finding{failed("Instance", "virtual machine %q is being migrated: wait until that ends", name)}
	case in.Restore.Spec.StopPolicy != v1alpha1.StopStop:
		return []v1alpha1.Finding{failed("Running", "virtual machine %q runs: stop it, or create the restore with stopPolicy Stop", name)}
	}
	return []v1alpha1.Finding{warning("Running", "virtual machine %q runs, and is stopped once everything else is ready", name)}
}

// checkStateClaims looks at what KubeVirt would take for the firmware state.
func checkStateClaims(in Observed) []v1alpha1.Finding {
	name := targetName(in.Restore, in.Restore.Status.From)
	labelled := stateClaims(in, name)
	made := claimNames(in)
	labelled = slices.DeleteFunc(labelled, func(c string) bool { return slices.Contains(made, c) })
	if in.Restore.Spec.Mode == v1alpha1.RestoreInPlace {
		if len(labelled) > 1 {
			return []v1alpha1.Finding{failed("StateClaim", "%d claims carry the label %s=%s (%s), so nobody can tell which is the firmware state: take the label off all but one",
				len(labelled), v1alpha1.LabelPersistentState, name, strings.Join(labelled, ", "))}
		}
		return nil
	}
	if legacy := legacyStateClaim(name); in.Claims[legacy] != nil && !slices.Contains(labelled, legacy) {
		labelled = append(labelled, legacy)
	}
	if len(labelled) > 0 {
		return []v1alpha1.Finding{failed("StateClaim", "claim %s is the firmware state of a virtual machine %q that is gone: KubeVirt would pick it or ours at random; delete it, or choose another target.vmName",
			strings.Join(labelled, ", "), name)}
	}
	return nil
}

// checkSource refuses a second machine with the same TPM beside the first.
func checkSource(in Observed) []v1alpha1.Finding {
	if in.Restore.Spec.Mode != v1alpha1.RestoreNewVM || !in.Machine.Identity.PersistentTPM {
		return nil
	}
	source := livingSource(in)
	switch {
	case source == "" || in.Restore.Spec.TPMPolicy == v1alpha1.TPMBlank:
		return nil
	case in.Restore.Spec.TPMPolicy == v1alpha1.TPMKeep:
		return []v1alpha1.Finding{failed("SourceVM", "tpmPolicy Keep would give a second machine the TPM of %s, which exists and could run: delete it first, or use tpmPolicy Blank", source)}
	}
	return []v1alpha1.Finding{failed("SourceVM", "%s has the TPM of the backup: choose tpmPolicy. Keep needs it deleted; with Blank, what was sealed to its TPM will not open in the new one", source)}
}

func checkManaged(in Observed) []v1alpha1.Finding {
	if in.Restore.Spec.Mode != v1alpha1.RestoreInPlace || in.Target == nil {
		return nil
	}
	vm := in.Target.VM
	tools := map[string]string{
		"argocd.argoproj.io/": "Argo CD", "kustomize.toolkit.fluxcd.io/": "Flux", "helm.toolkit.fluxcd.io/": "Flux",
	}
	for prefix, tool := range tools {
		for _, keys := range []map[string]string{vm.Labels, vm.Annotations} {
			for key := range keys {
				if strings.HasPrefix(key, prefix) {
					return []v1alpha1.Finding{warning("GitOps", "virtual machine %q is managed by %s (%s): suspend it, and put the restored spec into its repository before you resume it; "+
						"the old claim names will not exist any more", vm.Name, tool, key)}
				}
			}
		}
	}
	return nil
}

// checkPinned: without a pinned key the signature only proves that the record belongs to the
// repository that the bucket shows.
func checkPinned(in Observed) []v1alpha1.Finding {
	if in.Restore.Status.From.Commit == nil || in.Store == nil || in.Store.Status.SigningKey != "" {
		return nil
	}
	return []v1alpha1.Finding{warning("SigningKey", "store %q is not pinned to a signing key: compare the one that it shows with a copy kept elsewhere", in.Store.Name)}
}
