package restore

import (
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
)

// resolve finds out what the source is.
func resolve(in Observed) Decision {
	if in.Restore.Spec.Source.BackupRef == nil {
		return resolveInStore(in, nil)
	}
	b, name := in.Backup, in.Restore.Spec.Source.BackupRef.Name
	if b == nil {
		return stalled(in, v1alpha1.ReasonBackupNotFound, "there is no VMStateBackup %q in namespace %q", name, in.Restore.Namespace)
	}
	ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		return notReady(in, b, ready)
	}
	if b.Status.Export != nil && b.Status.Export.Commit != nil {
		return resolveInStore(in, b.Status.Export.Commit)
	}
	return resolveLocally(in)
}

func notReady(in Observed, b *v1alpha1.VMStateBackup, ready *metav1.Condition) Decision {
	why := "it has not begun"
	if ready != nil {
		why = ready.Message
	}
	if meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionStalled) {
		return stalled(in, v1alpha1.ReasonBackupNotReady, "backup %q failed: %s; choose another one", b.Name, why)
	}
	return working(in, v1alpha1.ReasonBackupNotReady, "waiting for backup %q: %s", b.Name, why)
}

// resolveLocally takes a backup of snapshots at its word: object and documents are ours.
func resolveLocally(in Observed) Decision {
	b := in.Backup
	if b.Status.Local == nil || b.Status.VM == nil || b.Status.Moment == nil || in.Documents == nil {
		return giveUp(in, v1alpha1.ReasonBackupDamaged, "backup %q has no snapshots or no documents of its virtual machine any more", b.Name)
	}
	from := &v1alpha1.RestoredFrom{
		VM:         b.Namespace + "/" + b.Spec.VMName,
		VMUID:      b.Status.VM.UID,
		BackupName: b.Name,
		TakenAt:    b.Status.Moment.CutEnded,
		Authentic:  "snapshots in this cluster",
		Documents:  &runtime.RawExtension{Raw: in.Documents},
	}
	for _, v := range b.Status.Volumes {
		if v.Outcome == v1alpha1.VolumeIncluded {
			from.Volumes = append(from.Volumes, v.VolumeFacts)
		}
	}
	if err := validate(from); err != nil {
		return giveUp(in, v1alpha1.ReasonBackupDamaged, "backup %q cannot be restored: %v", b.Name, err)
	}
	return found(in, from)
}

func found(in Observed, from *v1alpha1.RestoredFrom) Decision {
	d := working(in, v1alpha1.ReasonResolving, "found backup %q of %s", from.BackupName, from.VM)
	return d.record(func(s *v1alpha1.VMStateRestoreStatus) {
		s.From = from
		s.Summary.VM = targetName(in.Restore, from)
	})
}

// resolveInStore has a Job open the commit.
func resolveInStore(in Observed, commit *v1alpha1.CommitRef) Decision {
	if in.Store == nil {
		return stalled(in, v1alpha1.ReasonStoreNotFound, "there is no VMStateStore %q in namespace %q", storeName(in), in.Restore.Namespace)
	}
	if !meta.IsStatusConditionTrue(in.Store.Status.Conditions, v1alpha1.ConditionReady) {
		why := "it has not been probed"
		if c := meta.FindStatusCondition(in.Store.Status.Conditions, v1alpha1.ConditionReady); c != nil {
			why = c.Message
		}
		return working(in, v1alpha1.ReasonWaitingForStore, "store %q cannot be read: %s", in.Store.Name, why)
	}
	job := in.Resolve
	if job == nil || job.UID == "" {
		spec, err := resolveSpec(in, commit)
		if err != nil {
			return giveUp(in, v1alpha1.ReasonImportFailed, "%v", err)
		}
		return working(in, v1alpha1.ReasonResolving, "looking for the backup in store %q", in.Store.Name).do(action.RunJob{Job: spec})
	}
	switch outcome(job) {
	case v1alpha1.OutcomeFailed:
		reason, message := failureOf(job, v1alpha1.ReasonBackupDamaged)
		return giveUp(in, reason, "%s", message)
	case v1alpha1.OutcomeSucceeded:
		return resolved(in, commit)
	}
	if Waiting(job.Report) {
		return waitForUnlock(in, job)
	}
	if job.Pending != "" {
		return working(in, v1alpha1.ReasonJobPending, "the Job that looks for the backup does not start: %s", job.Pending)
	}
	return working(in, v1alpha1.ReasonResolving, "looking for the backup in store %q", in.Store.Name)
}

func resolved(in Observed, commit *v1alpha1.CommitRef) Decision {
	result := in.Resolve.Report.Status.Resolve
	if result == nil {
		return giveUp(in, v1alpha1.ReasonBackupDamaged, "the report of the Job that looked for the backup says nothing of it")
	}
	from := result.From.DeepCopy()
	if err := asAsked(in, commit, from); err != nil {
		return giveUp(in, v1alpha1.ReasonNotAuthentic, "store %q answered with another backup: %v", in.Store.Name, err)
	}
	if err := validate(from); err != nil {
		return giveUp(in, v1alpha1.ReasonBackupDamaged, "the backup cannot be restored: %v", err)
	}
	return found(in, from)
}

// asAsked compares what was found with what was asked for.
func asAsked(in Observed, commit *v1alpha1.CommitRef, from *v1alpha1.RestoredFrom) error {
	switch {
	case from.Commit == nil:
		return fmt.Errorf("no commit")
	case commit != nil && (from.Commit.Key != commit.Key || from.Commit.Digest != commit.Digest):
		return fmt.Errorf("commit %s with digest %s instead of %s with %s", from.Commit.Key, from.Commit.Digest, commit.Key, commit.Digest)
	case in.Restore.Spec.Source.VM != "" && from.VM != in.Restore.Spec.Source.VM:
		return fmt.Errorf("a backup of %s instead of %s", from.VM, in.Restore.Spec.Source.VM)
	case commit != nil && in.Backup.Status.VM != nil && from.VMUID != in.Backup.Status.VM.UID:
		return fmt.Errorf("a backup of another virtual machine")
	}
	return nil
}

// validVolume is the name of a volume in a virtual machine, or of a claim.
var validVolume = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// validate checks what a report or a backup says before anything is made of it.
func validate(from *v1alpha1.RestoredFrom) error {
	m, err := MachineOf(from)
	if err != nil {
		return err
	}
	if from.VM != m.VM.Namespace+"/"+m.VM.Name || from.VMUID == "" || from.VMUID != m.VM.UID {
		return fmt.Errorf("%w: they are of %s/%s", ErrDocuments, m.VM.Namespace, m.VM.Name)
	}
	var names []string
	states := 0
	for _, v := range from.Volumes {
		if !validVolume.MatchString(v.Name) || slices.Contains(names, v.Name) {
			return fmt.Errorf("%w: volume %q", ErrDocuments, v.Name)
		}
		names = append(names, v.Name)
		switch v.Role {
		case v1alpha1.RoleFirmwareState:
			states++
		case v1alpha1.RoleDisk:
		default:
			return fmt.Errorf("%w: volume %q has role %q", ErrDocuments, v.Name, v.Role)
		}
	}
	if states > 1 || len(names) == states {
		return fmt.Errorf("%w: %d disks and %d volumes with firmware state", ErrDocuments, len(names)-states, states)
	}
	return nil
}

// outcome of a Job; empty while it works. What its report says comes first.
func outcome(j *JobSeen) v1alpha1.ReportOutcome {
	if j.Report != nil && j.Report.Status.Outcome != "" {
		return j.Report.Status.Outcome
	}
	if j.Failed {
		return v1alpha1.OutcomeFailed
	}
	return ""
}

var validReason = regexp.MustCompile(`^[A-Za-z]+$`)

// failureOf says why a Job failed, in words that fit a condition.
func failureOf(j *JobSeen, otherwise string) (reason, message string) {
	reason, message = otherwise, j.Message
	// The last try of a Job that gave up may have said why, without knowing that it was the last.
	if r := j.Report; r != nil && (r.Status.Outcome == v1alpha1.OutcomeFailed || r.Status.Message != "") {
		message = r.Status.Message
		if validReason.MatchString(r.Status.Reason) && len(r.Status.Reason) <= 64 {
			reason = r.Status.Reason
		}
	}
	if message == "" {
		message = "its Job failed and left no message"
	}
	return reason, cut(message, 8000)
}

// storeName is the store that the source lives in.
func storeName(in Observed) string {
	switch {
	case in.Restore.Spec.Source.StoreRef != nil:
		return in.Restore.Spec.Source.StoreRef.Name
	case in.Backup != nil && in.Backup.Spec.StoreRef != nil:
		return in.Backup.Spec.StoreRef.Name
	}
	return ""
}
