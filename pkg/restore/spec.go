package restore

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// Wanted is what a restored spec has that the backed up one had not.
type Wanted struct {
	// Claims by volume name.
	Claims map[string]string
	// Revisions that stand in for those of the backup, by their old names.
	Revisions map[string]string
	// NewUUID and NewMACs make new identifiers out of Seed instead of keeping the old ones.
	NewUUID, NewMACs bool
	// Seed is the UID of the restore: the same restore makes the same identifiers.
	Seed types.UID
}

// namespaceUUID keeps our derived firmware UUIDs apart from those of others.
var namespaceUUID = uuid.MustParse("6f1d8a54-51c0-4e0b-9d2e-3c8f0f5b7a10")

// firmwareUUID that the restored machine gets.
func (w Wanted) firmwareUUID(m Machine) string {
	if w.NewUUID {
		return uuid.NewSHA1(namespaceUUID, []byte(w.Seed)).String()
	}
	return m.Identity.FirmwareUUID
}

// mac is a locally administered address, the same for the same restore and interface.
func (w Wanted) mac(iface string) string {
	sum := sha256.Sum256([]byte(string(w.Seed) + "/" + iface))
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", sum[0]&^1|2, sum[1], sum[2], sum[3], sum[4], sum[5])
}

// finalSpec is the spec of the restored machine: that of the backup, stopped, on its
// new claims, with the identity that the guest knows pinned.
func finalSpec(m Machine, w Wanted) (map[string]any, error) {
	spec, err := specOf(m.Raw)
	if err != nil {
		return nil, err
	}
	halt(spec)
	delete(spec, "dataVolumeTemplates")
	delete(spec, "updateVolumesStrategy")
	if err := putClaims(spec, w.Claims); err != nil {
		return nil, err
	}
	pinRevisions(spec, m, w.Revisions)
	return spec, pinIdentity(spec, m, w)
}

// heldSpec is spec, stopped, with one disk on a claim that does not exist: KubeVirt
// then stops before it handles the firmware state of an instance. What would make a
// volume by itself is taken out. errNoDisk if there is no disk to hold it by.
func heldSpec(spec map[string]any, hold string) (map[string]any, error) {
	spec = runtime.DeepCopyJSON(spec)
	halt(spec)
	delete(spec, "dataVolumeTemplates")
	volumes, err := volumesOf(spec)
	if err != nil {
		return nil, err
	}
	i := holdable(volumes)
	if i < 0 {
		return nil, errNoDisk
	}
	volumes[i] = map[string]any{"name": volumes[i]["name"], "persistentVolumeClaim": map[string]any{"claimName": hold}}
	return spec, setVolumes(spec, volumes)
}

// isHeld says that a disk of spec is on the claim that does not exist.
func isHeld(spec map[string]any, hold string) bool {
	volumes, err := volumesOf(spec)
	if err != nil {
		return false
	}
	for _, v := range volumes {
		if claimOf(v) == hold {
			return true
		}
	}
	return false
}

// holdable is the first volume that is a claim of an ordinary disk; -1 if there is none.
func holdable(volumes []map[string]any) int {
	for i, v := range volumes {
		pluggable, _, _ := unstructured.NestedBool(v, "persistentVolumeClaim", "hotpluggable")
		pluggableDV, _, _ := unstructured.NestedBool(v, "dataVolume", "hotpluggable")
		if claimOf(v) != "" && !pluggable && !pluggableDV {
			return i
		}
	}
	return -1
}

// claimOf is the claim that a volume is on: a DataVolume's has its name.
func claimOf(volume map[string]any) string {
	if name, _, _ := unstructured.NestedString(volume, "persistentVolumeClaim", "claimName"); name != "" {
		return name
	}
	name, _, _ := unstructured.NestedString(volume, "dataVolume", "name")
	return name
}

func specOf(object map[string]any) (map[string]any, error) {
	spec, found, err := unstructured.NestedMap(object, "spec")
	if err != nil || !found {
		return nil, fmt.Errorf("virtual machine without a spec: %w", ErrDocuments)
	}
	return spec, nil
}

func volumesOf(spec map[string]any) ([]map[string]any, error) {
	list, _, err := unstructured.NestedSlice(spec, "template", "spec", "volumes")
	if err != nil {
		return nil, fmt.Errorf("volumes of the virtual machine: %w", err)
	}
	out := make([]map[string]any, 0, len(list))
	for _, item := range list {
		v, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("volume that is no object: %w", ErrDocuments)
		}
		out = append(out, v)
	}
	return out, nil
}

func setVolumes(spec map[string]any, volumes []map[string]any) error {
	list := make([]any, 0, len(volumes))
	for _, v := range volumes {
		list = append(list, v)
	}
	return unstructured.SetNestedSlice(spec, list, "template", "spec", "volumes")
}

func halt(spec map[string]any) {
	delete(spec, "running")
	spec["runStrategy"] = string(kubevirtv1.RunStrategyHalted)
}

// putClaims points every volume at its new claim. A memory dump is of the machine
// that was, and goes; a claim that the backup does not hold is an error.
func putClaims(spec map[string]any, claims map[string]string) error {
	volumes, err := volumesOf(spec)
	if err != nil {
		return err
	}
	var out []map[string]any
	for _, v := range volumes {
		name, _ := v["name"].(string)
		old := claimOf(v)
		if _, dump := v["memoryDump"]; dump {
			continue
		}
		if old == "" {
			out = append(out, v)
			continue
		}
		claim, ok := claims[name]
		if !ok {
			return fmt.Errorf("volume %q is not in the backup: %w", name, ErrDocuments)
		}
		out = append(out, onClaim(v, name, claim))
	}
	return setVolumes(spec, out)
}

// onClaim keeps what the volume says beside its claim (hotpluggable, readOnly).
func onClaim(volume map[string]any, name, claim string) map[string]any {
	source, _, _ := unstructured.NestedMap(volume, "persistentVolumeClaim")
	if source == nil {
		source = map[string]any{}
		if hot, _, _ := unstructured.NestedBool(volume, "dataVolume", "hotpluggable"); hot {
			source["hotpluggable"] = true
		}
	}
	source["claimName"] = claim
	return map[string]any{"name": name, "persistentVolumeClaim": source}
}

// pinRevisions names the restored revisions of instancetype and preference, so that
// KubeVirt does not take whatever the cluster has under the same name.
func pinRevisions(spec map[string]any, m Machine, revisions map[string]string) {
	for field, old := range m.revisionNames() {
		matcher, ok := spec[field].(map[string]any)
		if name := revisions[old]; ok && name != "" {
			matcher["revisionName"] = name
			delete(matcher, "inferFromVolume")
			delete(matcher, "inferFromVolumeFailurePolicy")
		}
	}
}

// revisionNames are the revisions that the machine ran with, by the field of its spec.
func (m Machine) revisionNames() map[string]string {
	out := map[string]string{}
	if i := m.VM.Spec.Instancetype; i != nil {
		out["instancetype"] = i.RevisionName
		if out["instancetype"] == "" {
			out["instancetype"] = revisionOf(m.VM.Status.InstancetypeRef)
		}
	}
	if p := m.VM.Spec.Preference; p != nil {
		out["preference"] = p.RevisionName
		if out["preference"] == "" {
			out["preference"] = revisionOf(m.VM.Status.PreferenceRef)
		}
	}
	return out
}

func revisionOf(ref *kubevirtv1.InstancetypeStatusRef) string {
	if ref == nil || ref.ControllerRevisionRef == nil {
		return ""
	}
	return ref.ControllerRevisionRef.Name
}

// newMachine is the object of a new virtual machine, held and stopped.
func newMachine(m Machine, name, namespace string, owner types.UID, spec map[string]any) map[string]any {
	meta := map[string]any{
		"name":      name,
		"namespace": namespace,
		"labels":    toAny(withOwner(carried(m.VM.Labels), owner)),
	}
	if annotations := carried(m.VM.Annotations); annotations != nil {
		meta["annotations"] = toAny(annotations)
	}
	return map[string]any{
		"apiVersion": kubevirtv1.GroupVersion.String(),
		"kind":       "VirtualMachine",
		"metadata":   meta,
		"spec":       spec,
	}
}

func withOwner(labels map[string]string, owner types.UID) map[string]string {
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.LabelOwnerUID] = string(owner)
	return labels
}

func toAny(in map[string]string) map[string]any {
	out := make(map[string]any, len(in))
	for k, v := range in {
		out[k] = v
	}
	return out
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
