package backup

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/document"
	"github.com/vmstate/vmstate/pkg/job"
	moverconfig "github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/queue"
	"github.com/vmstate/vmstate/pkg/store"
)

// export sends the moment to the store and records its commit.
func export(in Observed) Decision {
	if actions := undo(in); len(actions) > 0 {
		return in.act(v1alpha1.ReasonExporting, "waiting until the snapshots can be read", actions...)
	}
	t := in.Export
	switch {
	case t.outcome() == v1alpha1.OutcomeSucceeded:
		return stored(in)
	case t.outcome() == v1alpha1.OutcomeFailed, t.Failed != "":
		return in.failJob(t, v1alpha1.ReasonExportFailed, "the export")
	case t.Exists && !t.Started && !t.NoRoom && in.since(t.Created) >= pendingLimit:
		return in.fail(v1alpha1.ReasonExportFailed, "the export did not start in %s: %s", pendingLimit, t.Pending)
	case t.Exists && stalled(in):
		return in.fail(v1alpha1.ReasonExportFailed, "the export made no progress in %s%s", stallLimit, because(wordsOf(t)))
	case t.Exists:
		return exporting(in)
	}
	if Queued(in.Backup, in.Store) {
		return in.say(v1alpha1.ReasonWaitingForMover, "%s", queue.Place(in.Store, v1alpha1.MoverBackup, in.Backup.UID))
	}
	if d, stop := readable(in, v1alpha1.ReasonExporting); stop {
		return d
	}
	if d, stop := storeUsable(in); stop {
		return d
	}
	if why := distrustMoment(in); why != "" {
		return in.fail(v1alpha1.ReasonWitnessFailed, "%s", why)
	}
	if queue.Waits(in.Store, v1alpha1.MoverBackup, in.Backup.UID) {
		return in.record(v1alpha1.ReasonWaitingForMover, queue.Place(in.Store, v1alpha1.MoverBackup, in.Backup.UID), func(s *v1alpha1.VMStateBackupStatus) {
			at := metav1.NewTime(in.Now)
			s.QueuedAt = &at
		})
	}
	return startExport(in)
}

// Queued says that a backup has asked for a mover of its store, and has not been let in.
func Queued(b *v1alpha1.VMStateBackup, s *v1alpha1.VMStateStore) bool {
	return b.Status.QueuedAt != nil && queue.Waits(s, v1alpha1.MoverBackup, b.UID)
}

// distrustMoment: what the witness captured must still be there, and be what the moment holds.
func distrustMoment(in Observed) string {
	m := in.Backup.Status.Moment
	if !hasState(in.Backup) {
		return ""
	}
	if in.Witness.Report == nil || in.Witness.witness().First == nil {
		return "the report that holds the captured firmware state is gone"
	}
	if in.Witness.witness().StateDigest != m.StateDigest {
		return "the report of the witness was changed after the moment was bound"
	}
	return distrust(in)
}

// readable waits until claims can be made from every snapshot.
func readable(in Observed, reason string) (Decision, bool) {
	m := in.Backup.Status.Moment
	switch {
	case len(in.Cut.Missing) > 0:
		return in.fail(v1alpha1.ReasonSnapshotFailed, "the snapshot of disk %q was removed before it was read", in.Cut.Missing[0]), true
	case in.Cut.Refused() != "":
		return in.fail(v1alpha1.ReasonSnapshotFailed, "%s", in.Cut.Refused()), true
	case in.Cut.Ready && len(in.Cut.Snapshots) == len(disksOf(&in.Backup.Status)):
		return Decision{}, false
	case in.since(m.CutEnded.Time) >= readyLimit:
		return in.fail(v1alpha1.ReasonSnapshotFailed, "the snapshots could not be read in %s%s", readyLimit, because(in.Cut.Trouble)), true
	default:
		return in.say(reason, "waiting until the snapshots can be read%s", because(in.Cut.Trouble)), true
	}
}

// storeUsable: the store may have been changed or removed since the moment was taken.
func storeUsable(in Observed) (Decision, bool) {
	if in.Store == nil {
		return in.fail(v1alpha1.ReasonStoreNotFound, "VMStateStore %q was removed", in.Backup.Spec.StoreRef.Name), true
	}
	if in.Store.Status.KeysSecretName != "" {
		return Decision{}, false
	}
	if in.since(in.Backup.Status.Moment.CutEnded.Time) >= readyLimit {
		return in.fail(v1alpha1.ReasonStoreNotWritable, "store %q did not become writable again in %s", in.Store.Name, readyLimit), true
	}
	return in.say(v1alpha1.ReasonWaitingForStore, "store %q is being probed", in.Store.Name), true
}

// stalled says that an export that began makes no progress: its node is gone, or its store hangs.
func stalled(in Observed) bool {
	e := in.Backup.Status.Export
	if !in.Export.Started || in.Export.NoRoom || progressed(e, in.Export.Report) {
		return false
	}
	return e != nil && e.ProgressedAt != nil && in.since(e.ProgressedAt.Time) >= stallLimit
}

// wordsOf is what is known of a Job that does not get on: what keeps its pod, else how that stands.
func wordsOf(t Task) string {
	if t.Pending != "" {
		return t.Pending
	}
	return t.Standing
}

// progressed compares what is recorded, if anything is, with what is reported now.
func progressed(e *v1alpha1.ExportStatus, r *v1alpha1.VMStateReportStatus) bool {
	return r != nil && r.Progress != nil && (e == nil || r.Progress.DoneBytes != e.ReadBytes || r.Progress.SentBytes != e.SentBytes)
}

// startExport makes the clones and the Job in one go: a class that binds at first use needs
// the pod before it makes the volume.
func startExport(in Observed) Decision {
	actions := make([]action.Action, 0, len(in.Cut.Snapshots)+1)
	for i, v := range disksOf(&in.Backup.Status) {
		actions = append(actions, action.CreateClaim{Claim: clone(in, i, v)})
	}
	actions = append(actions, action.RunJob{Job: exportJob(in)})
	return in.act(v1alpha1.ReasonExporting, "starting the export", actions...)
}

// clone is a claim made from a snapshot. Its size is what the snapshot asks for, or more where
// the claim is bigger: a driver may report less than the volume has, or round up.
func clone(in Observed, i int, v v1alpha1.BackupVolume) *corev1.PersistentVolumeClaim {
	group := "snapshot.storage.k8s.io"
	mode := corev1.PersistentVolumeMode(v.VolumeMode)
	size := max(v.SizeBytes, in.Cut.Snapshots[i].RestoreSizeBytes)
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: CloneName(in.Backup, i)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:  &mode,
			DataSource: &corev1.TypedLocalObjectReference{
				APIGroup: &group, Kind: "VolumeSnapshot", Name: in.Cut.Snapshots[i].SnapshotName,
			},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceStorage: *resource.NewQuantity(size, resource.BinarySI),
			}},
		},
	}
	if v.StorageClassName != "" {
		claim.Spec.StorageClassName = &v.StorageClassName
	}
	return claim
}

func exportJob(in Observed) job.Spec {
	raw, _ := exportConfig(in).Encode() // strings, numbers and JSON alone: it encodes
	mounts := append(store.Mounts(in.Store), job.Mount{Secret: in.Store.Status.KeysSecretName, Path: job.PathRepositoryKeys})
	mounts = append(mounts, job.Mount{ConfigMap: DocumentsName(in.Backup), Path: job.PathSpec})
	mounts = append(mounts, stateMounts(in)...)
	for i, v := range disksOf(&in.Backup.Status) {
		m := job.Mount{Claim: CloneName(in.Backup, i), Path: job.PathVolumes + "/" + v.Name}
		if v.VolumeMode == string(corev1.PersistentVolumeBlock) {
			m.Path, m.Block = job.PathDevices+"/"+v.Name, true
		}
		mounts = append(mounts, m)
	}
	return job.Spec{
		Name: ExportName(in.Backup), Task: v1alpha1.TaskExport, Config: raw, Mounts: mounts,
		OwnVolumes: true, Retries: 6, Audiences: audiences(in),
		Store: in.Store.Name, Slot: queue.SlotOf(in.Store, v1alpha1.MoverBackup, in.Backup.UID),
	}
}

// stateMounts are the witness's Secrets, in their order.
func stateMounts(in Observed) []job.Mount {
	if !hasState(in.Backup) {
		return nil
	}
	var out []job.Mount
	for i, name := range in.Witness.witness().SecretNames {
		out = append(out, job.Mount{Secret: name, Path: job.PathState + "/" + strconv.Itoa(i)})
	}
	return out
}

func exportConfig(in Observed) moverconfig.Config {
	b, s := in.Backup, &in.Backup.Status
	moment, _ := json.Marshal(s.Moment) // a struct of strings, numbers and times: it encodes
	e := &moverconfig.Export{
		VM:         moverconfig.VM{Namespace: b.Namespace, Name: b.Spec.VMName, UID: string(s.VM.UID)},
		BackupName: b.Name, BackupUID: string(b.UID), Created: s.Moment.CutEnded.Time,
		Recipients: in.Store.Spec.Recipients, Moment: moment,
	}
	if in.Parent != nil {
		e.Parent = &moverconfig.Commit{Key: in.Parent.Key, Digest: in.Parent.Digest}
		e.Damaged = damaged(in)
	}
	for i, v := range disksOf(s) {
		d := moverconfig.Disk{Name: v.Name, Mode: moverconfig.Mode(v.VolumeMode), SizeBytes: v.SizeBytes}
		d.Tracking, d.ReadAll = tracking(in, i, v)
		e.Disks = append(e.Disks, d)
	}
	for _, v := range includedOf(s, v1alpha1.RoleFirmwareState) {
		e.State = &moverconfig.State{VolumeName: v.Name, Digest: s.Moment.StateDigest}
	}
	return moverconfig.Config{Store: store.Config(in.Store), Export: e}
}

// damaged are the objects that the verification found damaged and that the parent may reach: those
// of the same virtual machine. Others' would only fill the Job's environment.
func damaged(in Observed) []string {
	v := in.Store.Status.Verification
	if v == nil {
		return nil
	}
	var out []string
	for _, f := range v.Damaged {
		if chain := chainOf(f.Key); chain != "" && chain == chainOf(in.Parent.Key) {
			out = append(out, f.Key)
		}
	}
	return out
}

// chainOf is the folder of a virtual machine that an object of a store lies in, behind the one of
// its kind; "" for an object of no virtual machine.
func chainOf(key string) string {
	parts := strings.SplitN(key, "/", 3)
	if len(parts) < 3 {
		return ""
	}
	return parts[1]
}

// exporting records how far the Job is.
func exporting(in Observed) Decision {
	d := waitForJob(in, in.Export, v1alpha1.ReasonExporting,
		fmt.Sprintf("sending %s of %s", plural(includedCount(&in.Backup.Status), "volume"), in.Backup.Status.Summary.Size))
	d.Status.QueuedAt = nil
	r, old := in.Export.Report, in.Backup.Status.Export
	// That it began counts as progress: how long its pod waited before is no stall.
	at := metav1.NewTime(in.Now)
	if begun := in.Export.Started && old == nil; begun || progressed(old, r) {
		d.Status.Export = &v1alpha1.ExportStatus{Parent: in.Parent, ProgressedAt: &at}
		if r != nil && r.Progress != nil {
			d.Status.Export.TotalBytes, d.Status.Export.ReadBytes, d.Status.Export.SentBytes = r.Progress.TotalBytes, r.Progress.DoneBytes, r.Progress.SentBytes
		}
		if old != nil {
			d.Status.Export.Parent = old.Parent // what the Job was told, whatever is newer by now
		}
	} else if waits := in.Export.NoRoom && old != nil && old.ProgressedAt != nil; waits && in.since(old.ProgressedAt.Time) >= stallLimit/2 {
		d.Status.Export.ProgressedAt = &at // nor is waiting for room after a drain
	}
	return d
}

// stored checks what the export reports, and records its commit.
func stored(in Observed) Decision {
	e := in.Export.Report.Export
	if why := incomplete(in, e); why != "" {
		return in.fail(v1alpha1.ReasonExportFailed, "%s", why)
	}
	d := in.record(v1alpha1.ReasonStored, "", func(s *v1alpha1.VMStateBackupStatus) {
		s.QueuedAt = nil
		commit := e.Commit
		total := totalBytes(s)
		s.Export = &v1alpha1.ExportStatus{
			TotalBytes: total, ReadBytes: e.ReadBytes, SentBytes: e.SentBytes, Commit: &commit,
		}
		if old := in.Backup.Status.Export; old != nil {
			s.Export.Parent = old.Parent
		}
		recordReadings(in, e, s.Export)
		s.Summary.Sent = bytesText(e.SentBytes)
		at := metav1.NewTime(in.Now)
		s.CompletedAt = &at
	})
	return saying(in, d)
}

// saying takes state, reason and message from the outcome that was just recorded.
func saying(in Observed, d Decision) Decision {
	b := in.Backup.DeepCopy()
	b.Status = d.Status
	o := outcome(Observed{Now: in.Now, Backup: b})
	d.State, d.Reason, d.Message = o.State, o.Reason, o.Message
	return d
}

// incomplete compares an export with what was asked for: all volumes, the documents, and the
// state that the witness saw.
func incomplete(in Observed, e *v1alpha1.ExportResult) string {
	s := &in.Backup.Status
	if e == nil || e.Commit.Key == "" || !isDigest(e.Commit.Digest) {
		return "the export ended without naming its commit"
	}
	for _, v := range s.Volumes {
		has := slices.ContainsFunc(e.Volumes, func(x v1alpha1.ExportedVolume) bool { return x.Name == v.Name && x.Role == v.Role })
		if v.Outcome == v1alpha1.VolumeIncluded && !has {
			return fmt.Sprintf("the export does not hold volume %q", v.Name)
		}
	}
	if !slices.ContainsFunc(e.Volumes, func(x v1alpha1.ExportedVolume) bool { return x.Name == document.VolumeName }) {
		return "the export does not hold the documents of the VM"
	}
	if len(e.Volumes) != includedCount(s)+1 {
		return fmt.Sprintf("the export holds %d volumes instead of %d", len(e.Volumes), includedCount(s)+1)
	}
	if e.StateDigest != s.Moment.StateDigest {
		return "the exported firmware state is not the one of the moment"
	}
	return ""
}
