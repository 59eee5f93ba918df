package store

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// maxDriverFindings bounds what is remembered of CSI drivers. The oldest goes first that says nothing the others do not.
const maxDriverFindings = 64

// FindingsOf is what the audit of a stored backup found fault with, one of each driver.
func FindingsOf(b *v1alpha1.VMStateBackup) (out []v1alpha1.DriverFinding) {
	if commitOf(b) == (v1alpha1.CommitRef{}) || b.Status.Moment == nil {
		return nil
	}
	for _, r := range b.Status.Export.Readings {
		at := slices.IndexFunc(b.Status.Volumes, func(v v1alpha1.BackupVolume) bool { return v.Name == r.Name && v.Role == v1alpha1.RoleDisk })
		if r.UntoldBytes == 0 || at < 0 {
			continue
		}
		f := v1alpha1.DriverFinding{
			Driver: b.Status.Volumes[at].Driver, BackupName: b.Name, Commit: *b.Status.Export.Commit, DiskName: r.Name, UntoldBytes: r.UntoldBytes,
			FoundAt: b.Status.Moment.CutEnded,
		}
		if b.Annotations[v1alpha1.AnnotationDriverChecked] != "" {
			f.CheckedAt = &metav1.Time{Time: f.FoundAt.Time}
		}
		if !slices.ContainsFunc(out, func(k v1alpha1.DriverFinding) bool { return k.Driver == f.Driver }) {
			out = append(out, f)
		}
	}
	return out
}

// notice remembers what audits found, and who was found to be repaired since.
func notice(in Observed, d *Decision) {
	list, now := &d.Status.DriverFindings, metav1.NewTime(in.Now)
	said := in.Store.Annotations[v1alpha1.AnnotationDriverChecked]
	for i := range in.Backups {
		for _, f := range FindingsOf(&in.Backups[i]) {
			at := slices.IndexFunc(*list, func(k v1alpha1.DriverFinding) bool { return k.Driver == f.Driver && k.Commit == f.Commit })
			checked := f.CheckedAt != nil
			if f.CheckedAt = nil; at < 0 {
				f.Before = said
				at, *list = len(*list), append(*list, f)
			}
			if k := &(*list)[at]; checked && k.CheckedAt == nil {
				k.CheckedAt = &now
			}
		}
	}
	for i := range *list {
		if k := &(*list)[i]; k.CheckedAt == nil && said != k.Before && names(said, k.Driver) {
			k.CheckedAt = &now
		}
	}
	slices.SortStableFunc(*list, func(a, b v1alpha1.DriverFinding) int { return a.FoundAt.Compare(b.FoundAt.Time) })
	forget(list)
}

// names says that an annotation speaks of a driver.
func names(annotation, driver string) bool {
	return slices.ContainsFunc(strings.Split(annotation, ","), func(part string) bool {
		name, _, _ := strings.Cut(strings.TrimSpace(part), " ")
		return name == driver
	})
}

// forget keeps the list bounded: what is checked goes before what is not, and of each driver the newest stays.
func forget(list *[]v1alpha1.DriverFinding) {
	for _, may := range []func(v1alpha1.DriverFinding) bool{
		func(f v1alpha1.DriverFinding) bool { return f.CheckedAt != nil },
		func(v1alpha1.DriverFinding) bool { return true },
	} {
		for i := 0; i < len(*list) && len(*list) > maxDriverFindings; {
			f := (*list)[i]
			newer := slices.ContainsFunc((*list)[i+1:], func(k v1alpha1.DriverFinding) bool { return k.Driver == f.Driver })
			if newer && may(f) {
				*list = slices.Delete(*list, i, i+1)
				continue
			}
			i++
		}
	}
}
