package restore

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// pinIdentity writes what a sealed guest measures into the spec, so that no default
// of this cluster, today's or tomorrow's, changes it.
func pinIdentity(spec map[string]any, m Machine, w Wanted) error {
	root := []string{"template", "spec", "domain"}
	at := func(fields ...string) []string { return append(append([]string{}, root...), fields...) }
	set := func(value any, fields ...string) error {
		return unstructured.SetNestedField(spec, value, at(fields...)...)
	}
	if err := set(w.firmwareUUID(m), "firmware", "uuid"); err != nil {
		return fmt.Errorf("pin firmware UUID: %w", err)
	}
	if w.NewUUID {
		unstructured.RemoveNestedField(spec, at("firmware", "serial")...)
	} else if serial := m.Identity.FirmwareSerial; serial != "" {
		if err := set(serial, "firmware", "serial"); err != nil {
			return fmt.Errorf("pin serial: %w", err)
		}
	}
	// An alias such as q35 is another machine with every release; this is what it meant.
	if machine := m.Identity.MachineType; machine != "" {
		if err := set(machine, "machine", "type"); err != nil {
			return fmt.Errorf("pin machine type: %w", err)
		}
	}
	if err := pinFirmwareDevices(spec, m, at); err != nil {
		return err
	}
	if err := pinPCI(spec, m); err != nil {
		return err
	}
	return pinMACs(spec, m, w)
}

// pinFirmwareDevices writes out the TPM and the boot loader where only a preference
// asked for them: KubeVirt deletes the state of a machine that no longer does.
func pinFirmwareDevices(spec map[string]any, m Machine, at func(...string) []string) error {
	domain := m.effective().Domain
	if m.Identity.PersistentTPM && domain.Devices.TPM != nil {
		tpm, err := runtime.DefaultUnstructuredConverter.ToUnstructured(domain.Devices.TPM)
		if err != nil {
			return fmt.Errorf("pin TPM: %w", err)
		}
		if err := unstructured.SetNestedMap(spec, tpm, at("devices", "tpm")...); err != nil {
			return fmt.Errorf("pin TPM: %w", err)
		}
	}
	if !m.Identity.PersistentEFI || domain.Firmware == nil || domain.Firmware.Bootloader == nil {
		return nil
	}
	loader, err := runtime.DefaultUnstructuredConverter.ToUnstructured(domain.Firmware.Bootloader)
	if err != nil {
		return fmt.Errorf("pin boot loader: %w", err)
	}
	if err := unstructured.SetNestedMap(spec, loader, at("firmware", "bootloader")...); err != nil {
		return fmt.Errorf("pin boot loader: %w", err)
	}
	if f := domain.Features; f != nil && f.SMM != nil {
		smm, err := runtime.DefaultUnstructuredConverter.ToUnstructured(f.SMM)
		if err != nil {
			return fmt.Errorf("pin SMM: %w", err)
		}
		return unstructured.SetNestedMap(spec, smm, at("features", "smm")...)
	}
	return nil
}

// pinPCI keeps the annotations that decide the PCI addresses which the guest sees
// (kubevirt.io/kubevirt, docs/pci-topology.md). Where they are absent, KubeVirt
// chooses for a new machine, and a Windows guest takes its disks offline.
func pinPCI(spec map[string]any, m Machine) error {
	for key, value := range m.Identity.PCIAnnotations {
		if err := unstructured.SetNestedField(spec, value, "template", "metadata", "annotations", key); err != nil {
			return fmt.Errorf("pin %s: %w", key, err)
		}
	}
	return nil
}

// pinMACs writes an address to every interface: KubeVirt makes a new one at each
// start where there is none.
func pinMACs(spec map[string]any, m Machine, w Wanted) error {
	path := []string{"template", "spec", "domain", "devices", "interfaces"}
	list, found, err := unstructured.NestedSlice(spec, path...)
	if err != nil || !found {
		return err
	}
	for _, item := range list {
		iface, ok := item.(map[string]any)
		if !ok {
			return fmt.Errorf("interface that is no object: %w", ErrDocuments)
		}
		name, _ := iface["name"].(string)
		if w.NewMACs {
			iface["macAddress"] = w.mac(name)
		} else if m.Identity.MACs[name] != "" {
			iface["macAddress"] = m.Identity.MACs[name]
		}
	}
	return unstructured.SetNestedSlice(spec, list, path...)
}
