package backup

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/conditions"
)

// adopt waits until the store's catalogue has told what the record at spec.commit says.
func adopt(in Observed) Decision {
	ref := in.Backup.Spec.StoreRef
	if ref == nil || in.Store == nil {
		return in.say(v1alpha1.ReasonStoreNotFound, "there is no VMStateStore %q in this namespace; it can be created now", nameOf(ref))
	}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionCatalogued} {
		c := meta.FindStatusCondition(in.Store.Status.Conditions, kind)
		if c != nil && c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonCatalogueIncomplete {
			return in.say(v1alpha1.ReasonWaitingForStore, "store %q: %s: %s", ref.Name, c.Reason, c.Message)
		}
	}
	return in.say(v1alpha1.ReasonAdopting, "looking for the backup in store %q", ref.Name)
}

func nameOf(ref *v1alpha1.ObjectRef) string {
	if ref == nil {
		return ""
	}
	return ref.Name
}

// Adopt fills the status of a backup from its record in its store.
func Adopt(b *v1alpha1.VMStateBackup, e *v1alpha1.CatalogueEntry, now metav1.Time) {
	s := &b.Status
	commit := e.Commit
	s.VM = &v1alpha1.CapturedVM{UID: e.VMUID}
	s.Moment = e.Moment
	s.Origin = &v1alpha1.BackupOrigin{
		VM: e.VMNamespace + "/" + e.VMName, Backup: e.BackupNamespace + "/" + e.BackupName, TakenAt: e.TakenAt,
	}
	for _, v := range e.Volumes {
		s.Volumes = append(s.Volumes, v1alpha1.BackupVolume{VolumeFacts: v, Outcome: v1alpha1.VolumeIncluded})
		if v.Role == v1alpha1.RoleFirmwareState {
			s.VM.StateClaimName = v.Name
		}
	}
	s.Export = &v1alpha1.ExportStatus{Commit: &commit, TotalBytes: totalBytes(s), SentBytes: e.StoredBytes}
	s.Summary = v1alpha1.BackupSummary{Size: bytesText(totalBytes(s)), Sent: bytesText(e.StoredBytes)}
	if e.Moment != nil {
		s.Summary.Moment = fmt.Sprintf("%s+%s", e.Moment.Disks, e.Moment.State)
	}
	s.CompletedAt = &now
	conclude(b, now)
}

// Refuse ends a backup whose record is not in its store.
func Refuse(b *v1alpha1.VMStateBackup, why v1alpha1.Failure, now metav1.Time) {
	b.Status.Failure, b.Status.CompletedAt = &why, &now
	conclude(b, now)
}

// conclude says what the next pass would say: nobody has to wait for it.
func conclude(b *v1alpha1.VMStateBackup, now metav1.Time) {
	d := settled(Observed{Now: now.Time, Backup: b})
	b.Status.ObservedGeneration = b.Generation
	conditions.Write(conditions.Target{List: &b.Status.Conditions, Generation: b.Generation, Now: now}, d.State, d.Reason, d.Message)
}
