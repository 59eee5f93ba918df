package restore

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// plannedClaims are the new claims of a restore, in the order of the backup's volumes.
// Firmware state does not carry its label before the switch.
func plannedClaims(in Observed) []*corev1.PersistentVolumeClaim {
	out := make([]*corev1.PersistentVolumeClaim, 0, len(in.Machine.Held))
	for _, v := range in.Machine.Held {
		out = append(out, plannedClaim(in, v))
	}
	return out
}

func plannedClaim(in Observed, v v1alpha1.VolumeFacts) *corev1.PersistentVolumeClaim {
	r := in.Restore
	carry := in.Machine.claim(v.Name)
	labels := carried(carry.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.DeleteFunc(labels, func(key, _ string) bool { return key == v1alpha1.LabelManagedBy })
	labels[v1alpha1.LabelOwnerUID] = string(r.UID)
	mode := corev1.PersistentVolumeMode(v.VolumeMode)
	if mode == "" {
		mode = corev1.PersistentVolumeFilesystem
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: claimName(in, v), Namespace: r.Namespace, Labels: labels, Annotations: carried(carry.Annotations),
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: accessModes(r, v),
			VolumeMode:  &mode,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: *resource.NewQuantity(claimBytes(in, v), resource.BinarySI),
			}},
		},
	}
	if class := storageClass(r, v); class != "" {
		claim.Spec.StorageClassName = &class
	}
	if s := localSnapshot(in, v); s != nil {
		group := "snapshot.storage.k8s.io"
		claim.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: s.SnapshotName}
	}
	return claim
}

func claimName(in Observed, v v1alpha1.VolumeFacts) string {
	vm := targetName(in.Restore, in.Restore.Status.From)
	if v.Role == v1alpha1.RoleFirmwareState {
		return stateClaim(vm, in.Restore.UID)
	}
	return diskClaim(vm, v.Name, in.Restore.UID)
}

// claimBytes is never less than the volume had, nor than its snapshot asks for.
func claimBytes(in Observed, v v1alpha1.VolumeFacts) int64 {
	size := v.SizeBytes
	if s := localSnapshot(in, v); s != nil {
		size = max(size, s.RestoreSizeBytes)
	}
	return size
}

// localSnapshot is the snapshot that a disk is made from, where the backup has no store.
func localSnapshot(in Observed, v v1alpha1.VolumeFacts) *v1alpha1.CutSnapshot {
	local := localCopy(in)
	if local == nil || v.Role != v1alpha1.RoleDisk {
		return nil
	}
	i := slices.IndexFunc(local.Snapshots, func(s v1alpha1.CutSnapshot) bool { return s.VolumeName == v.Name })
	if i < 0 {
		return nil
	}
	return &local.Snapshots[i]
}

// localCopy is what a backup without a store consists of; nil for one in a store, and for
// another backup of that name than the one that was found.
func localCopy(in Observed) *v1alpha1.LocalCopy {
	from, b := in.Restore.Status.From, in.Backup
	if from == nil || from.Commit != nil || b == nil || b.Status.Moment == nil || b.Status.VM == nil {
		return nil
	}
	if b.Status.VM.UID != from.VMUID || !b.Status.Moment.CutEnded.Equal(&from.TakenAt) {
		return nil
	}
	return b.Status.Local
}

// mapping is the most specific one for a volume.
func mapping(r *v1alpha1.VMStateRestore, v v1alpha1.VolumeFacts) *v1alpha1.StorageMapping {
	var found *v1alpha1.StorageMapping
	for i := range r.Spec.Storage {
		m := &r.Spec.Storage[i]
		if m.Role != v.Role {
			continue
		}
		if m.VolumeName == v.Name {
			return m
		}
		if m.VolumeName == "" && found == nil {
			found = m
		}
	}
	return found
}

func storageClass(r *v1alpha1.VMStateRestore, v v1alpha1.VolumeFacts) string {
	if m := mapping(r, v); m != nil {
		return m.StorageClassName
	}
	return v.StorageClassName
}

func accessModes(r *v1alpha1.VMStateRestore, v v1alpha1.VolumeFacts) []corev1.PersistentVolumeAccessMode {
	modes := v.AccessModes
	if m := mapping(r, v); m != nil && len(m.AccessModes) > 0 {
		modes = m.AccessModes
	}
	out := make([]corev1.PersistentVolumeAccessMode, 0, len(modes))
	for _, mode := range modes {
		out = append(out, corev1.PersistentVolumeAccessMode(mode))
	}
	return out
}
