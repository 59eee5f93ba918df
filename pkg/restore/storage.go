package restore

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// checkClaimNames finds claims of others under the names that the restore would use.
func checkClaimNames(in Observed) []v1alpha1.Finding {
	var out []v1alpha1.Finding
	for _, name := range claimNames(in) {
		if c := in.Claims[name]; c != nil && !ours(in, c.Labels) {
			out = append(out, failed("Claim/"+name, "claim %q exists, and was not made by this restore: delete it, or create the restore again", name))
		}
	}
	if in.Claims[holdClaim(in.Restore)] != nil {
		out = append(out, failed("Claim/hold", "claim %q exists: it must not, delete it", holdClaim(in.Restore)))
	}
	return out
}

// checkStorage looks for the class of every new claim.
func checkStorage(in Observed) []v1alpha1.Finding {
	out := checkMappings(in)
	for _, v := range in.Machine.Held {
		out = append(out, checkClass(in, v)...)
		out = append(out, checkModes(in, v)...)
		if v.SizeBytes <= 0 {
			out = append(out, failed("Size/"+v.Name, "the backup does not say how big volume %q is", v.Name))
		}
		if l := localCopy(in); l != nil && v.Role == v1alpha1.RoleDisk && localSnapshot(in, v) == nil {
			out = append(out, failed("Snapshot/"+v.Name, "the backup has no snapshot of volume %q", v.Name))
		}
	}
	return or(out, "Storage", "every volume has its storage class")
}

func checkMappings(in Observed) []v1alpha1.Finding {
	var out []v1alpha1.Finding
	for _, m := range in.Restore.Spec.Storage {
		if m.VolumeName == "" || slices.ContainsFunc(in.Machine.Held, func(v v1alpha1.VolumeFacts) bool {
			return v.Name == m.VolumeName && v.Role == m.Role
		}) {
			continue
		}
		out = append(out, failed("Mapping/"+m.VolumeName, "spec.storage names volume %q with role %s, which the backup does not have; it has %s",
			m.VolumeName, m.Role, describeVolumes(in.Machine.Held)))
	}
	return out
}

func describeVolumes(volumes []v1alpha1.VolumeFacts) string {
	var out []string
	for _, v := range volumes {
		out = append(out, fmt.Sprintf("%s (%s)", v.Name, v.Role))
	}
	return strings.Join(out, ", ")
}

func checkClass(in Observed, v v1alpha1.VolumeFacts) []v1alpha1.Finding {
	name := storageClass(in.Restore, v)
	check := "StorageClass/" + v.Name
	if name == "" {
		if slices.ContainsFunc(in.Cluster.StorageClasses, isDefault) {
			return []v1alpha1.Finding{warning(check, "volume %q had no storage class: this cluster's default is used", v.Name)}
		}
		return []v1alpha1.Finding{failed(check, "volume %q had no storage class, and this cluster has no default: map role %s to a class in spec.storage", v.Name, v.Role)}
	}
	i := slices.IndexFunc(in.Cluster.StorageClasses, func(c storagev1.StorageClass) bool { return c.Name == name })
	if i < 0 {
		return []v1alpha1.Finding{failed(check, "volume %q needs storage class %q, which this cluster does not have: map role %s to one of %s in spec.storage",
			v.Name, name, v.Role, classNames(in.Cluster.StorageClasses))}
	}
	class := in.Cluster.StorageClasses[i]
	if localSnapshot(in, v) != nil && class.Provisioner != v.Driver {
		return []v1alpha1.Finding{failed(check, "volume %q is restored from a snapshot of driver %s, and storage class %q belongs to %s: a snapshot cannot move to another driver", v.Name, v.Driver, name, class.Provisioner)}
	}
	if class.Provisioner == "kubernetes.io/no-provisioner" {
		return []v1alpha1.Finding{warning(check, "storage class %q of volume %q makes no volumes by itself: one of %s must be there", name, v.Name, bytesText(v.SizeBytes))}
	}
	return nil
}

func isDefault(c storagev1.StorageClass) bool {
	return c.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"
}

func classNames(classes []storagev1.StorageClass) string {
	var out []string
	for _, c := range classes {
		out = append(out, c.Name)
	}
	if len(out) == 0 {
		return "(none)"
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

var knownModes = []corev1.PersistentVolumeAccessMode{
	corev1.ReadWriteOnce, corev1.ReadWriteMany, corev1.ReadWriteOncePod, corev1.ReadOnlyMany,
}

func checkModes(in Observed, v v1alpha1.VolumeFacts) []v1alpha1.Finding {
	check := "AccessModes/" + v.Name
	modes := accessModes(in.Restore, v)
	for _, m := range modes {
		if !slices.Contains(knownModes, m) {
			return []v1alpha1.Finding{failed(check, "volume %q: there is no access mode %q", v.Name, m)}
		}
	}
	if len(modes) == 0 || slices.Equal(modes, []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}) {
		return []v1alpha1.Finding{failed(check, "volume %q needs an access mode that can be written to", v.Name)}
	}
	if v.Role == v1alpha1.RoleFirmwareState && v.VolumeMode == string(corev1.PersistentVolumeBlock) {
		return []v1alpha1.Finding{failed(check, "firmware state %q is a Block volume, which KubeVirt cannot use", v.Name)}
	}
	had := slices.Contains(v.AccessModes, string(corev1.ReadWriteMany))
	if had && !slices.Contains(modes, corev1.ReadWriteMany) && v.Role == v1alpha1.RoleDisk {
		return []v1alpha1.Finding{warning(check, "volume %q was ReadWriteMany and will not be: the virtual machine can no longer be migrated live", v.Name)}
	}
	return nil
}

// checkQuotas adds up what the new claims ask for. The replaced ones stay for a while,
// so nothing is given back.
func checkQuotas(in Observed) []v1alpha1.Finding {
	asks := quotaAsks(in)
	var out []v1alpha1.Finding
	for _, q := range in.Cluster.Quotas {
		if len(q.Spec.Scopes) > 0 || q.Spec.ScopeSelector != nil {
			continue // scopes are of pods
		}
		var short []string
		for key, hard := range q.Status.Hard {
			ask, counted := asks[key]
			used := q.Status.Used[key]
			used.Add(ask)
			if counted && used.Cmp(hard) > 0 {
				now := q.Status.Used[key]
				short = append(short, fmt.Sprintf("%s: %s of %s used, %s more needed", key, now.String(), hard.String(), ask.String()))
			}
		}
		if len(short) > 0 {
			slices.Sort(short)
			out = append(out, failed("Quota/"+q.Name, "quota %q is too small: %s", q.Name, strings.Join(short, "; ")))
		}
	}
	return out
}

func quotaAsks(in Observed) map[corev1.ResourceName]resource.Quantity {
	asks := map[corev1.ResourceName]resource.Quantity{}
	add := func(key corev1.ResourceName, q resource.Quantity) {
		sum := asks[key]
		sum.Add(q)
		asks[key] = sum
	}
	one := *resource.NewQuantity(1, resource.DecimalSI)
	for _, c := range plannedClaims(in) {
		if have := in.Claims[c.Name]; have != nil {
			continue // it counts already
		}
		size := c.Spec.Resources.Requests[corev1.ResourceStorage]
		add(corev1.ResourcePersistentVolumeClaims, one)
		add("count/persistentvolumeclaims", one)
		add(corev1.ResourceRequestsStorage, size)
		if class := c.Spec.StorageClassName; class != nil {
			prefix := corev1.ResourceName(*class + ".storageclass.storage.k8s.io/")
			add(prefix+corev1.ResourceRequestsStorage, size)
			add(prefix+corev1.ResourcePersistentVolumeClaims, one)
		}
	}
	add(corev1.ResourcePods, one)
	add("count/pods", one)
	add("count/jobs.batch", one)
	if in.Restore.Spec.Mode == v1alpha1.RestoreNewVM {
		add("count/virtualmachines.kubevirt.io", one)
	}
	return asks
}

func bytesText(n int64) string { return resource.NewQuantity(n, resource.BinarySI).String() }
