package backup

import (
	"fmt"
	"slices"
	"time"

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
	if commitOf(later) == nil || commitOf(b) == nil {
		return false
	}
	return sameChain(later, b) && follows(later, b) && b.Status.Export.Base != nil ||
		slices.ContainsFunc(findingsOf(later), func(f v1alpha1.DriverFinding) bool { return len(doubtful(b, &f)) > 0 })
}
