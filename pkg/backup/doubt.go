package backup

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/store"
)

// findingsOf is what the audit of a stored backup found fault with.
func findingsOf(b *v1alpha1.VMStateBackup) []v1alpha1.DriverFinding { return store.FindingsOf(b) }

// doubts are all findings that are known: those that stores remember, and those of backups that are there.
func (in Observed) doubts() []v1alpha1.DriverFinding {
	out := slices.Clone(in.Remembered)
	for _, o := range in.Others {
		for _, f := range findingsOf(o) {
			known := func(k v1alpha1.DriverFinding) bool { return k.Driver == f.Driver && k.Commit == f.Commit }
			if !slices.ContainsFunc(out, known) {
				out = append(out, f)
			}
		}
	}
	return out
}

// distrusted is the finding for which a disk is read in full, whatever its driver tells; nil if there is none. It ends when a
// person says so, and for this disk when an audit since then was without fault.
func (in Observed) distrusted(v v1alpha1.BackupVolume) *v1alpha1.DriverFinding {
	for _, f := range in.doubts() {
		if f.Driver != v.Driver || f.CheckedAt != nil {
			continue
		}
		cleared := func(o *v1alpha1.VMStateBackup) bool {
			r := readingOf(o, v.Name)
			return r != nil && sameChain(o, in.Backup) && driverOf(o, v.Name) == f.Driver && clears(o, r, &f)
		}
		if !slices.ContainsFunc(in.Others, cleared) {
			return &f
		}
	}
	return nil
}

// clears says that a driver was found in order after a finding: by this backup's audit, or by one before it, since its word
// was used again after everything had been read.
func clears(b *v1alpha1.VMStateBackup, r *v1alpha1.VolumeReading, f *v1alpha1.DriverFinding) bool {
	switch r.Way {
	case v1alpha1.ReadAudited:
		return r.UntoldBytes == 0 && b.Status.Moment != nil && f.FoundAt.Before(&b.Status.Moment.CutEnded)
	case v1alpha1.ReadChanged:
		return r.FullyReadAt != nil && f.FoundAt.Before(r.FullyReadAt)
	default:
		return false
	}
}

// doubtful are the disks of a stored backup that were not read in full, on the word of a driver that was found later to
// tell too little, or that nobody had audited since.
func doubtful(b *v1alpha1.VMStateBackup, f *v1alpha1.DriverFinding) (disks []string) {
	c, m := commitOf(b), b.Status.Moment
	if c == nil || m == nil || *c == f.Commit || f.CheckedAt != nil && m.CutEnded.After(f.CheckedAt.Time) {
		return nil
	}
	for _, r := range b.Status.Export.Readings {
		if !isFull(r) && driverOf(b, r.Name) == f.Driver && precedes(b, &r, f) {
			disks = append(disks, r.Name)
		}
	}
	return disks
}

// precedes says that what a backup was told of a disk is older than a finding, or that nothing was read in full since.
func precedes(b *v1alpha1.VMStateBackup, r *v1alpha1.VolumeReading, f *v1alpha1.DriverFinding) bool {
	if c := commitOf(b); chainOf(c.Key) == chainOf(f.Commit.Key) {
		return c.Sequence < f.Commit.Sequence
	}
	return !f.FoundAt.Before(&b.Status.Moment.CutEnded) || r.FullyReadAt != nil && !f.FoundAt.Before(r.FullyReadAt)
}

// Doubted says that a store remembers something against a stored backup that this does not say yet.
func Doubted(s *v1alpha1.VMStateStore, b *v1alpha1.VMStateBackup) bool {
	return !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionSuspect) &&
		slices.ContainsFunc(s.Status.DriverFindings, func(f v1alpha1.DriverFinding) bool { return len(doubtful(b, &f)) > 0 })
}

// vouched says that an audit without fault speaks for a disk of a backup: one of its chain that follows it, before the audit that
// found fault if that is of the same chain, with nothing between that read all of the disk and so repaired, without noticing,
// what the driver had not told of. What is not known counts as such.
func (in Observed) vouched(disk string, f *v1alpha1.DriverFinding) bool {
	chain := []*v1alpha1.VMStateBackup{in.Backup}
	found := in.Backup
	for _, o := range in.Others {
		if readingOf(o, disk) == nil || !sameChain(o, in.Backup) {
			continue
		}
		chain = append(chain, o)
		if *commitOf(o) == f.Commit {
			found = o
		}
	}
	slices.SortFunc(chain, func(a, b *v1alpha1.VMStateBackup) int { return int(commitOf(a).Sequence - commitOf(b).Sequence) })
	at := slices.Index(chain, in.Backup)
	for i := at + 1; i < len(chain) && chain[i] != found; i++ {
		r := readingOf(chain[i], disk)
		switch {
		case commitOf(chain[i]).Sequence != commitOf(chain[i-1]).Sequence+1:
			return false
		case r.Way == v1alpha1.ReadAudited && r.UntoldBytes == 0:
			return true
		case isFull(*r):
			return false
		}
	}
	return false
}

// findings are what audits found: this one's, and those of others about what this one holds.
func findings(in Observed) (out []Finding) {
	if commitOf(in.Backup) == nil {
		return nil
	}
	out = vanished(in)
	if own := findingsOf(in.Backup); len(own) > 0 {
		out = append(out, in.foundHere(own[0]))
	}
	for _, f := range in.doubts() {
		for _, disk := range doubtful(in.Backup, &f) {
			if in.vouched(disk, &f) {
				continue
			}
			return append(out, Finding{v1alpha1.ConditionSuspect, metav1.ConditionTrue, v1alpha1.ReasonChangesUntold, fmt.Sprintf(
				"disk %q was not read in full, and the audit of backup %q found that driver %q does not tell of all changes: "+
					"some of it may be older than this backup; restore another one", disk, f.BackupName, f.Driver)})
		}
	}
	return out
}

// foundHere is what the backup's own audit found.
func (in Observed) foundHere(f v1alpha1.DriverFinding) Finding {
	checked := func(k v1alpha1.DriverFinding) bool { return k.Commit == f.Commit && k.CheckedAt != nil }
	if f.CheckedAt != nil || slices.ContainsFunc(in.Remembered, checked) {
		return Finding{v1alpha1.ConditionDriverTrusted, metav1.ConditionTrue, v1alpha1.ReasonDriverChecked, "a person has looked into what this backup's audit found"}
	}
	return Finding{v1alpha1.ConditionDriverTrusted, metav1.ConditionFalse, v1alpha1.ReasonChangesUntold, fmt.Sprintf(
		"%s of disk %q, from byte %d on, had changed since the backup before, and driver %q told of no change there; this backup holds "+
			"what is there now. Until an audit is without fault, backups read everything: annotate the store with %s=%q when the driver is repaired",
		bytesText(f.UntoldBytes), f.DiskName, readingOf(in.Backup, f.DiskName).UntoldAt, f.Driver, v1alpha1.AnnotationDriverChecked, f.Driver)}
}

func driverOf(b *v1alpha1.VMStateBackup, disk string) string {
	for _, v := range disksOf(&b.Status) {
		if v.Name == disk {
			return v.Driver
		}
	}
	return ""
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

// Untold says that a stored backup's audit found fault with a driver, which its store is to remember.
func Untold(b *v1alpha1.VMStateBackup) bool { return len(findingsOf(b)) > 0 }

// unheard says that the store does not remember yet what this backup's audit found: until it does, the object stays.
func (in Observed) unheard() bool {
	s := in.Store
	return Untold(in.Backup) && !in.Terminating && s != nil && s.DeletionTimestamp == nil &&
		!slices.ContainsFunc(s.Status.DriverFindings, func(f v1alpha1.DriverFinding) bool { return f.Commit == *commitOf(in.Backup) })
}
