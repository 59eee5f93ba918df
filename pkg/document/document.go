// Package document is what a backup keeps of a virtual machine beside its volumes' bytes: all
// that a restore needs to make the same machine again, as a sealed guest sees it.
//
// The documents travel in a commit as the tree volume VolumeName (role Spec), which holds one
// file, FileName. A backup without a store keeps them in a ConfigMap under the same key.
package document

import (
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

const (
	// VolumeName is the name of the Spec volume in a commit. No volume of a virtual machine can
	// have it: a volume's name has no dot (kubevirt.io/api, volume names are DNS labels).
	VolumeName = "vmstate.spec"
	// FileName of the documents in the Spec volume, and their key in a ConfigMap.
	FileName = "documents.json"
	// Version of the documents that this package writes.
	Version = 1
	// MaxBytes of the encoded documents: what fits in a ConfigMap with its metadata.
	MaxBytes = 900 << 10
)

// ErrVersion is the answer to documents that a later version wrote.
var ErrVersion = errors.New("documents of a later version")

// Documents describe one virtual machine at the moment of its backup.
type Documents struct {
	// Version of the encoding.
	Version int `json:"version"`
	// VM as its owner wrote it, with metadata and status.
	VM kubevirtv1.VirtualMachine `json:"vm"`
	// VMI that ran; nil if the virtual machine did not run. It was started from StartRevision and
	// may differ from VM.
	VMI *kubevirtv1.VirtualMachineInstance `json:"vmi,omitempty"`
	// Expanded is VM with its instancetype and preference applied (subresource expand-spec).
	Expanded kubevirtv1.VirtualMachine `json:"expanded"`
	// Revisions are the ControllerRevisions that VM refers to: of its instancetype, its preference
	// and its start.
	Revisions []appsv1.ControllerRevision `json:"revisions,omitempty"`
	// Identity that a sealed guest sees.
	Identity Identity `json:"identity"`
	// Volumes of the virtual machine, included or excluded, with the facts of their claims.
	Volumes []v1alpha1.BackupVolume `json:"volumes"`
	// Claims are the labels and annotations of the included claims that a restore may carry over.
	Claims []Claim `json:"claims,omitempty"`
	// References are the objects that the virtual machine needs and that are not in the backup.
	References []Reference `json:"references,omitempty"`
	// KubeVirtVersion is the launcher image of the instance, as KubeVirt reports it.
	KubeVirtVersion string `json:"kubeVirtVersion,omitempty"`
}

// Identity is what a sealed guest sees of its hardware, as it was in effect.
type Identity struct {
	// FirmwareUUID: of the instance, else of the spec, else the one that KubeVirt 1.5 and older
	// derive from the name.
	FirmwareUUID string `json:"firmwareUUID"`
	// FirmwareSerial; empty if there is none.
	FirmwareSerial string `json:"firmwareSerial,omitempty"`
	// MachineType in effect: of the instance, else of the expanded spec.
	MachineType string `json:"machineType,omitempty"`
	// MACs by interface name, as seen on the instance, else as written in the spec.
	MACs map[string]string `json:"macs,omitempty"`
	// PCIAnnotations of the template that decide PCI addresses.
	PCIAnnotations map[string]string `json:"pciAnnotations,omitempty"`
	// SecureBoot says that EFI checks signatures.
	SecureBoot bool `json:"secureBoot"`
	// PersistentTPM says that the TPM is kept in the state volume.
	PersistentTPM bool `json:"persistentTPM"`
	// PersistentEFI says that the EFI variables are kept in the state volume.
	PersistentEFI bool `json:"persistentEFI"`
	// CPUModel in effect; empty for the cluster's default.
	CPUModel string `json:"cpuModel,omitempty"`
}

// Claim is what a restore may carry over of a claim beside its VolumeFacts.
type Claim struct {
	// Volume that the claim belongs to.
	Volume string `json:"volume"`
	// Labels of the claim.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the claim.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Reference names an object that the virtual machine needs.
type Reference struct {
	// Kind of the object: Secret, ConfigMap, ServiceAccount or NetworkAttachmentDefinition, or
	// the kind of an instancetype or preference.
	Kind string `json:"kind"`
	// Name of the object; namespace/name for a NetworkAttachmentDefinition elsewhere.
	Name string `json:"name"`
	// UsedBy names the part of the virtual machine that needs it.
	UsedBy string `json:"usedBy"`
}

// Encode writes documents. It fails if they exceed MaxBytes.
func Encode(d Documents) ([]byte, error) {
	d.Version = Version
	raw, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("encode documents of VM %q: %w", d.VM.Name, err)
	}
	if len(raw) > MaxBytes {
		return nil, fmt.Errorf("documents of VM %q have %d bytes, at most %d are possible", d.VM.Name, len(raw), MaxBytes)
	}
	return raw, nil
}

// Decode reads documents. ErrVersion if a later version wrote them.
func Decode(raw []byte) (Documents, error) {
	var d Documents
	if err := json.Unmarshal(raw, &d); err != nil {
		return Documents{}, fmt.Errorf("decode documents: %w", err)
	}
	if d.Version != Version {
		return Documents{}, fmt.Errorf("%w: %d, this program reads %d", ErrVersion, d.Version, Version)
	}
	return d, nil
}
