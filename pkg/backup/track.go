package backup

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	moverconfig "github.com/vmstate/vmstate/pkg/mover/config"
)

// Tracker is a CSI driver's SnapshotMetadataService.
type Tracker struct {
	Address  string
	Audience string
	// CA holds the certificates to trust, in PEM.
	CA []byte
}

// Newest is the other backup of b's chain, which is of the same VM in the same store, with the newest
// commit; nil if there is none. Of two at once it is always the same one.
func Newest(b *v1alpha1.VMStateBackup, others []*v1alpha1.VMStateBackup) *v1alpha1.VMStateBackup {
	var newest *v1alpha1.VMStateBackup
	for _, o := range others {
		if sameChain(o, b) && commitOf(o) != nil && (newest == nil || follows(o, newest)) {
			newest = o
		}
	}
	return newest
}

func sameChain(a, b *v1alpha1.VMStateBackup) bool {
	return a.UID != b.UID && a.Status.VM != nil && b.Status.VM != nil && a.Status.VM.UID == b.Status.VM.UID &&
		a.Spec.StoreRef != nil && b.Spec.StoreRef != nil && *a.Spec.StoreRef == *b.Spec.StoreRef
}

func commitOf(b *v1alpha1.VMStateBackup) *v1alpha1.CommitRef {
	if b.Status.Export == nil {
		return nil
	}
	return b.Status.Export.Commit
}

// follows says that a's commit comes after b's.
func follows(a, b *v1alpha1.VMStateBackup) bool {
	m, n := commitOf(a).Sequence, commitOf(b).Sequence
	return m > n || m == n && a.Name > b.Name
}

// parent is the backup that holds in.Parent; nil if there is none.
func (in Observed) parent() *v1alpha1.VMStateBackup {
	for _, o := range in.Others {
		if c := commitOf(o); c != nil && in.Parent != nil && *c == *in.Parent && sameChain(o, in.Backup) {
			return o
		}
	}
	return nil
}

// tracks says whether the driver of a disk can be asked what need be read, and if not and a
// person should know, why.
func tracks(in Observed, v v1alpha1.BackupVolume) (t Tracker, ok bool, why string) {
	if v.VolumeMode != string(corev1.PersistentVolumeBlock) {
		return t, false, "" // an image in a filesystem tells its holes by itself
	}
	if t, ok = in.Trackers[v.Driver]; !ok {
		return t, false, ""
	}
	if in.Backup.Spec.ChangedBlocks == v1alpha1.ChangedBlocksNever {
		return t, false, "spec.changedBlocks is Never"
	}
	return t, true, ""
}

// tracking is how the mover asks for a disk, or why it does not.
func tracking(in Observed, disk int, v v1alpha1.BackupVolume) (*moverconfig.Tracking, string) {
	t, ok, why := tracks(in, v)
	if !ok {
		return nil, why
	}
	out := &moverconfig.Tracking{
		Address: t.Address, CA: t.CA, Snapshot: in.Cut.Snapshots[disk].SnapshotName, Audit: auditDue(in, v),
		Token: fmt.Sprint(slices.Index(audiences(in), t.Audience)),
	}
	out.Base, out.NoBase = base(in, v)
	return out, ""
}

// audiences of the services that the mover asks, each once.
func audiences(in Observed) []string {
	var out []string
	for _, v := range disksOf(&in.Backup.Status) {
		if t, ok, _ := tracks(in, v); ok && !slices.Contains(out, t.Audience) {
			out = append(out, t.Audience)
		}
	}
	return out
}

// base is the handle of the snapshot that the parent was read from, or why there is none.
func base(in Observed, v v1alpha1.BackupVolume) (handle, why string) {
	parent := in.parent()
	if parent == nil {
		return "", ""
	}
	kept := parent.Status.Export.Base
	if kept == nil {
		return "", fmt.Sprintf("no snapshot of backup %q was kept", parent.Name)
	}
	same := func(o v1alpha1.BackupVolume) bool {
		return o.Name == v.Name && o.ClaimUID == v.ClaimUID && o.Handle == v.Handle && o.Driver == v.Driver
	}
	if !slices.ContainsFunc(parent.Status.Volumes, same) {
		return "", fmt.Sprintf("the disk was another volume in backup %q", parent.Name)
	}
	for _, s := range kept.Snapshots {
		if s.VolumeName == v.Name {
			return s.Handle, ""
		}
	}
	return "", fmt.Sprintf("no snapshot of this disk was kept of backup %q", parent.Name)
}

// auditDue says why everything is read although the driver may tell what has changed; "" if it
// need not be.
func auditDue(in Observed, v v1alpha1.BackupVolume) string {
	if f := in.distrusted(v); f != nil {
		return fmt.Sprintf("the audit of backup %q found that driver %q does not tell of all changes, and no audit of this disk has found it in order since",
			f.BackupName, f.Driver)
	}
	if in.Backup.Spec.ChangedBlocks == v1alpha1.ChangedBlocksAudit {
		return "an audit was asked for"
	}
	parent, days := in.parent(), time.Duration(in.Store.Spec.AuditDays)
	if parent == nil {
		return ""
	}
	last := parent.Status.Export.FullyReadAt
	if last == nil {
		return "an audit was due: it is not known when the disks were last read in full"
	}
	if days == 0 || in.Backup.Status.Moment.CutEnded.Sub(last.Time) < days*24*time.Hour {
		return ""
	}
	return fmt.Sprintf("an audit was due: the disks were read in full last at %s", last.UTC().Format(time.RFC3339))
}

// recordReadings records how the disks were read, when all of them were last read in full, and what is kept for the
// next backup.
func recordReadings(in Observed, e *v1alpha1.ExportResult, out *v1alpha1.ExportStatus) {
	at, told := in.Backup.Status.Moment.CutEnded, true
	for _, v := range e.Volumes {
		if v.Role != v1alpha1.RoleDisk || v.Reading == nil {
			continue
		}
		r := *v.Reading
		r.Name = v.Name
		out.Readings = append(out.Readings, r)
		switch {
		case isFull(r):
		case r.FullyReadAt == nil:
			told = false
		case r.FullyReadAt.Before(&at):
			at = *r.FullyReadAt
		}
	}
	if len(out.Readings) == 0 {
		return
	}
	if told {
		out.FullyReadAt = &at
	}
	out.Base = toKeep(in)
}

func isFull(r v1alpha1.VolumeReading) bool {
	return r.Way == v1alpha1.ReadAll || r.Way == v1alpha1.ReadAudited
}

// toKeep are the snapshots that let the next backup ask what has changed; all of a group, whose members
// go only together. nil if none is of use. A driver that is not believed is asked all the same, and compared.
func toKeep(in Observed) *v1alpha1.BaseSnapshots {
	out := &v1alpha1.BaseSnapshots{}
	for i, v := range disksOf(&in.Backup.Status) {
		_, ok, _ := tracks(in, v)
		if ok && i < len(in.Cut.Snapshots) && in.Cut.Refused() == "" {
			out.Snapshots = append(out.Snapshots, in.Cut.Snapshots[i])
		}
	}
	if len(out.Snapshots) == 0 || in.Backup.Spec.ChangedBlocks == v1alpha1.ChangedBlocksNever {
		return nil
	}
	return out
}

// Finding is a condition of a backup besides those of its state.
type Finding struct {
	Condition string
	Status    metav1.ConditionStatus
	Reason    string
	Message   string
}
