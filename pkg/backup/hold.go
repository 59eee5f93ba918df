package backup

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
)

// holdPause is between two looks at a VM and a store whose end nothing tells of.
const holdPause = 10 * time.Minute

// hold keeps the snapshots of a stored backup until they are of no use.
func hold(in Observed) Decision {
	d := settled(in)
	d.RequeueAfter = holdPause
	if Useless(in) == "" {
		return d
	}
	left := remains(in, func(c Child) bool { return isBase(in.Backup, c) })
	if len(left.actions) > 0 || left.waiting != "" {
		d.Actions, d.RequeueAfter = left.actions, lookAgain
		return d
	}
	d.Status.Export.Base, d.RequeueAfter = nil, 0
	return d
}

// Useless says why nothing can be asked any more about the snapshots that a backup keeps; "" if it can.
func Useless(in Observed) string {
	newest := Newest(in.Backup, in.Others)
	switch {
	case newest != nil && follows(newest, in.Backup):
		return fmt.Sprintf("backup %q follows", newest.Name)
	case in.MachineGone:
		return "the VM is gone"
	case in.Store == nil || in.Store.DeletionTimestamp != nil:
		return "the store is gone"
	default:
		return ""
	}
}

// isBase says that a child is a snapshot which is kept for the next backup.
func isBase(b *v1alpha1.VMStateBackup, c Child) bool {
	last := Last(b)
	if b.Status.Export == nil || b.Status.Export.Base == nil || last == nil {
		return false
	}
	switch c.Kind {
	case action.KindVolumeSnapshot:
		return slices.ContainsFunc(b.Status.Export.Base.Snapshots, func(s v1alpha1.CutSnapshot) bool { return s.SnapshotName == c.Name })
	case action.KindVolumeGroupSnapshot:
		return c.Name == GroupName(b, last.Number)
	default:
		return false
	}
}

// Concerns says that what a stored backup came to matters to an earlier one: it keeps snapshots, or
// took over unread what the later one's audit found fault with.
func Concerns(later, b *v1alpha1.VMStateBackup) bool {
	if !sameChain(later, b) || commitOf(later) == nil || commitOf(b) == nil || !follows(later, b) {
		return false
	}
	return b.Status.Export.Base != nil || len(suspectDisks(later, b, nil)) > 0
}

// findings are what audits found: this one's, and those of later backups about what this one holds.
func findings(in Observed) (out []Finding) {
	if commitOf(in.Backup) == nil {
		return nil
	}
	for _, r := range in.Backup.Status.Export.Readings {
		switch {
		case r.UntoldBytes == 0:
			continue
		case in.Backup.Annotations[v1alpha1.AnnotationDriverChecked] != "":
			out = append(out, Finding{v1alpha1.ConditionDriverTrusted, metav1.ConditionTrue, v1alpha1.ReasonDriverChecked,
				"a person has looked into what this backup's audit found"})
		default:
			out = append(out, Finding{v1alpha1.ConditionDriverTrusted, metav1.ConditionFalse, v1alpha1.ReasonChangesUntold, fmt.Sprintf(
				"%s of disk %q, from byte %d on, had changed since the backup before, and driver %q told of no change there; this backup holds "+
					"what is there now. What the driver tells is not used any more: annotate this backup with %s when it is repaired",
				bytesText(r.UntoldBytes), r.Name, r.UntoldAt, driverOf(in.Backup, r.Name), v1alpha1.AnnotationDriverChecked)})
		}
		break
	}
	for _, o := range in.Others {
		if !sameChain(o, in.Backup) || commitOf(o) == nil || !follows(o, in.Backup) {
			continue
		}
		if disks := suspectDisks(o, in.Backup, in.Others); len(disks) > 0 {
			return append(out, Finding{v1alpha1.ConditionSuspect, metav1.ConditionTrue, v1alpha1.ReasonChangesUntold, fmt.Sprintf(
				"disk %q was not read in full, and the audit of backup %q found that driver %q does not tell of all changes: "+
					"some of it may be older than this backup; restore another one", disks[0], o.Name, driverOf(in.Backup, disks[0]))})
		}
	}
	return out
}

func driverOf(b *v1alpha1.VMStateBackup, disk string) string {
	for _, v := range disksOf(&b.Status) {
		if v.Name == disk {
			return v.Driver
		}
	}
	return ""
}

// suspectDisks are those of b that were not read in full, that audit found fault with, and that no audit
// between the two has found in order. Another full reading between them proves nothing: it repairs what an
// earlier backup was not told of, and does not notice.
func suspectDisks(audit, b *v1alpha1.VMStateBackup, others []*v1alpha1.VMStateBackup) (disks []string) {
	for _, found := range audit.Status.Export.Readings {
		mine := readingOf(b, found.Name)
		if found.UntoldBytes == 0 || mine == nil || isFull(*mine) {
			continue
		}
		between := func(o *v1alpha1.VMStateBackup) bool {
			r := readingOf(o, found.Name)
			return r != nil && sameChain(o, b) && r.Way == v1alpha1.ReadAudited && r.UntoldBytes == 0 && follows(o, b) && follows(audit, o)
		}
		if !slices.ContainsFunc(others, between) {
			disks = append(disks, found.Name)
		}
	}
	return disks
}

// readingOf is how a stored backup read a disk; nil if it does not say.
func readingOf(b *v1alpha1.VMStateBackup, disk string) *v1alpha1.VolumeReading {
	if commitOf(b) == nil {
		return nil
	}
	for i := range b.Status.Export.Readings {
		if b.Status.Export.Readings[i].Name == disk {
			return &b.Status.Export.Readings[i]
		}
	}
	return nil
}
