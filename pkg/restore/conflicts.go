package restore

import (
	"slices"
	"strings"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/inventory"
)

// checkAddresses finds machines that use an address which the restored one keeps.
func checkAddresses(in Observed) []v1alpha1.Finding {
	if in.Restore.Spec.MACAddresses == v1alpha1.IdentityNew {
		return nil
	}
	keeps := map[string]bool{}
	for _, mac := range in.Machine.Identity.MACs {
		keeps[strings.ToLower(mac)] = true
	}
	used := map[string][]string{}
	for who, macs := range othersAddresses(in) {
		for mac := range macs {
			if keeps[mac] {
				used[mac] = append(used[mac], who)
			}
		}
	}
	if len(used) == 0 {
		return nil
	}
	var lines []string
	for mac, who := range used {
		slices.Sort(who)
		lines = append(lines, mac+" by "+strings.Join(who, ", "))
	}
	slices.Sort(lines)
	return []v1alpha1.Finding{failed("MACAddresses", "in use already: %s; use macAddresses New, or remove what uses them", strings.Join(lines, "; "))}
}

// othersAddresses are the addresses of every machine and instance but the one that is replaced.
func othersAddresses(in Observed) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	add := func(namespace, name, mac string) {
		if mac == "" || isTarget(in, namespace, name) {
			return
		}
		who := namespace + "/" + name
		if out[who] == nil {
			out[who] = map[string]bool{}
		}
		out[who][strings.ToLower(mac)] = true
	}
	for _, vm := range in.Cluster.Machines {
		if vm.Spec.Template == nil {
			continue
		}
		for _, i := range vm.Spec.Template.Spec.Domain.Devices.Interfaces {
			add(vm.Namespace, vm.Name, i.MacAddress)
		}
	}
	for _, vmi := range in.Cluster.Instances {
		for _, i := range vmi.Status.Interfaces {
			add(vmi.Namespace, vmi.Name, i.MAC)
		}
	}
	return out
}

// checkUUID finds machines with the firmware UUID that the restored one keeps.
func checkUUID(in Observed) []v1alpha1.Finding {
	if in.Restore.Spec.FirmwareUUID == v1alpha1.IdentityNew {
		if who := sameTPM(in); len(who) > 0 {
			return []v1alpha1.Finding{failed("FirmwareUUID", "%s has the firmware UUID of the backup, and so its TPM: a second machine with it is refused; remove it, or use tpmPolicy Blank", strings.Join(who, ", "))}
		}
		if in.Machine.Identity.PersistentTPM && in.Restore.Spec.TPMPolicy != v1alpha1.TPMBlank {
			return []v1alpha1.Finding{warning("FirmwareUUID", "firmwareUUID New: the TPM moves with it; software that is bound to the UUID (licences) may notice")}
		}
		return nil
	}
	who := withUUID(in)
	if len(who) == 0 {
		return nil
	}
	return []v1alpha1.Finding{failed("FirmwareUUID", "the firmware UUID %s is in use by %s: use firmwareUUID New, or remove what uses it", in.Machine.Identity.FirmwareUUID, strings.Join(who, ", "))}
}

// sameTPM are machines that were made from the same backup with its TPM: the source under
// another UID, or an earlier restore.
func sameTPM(in Observed) []string {
	if !in.Machine.Identity.PersistentTPM || in.Restore.Spec.TPMPolicy == v1alpha1.TPMBlank {
		return nil
	}
	return slices.DeleteFunc(withUUID(in), func(who string) bool { return who == in.Restore.Status.From.VM })
}

// withUUID are other machines, and instances of whoever, that carry the firmware UUID of the backup, sorted.
func withUUID(in Observed) []string {
	var who []string
	for _, vm := range in.Cluster.Machines {
		if vm.Spec.Template == nil || isTarget(in, vm.Namespace, vm.Name) {
			continue
		}
		f := vm.Spec.Template.Spec.Domain.Firmware
		if f != nil && strings.EqualFold(string(f.UUID), in.Machine.Identity.FirmwareUUID) {
			who = append(who, vm.Namespace+"/"+vm.Name)
		}
	}
	for _, vmi := range livingInstances(in) {
		if strings.EqualFold(inventory.InstanceUUID(vmi), in.Machine.Identity.FirmwareUUID) {
			who = append(who, vmi.Namespace+"/"+vmi.Name)
		}
	}
	slices.Sort(who)
	return slices.Compact(who)
}

func isTarget(in Observed, namespace, name string) bool {
	return namespace == in.Restore.Namespace && name == targetName(in.Restore, in.Restore.Status.From)
}
