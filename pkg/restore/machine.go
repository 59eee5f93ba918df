package restore

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/document"
)

// ErrDocuments is the answer to documents that a restore cannot be made from.
var ErrDocuments = errors.New("documents of the backup are unusable")

// errNoDisk: there is no disk to hold a machine by.
var errNoDisk = errors.New("no disk on a claim of its own")

// Machine is the virtual machine of a backup, as a restore needs it.
type Machine struct {
	document.Documents
	// Raw is the VM with the fields that this version of KubeVirt's types does not
	// know; what is written comes from it.
	Raw map[string]any
	// Held are the volumes that the backup holds: disks and firmware state.
	Held []v1alpha1.VolumeFacts
}

// MachineOf decodes what was recorded of a backup. ErrDocuments if it is not what a
// backup holds.
func MachineOf(from *v1alpha1.RestoredFrom) (*Machine, error) {
	if from.Documents == nil {
		return nil, fmt.Errorf("%w: none", ErrDocuments)
	}
	docs, err := document.Decode(from.Documents.Raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocuments, err)
	}
	// This decoder, unlike Go's own, tells whole numbers from others, as the API server does.
	var object map[string]any
	if err := utiljson.Unmarshal(from.Documents.Raw, &object); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDocuments, err)
	}
	raw, _ := object["vm"].(map[string]any)
	m := &Machine{Documents: docs, Raw: raw, Held: from.Volumes}
	if docs.VM.Name == "" || docs.VM.Spec.Template == nil || docs.Identity.FirmwareUUID == "" {
		return nil, fmt.Errorf("%w: no virtual machine with a firmware UUID in them", ErrDocuments)
	}
	return m, nil
}

// effective is what the guest ran with, instancetype and preference applied.
func (m Machine) effective() kubevirtv1.VirtualMachineInstanceSpec {
	switch {
	case m.VMI != nil:
		return m.VMI.Spec
	case m.Expanded.Spec.Template != nil:
		return m.Expanded.Spec.Template.Spec
	}
	return m.VM.Spec.Template.Spec
}

// State is the volume with the firmware state, nil if the backup has none.
func (m Machine) State() *v1alpha1.VolumeFacts {
	i := slices.IndexFunc(m.Held, func(v v1alpha1.VolumeFacts) bool { return v.Role == v1alpha1.RoleFirmwareState })
	if i < 0 {
		return nil
	}
	return &m.Held[i]
}

// claim is what may be carried over of a volume's claim.
func (m Machine) claim(volume string) document.Claim {
	i := slices.IndexFunc(m.Claims, func(c document.Claim) bool { return c.Volume == volume })
	if i < 0 {
		return document.Claim{}
	}
	return m.Claims[i]
}

// revision is a ControllerRevision that the backup holds.
func (m Machine) revision(name string) *appsv1.ControllerRevision {
	i := slices.IndexFunc(m.Revisions, func(r appsv1.ControllerRevision) bool { return r.Name == name })
	if i < 0 || name == "" {
		return nil
	}
	return &m.Revisions[i]
}

// notCarried are keys of labels and annotations that say who manages the object
// that was backed up. A new object with them would be taken over, or pruned, by a
// tool that did not make it.
var notCarried = []string{
	"kubectl.kubernetes.io/last-applied-configuration",
	v1alpha1.LabelPersistentState,
	v1alpha1.LabelMigrationName,
	v1alpha1.LabelGroupMember,
	v1alpha1.LabelOwnerUID,
	v1alpha1.LabelTask,
	v1alpha1.AnnotationReplaced,
	v1alpha1.AnnotationKeptUntil,
	v1alpha1.AnnotationKeptUID,
}

var notCarriedGroups = []string{
	"argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "meta.helm.sh/",
	"pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/", "cdi.kubevirt.io/", "k8s.io/CloneRe", "k8s.io/CloneOf",
}

// keptAnyway are the exceptions: what CDI and KubeVirt know the contents by.
var keptAnyway = []string{"cdi.kubevirt.io/storage.contentType"}

// carried are the labels or annotations that a new object takes over.
func carried(in map[string]string) map[string]string {
	out := maps.Clone(in)
	maps.DeleteFunc(out, func(key, _ string) bool {
		if slices.Contains(keptAnyway, key) {
			return false
		}
		return slices.Contains(notCarried, key) || hasAnyPrefix(key, notCarriedGroups)
	})
	if len(out) == 0 {
		return nil
	}
	return out
}
