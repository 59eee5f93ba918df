package restore

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
	"github.com/vmstate/vmstate/pkg/document"
	"github.com/vmstate/vmstate/test/build"
)

func byBackup(b *v1alpha1.VMStateBackup) option {
	return func(_ *testing.T, s *story) {
		s.in.Restore.Spec.Source = v1alpha1.RestoreSource{BackupRef: &v1alpha1.ObjectRef{Name: "nightly"}}
		s.in.Backup = b
	}
}

func exported(ready bool, reason string) *v1alpha1.VMStateBackup {
	b := build.Backup("nightly", "db")
	status := metav1.ConditionFalse
	if ready {
		status = metav1.ConditionTrue
		b.Status.Export = &v1alpha1.ExportStatus{Commit: &v1alpha1.CommitRef{Key: "v/x/c/1", Digest: "aa", Sequence: 1}}
	}
	meta.SetStatusCondition(&b.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: "so it is"})
	b.Status.VM = &v1alpha1.CapturedVM{UID: "vm-db"}
	return b
}

// foundBy is a resolving Job that found a backup, changed.
func foundBy(t *testing.T, change func(*v1alpha1.RestoredFrom)) option {
	t.Helper()
	in := seen(t, resolvedFrom)
	f := in.Restore.Status.From
	change(f)
	return reported(v1alpha1.TaskResolve, v1alpha1.VMStateReportStatus{
		Outcome: v1alpha1.OutcomeSucceeded, Resolve: &v1alpha1.ResolveResult{From: *f},
	})
}

func TestPlanResolve(t *testing.T) {
	good := foundBy(t, func(*v1alpha1.RestoredFrom) {})
	testPlan(t, map[string]planCase{
		"NoStore": {
			reason: "objects may be applied in any order: the store can still come",
			story:  []option{func(_ *testing.T, s *story) { s.in.Store = nil }},
			want: want{state: conditions.Stalled, reason: v1alpha1.ReasonStoreNotFound, after: patience,
				message: `there is no VMStateStore "main" in namespace "prod"`},
		},
		"StoreNotReady": {
			reason: "a store that is being probed is waited for",
			story:  []option{func(_ *testing.T, s *story) { s.in.Store.Status.Conditions = nil }},
			want:   want{reason: v1alpha1.ReasonWaitingForStore, after: patience, message: `store "main" cannot be read: it has not been probed`},
		},
		"BackupRunning": {
			reason: "a backup that is under way is waited for",
			story:  []option{byBackup(exported(false, v1alpha1.ReasonExporting))},
			want:   want{reason: v1alpha1.ReasonBackupNotReady, after: patience, message: `waiting for backup "nightly": so it is`},
		},
		"NoBackup": {
			reason: "a backup that does not exist can still come",
			story:  []option{byBackup(nil)},
			want: want{state: conditions.Stalled, reason: v1alpha1.ReasonBackupNotFound, after: patience,
				message: `there is no VMStateBackup "nightly" in namespace "prod"`},
		},
		"WrongIdentity": {
			reason: "the mover knows which recipients would open it",
			story: []option{reported(v1alpha1.TaskResolve, v1alpha1.VMStateReportStatus{
				Outcome: v1alpha1.OutcomeFailed, Reason: v1alpha1.ReasonWrongIdentity, Message: "age1pq1abc would open it",
			})},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonWrongIdentity, after: soon, message: "age1pq1abc would open it",
				record: failure(v1alpha1.ReasonWrongIdentity, "age1pq1abc would open it")},
		},
		"JobDied": {
			reason: "a Job that left no report still ends the restore with a reason",
			story: []option{reported(v1alpha1.TaskResolve, v1alpha1.VMStateReportStatus{}), func(_ *testing.T, s *story) {
				s.in.Resolve.Failed, s.in.Resolve.Message = true, "OOMKilled"
			}},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonBackupDamaged, after: soon, message: "OOMKilled",
				record: failure(v1alpha1.ReasonBackupDamaged, "OOMKilled")},
		},
		"Found": {
			reason: "what was found is recorded once, and used from there",
			story:  []option{good},
			want: want{reason: v1alpha1.ReasonResolving, message: `found backup "nightly" of prod/db`, after: soon,
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					s.From = from()
					s.From.Documents = &runtime.RawExtension{Raw: documents(t)}
				}},
		},
		"AnotherVM": {
			reason: "a report is not believed where it answers another question",
			story:  []option{foundBy(t, func(f *v1alpha1.RestoredFrom) { f.VM = "prod/web" })},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonNotAuthentic, after: soon,
				message: `store "main" answered with another backup: a backup of prod/web instead of prod/db`,
				record:  failure(v1alpha1.ReasonNotAuthentic, `store "main" answered with another backup: a backup of prod/web instead of prod/db`)},
		},
		"AnotherCommit": {
			reason: "key and digest together name a backup: a swapped record is not it",
			story:  []option{byBackup(exported(true, v1alpha1.ReasonStored)), foundBy(t, func(f *v1alpha1.RestoredFrom) { f.Commit.Digest = "bb" })},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonNotAuthentic, after: soon,
				message: `store "main" answered with another backup: commit v/x/c/1 with digest bb instead of v/x/c/1 with aa`,
				record:  failure(v1alpha1.ReasonNotAuthentic, `store "main" answered with another backup: commit v/x/c/1 with digest bb instead of v/x/c/1 with aa`)},
		},
		"BadVolumeName": {
			reason: "names from a report become names of claims and paths in a pod",
			story:  []option{foundBy(t, func(f *v1alpha1.RestoredFrom) { f.Volumes[0].Name = "../root" })},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonBackupDamaged, after: soon,
				message: `the backup cannot be restored: documents of the backup are unusable: volume "../root"`,
				record:  failure(v1alpha1.ReasonBackupDamaged, `the backup cannot be restored: documents of the backup are unusable: volume "../root"`)},
		},
	})
}

func documents(t *testing.T) []byte {
	t.Helper()
	return seen(t, resolvedFrom).Restore.Status.From.Documents.Raw
}

func TestPlanFill(t *testing.T) {
	importJobOf := func(t *testing.T, options ...option) action.RunJob {
		spec, err := importSpec(seen(t, options...))
		if err != nil {
			t.Fatal(err)
		}
		return action.RunJob{Job: spec}
	}
	claims := plannedClaims(seen(t, planned))
	filledBy := func(names ...string) option {
		var volumes []v1alpha1.ImportedVolume
		for _, n := range names {
			volumes = append(volumes, v1alpha1.ImportedVolume{Name: n})
		}
		return reported(v1alpha1.TaskImport, v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeSucceeded, Import: &v1alpha1.ImportResult{Volumes: volumes}})
	}
	testPlan(t, map[string]planCase{
		"NoClaims": {
			reason: "the claims are made, named by the restore's UID",
			story:  []option{planned},
			want: want{reason: v1alpha1.ReasonFilling, message: "making 2 claims", after: step,
				actions: []action.Action{action.CreateClaim{Claim: claims[0]}, action.CreateClaim{Claim: claims[1]}}},
		},
		"NoRevision": {
			reason: "the instancetype comes back as it was, whatever this cluster has under its name",
			story:  []option{made, typed, func(_ *testing.T, s *story) { s.in.Revisions = nil }},
			want: want{reason: v1alpha1.ReasonFilling, message: "making 2 claims", after: step,
				actions: []action.Action{action.CreateRevision{Revision: &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
					Name: "db-instancetype-n4cd4", Namespace: "prod", Labels: map[string]string{v1alpha1.LabelOwnerUID: string(restoreUID)},
				}}}}},
		},
		"OneClaimMissing": {
			reason: "a crash between two creates must not lose a volume",
			story:  []option{made, func(_ *testing.T, s *story) { delete(s.in.Claims, newRoot) }},
			want: want{reason: v1alpha1.ReasonFilling, message: "making 2 claims", after: step,
				actions: []action.Action{action.CreateClaim{Claim: claims[0]}}},
		},
		"Made": {
			reason: "which claims they are is recorded before anything is written to them",
			story:  []option{made},
			want: want{reason: v1alpha1.ReasonFilling, message: "made 2 claims", after: soon,
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					s.Volumes[0].ClaimUID, s.Volumes[1].ClaimUID = "claim-"+newRoot, "claim-"+newState
				}},
		},
		"Known": {
			reason: "one Job fills them all",
			story:  []option{known},
			want: want{reason: v1alpha1.ReasonFilling, message: "filling 2 volumes", after: step,
				actions: []action.Action{importJobOf(t, known)}},
		},
		"Progress": {
			reason: "a person watches it",
			story: []option{known, reported(v1alpha1.TaskImport, v1alpha1.VMStateReportStatus{
				Progress: &v1alpha1.ReportProgress{TotalBytes: 200, DoneBytes: 84},
			})},
			want: want{reason: v1alpha1.ReasonFilling, message: "filling 2 volumes", after: patience,
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					s.Summary.Progress = "42 %"
					s.Filling = &v1alpha1.FillProgress{DoneBytes: 84, TotalBytes: 200, ProgressedAt: metav1.NewTime(now)}
				}},
		},
		"Began": {
			reason: "the time without progress counts from the start of the pod, not from that of its wait for a node",
			story:  []option{known, reported(v1alpha1.TaskImport, v1alpha1.VMStateReportStatus{PodUID: "p"})},
			want: want{reason: v1alpha1.ReasonFilling, message: "filling 2 volumes", after: patience,
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					s.Filling = &v1alpha1.FillProgress{ProgressedAt: metav1.NewTime(now)}
				}},
		},
		"Quiet": {
			reason: "a store may be slow for a while",
			story:  []option{known, importing(84), since(84, stallLimit-time.Second)},
			want:   want{reason: v1alpha1.ReasonFilling, message: "filling 2 volumes", after: patience},
		},
		"Stalled": {
			reason: "no progress for long is said with its pod's words; what was filled is not thrown away",
			story:  []option{known, importing(84), since(84, stallLimit)},
			want: want{state: conditions.Stalled, reason: v1alpha1.ReasonImportStalled, after: patience,
				message: `the Job "` + importJob(restoreUID) + `" that fills the volumes has made no progress for 30m0s (84 of 200 bytes): pod "p" is Running on node "n"; it said: dial tcp: timeout; ` +
					`it goes on by itself once it can; delete its pod to have it tried again, or the restore to give it up; the virtual machine is untouched`},
		},
		"GoesOn": {
			reason: "a stall ends when there is progress, however long all of it takes",
			story:  []option{known, importing(85), since(84, 72*time.Hour)},
			want: want{reason: v1alpha1.ReasonFilling, message: "filling 2 volumes", after: patience,
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					s.Summary.Progress = "42 %"
					s.Filling = &v1alpha1.FillProgress{DoneBytes: 85, TotalBytes: 200, ProgressedAt: metav1.NewTime(now)}
				}},
		},
		"HalfReported": {
			reason: "a report that does not speak of the firmware state fills no machine",
			story:  []option{known, filledBy("root")},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonImportFailed, after: soon,
				message: `the Job that fills the volumes says nothing of volume "` + sourceState + `"; nothing was replaced`,
				record:  failure(v1alpha1.ReasonImportFailed, `the Job that fills the volumes says nothing of volume "`+sourceState+`"; nothing was replaced`)},
		},
		"Filled": {
			reason: "every volume was read back",
			story:  []option{known, filledBy("root", sourceState)},
			want: want{reason: v1alpha1.ReasonFilling, message: "filled and read back 2 volumes", after: soon,
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					s.Summary.Progress = "100 %"
					s.Volumes[0].Verified, s.Volumes[1].Verified = true, true
				}},
		},
		"SnapshotsGone": {
			reason: "without its backup a claim would be made blank",
			story:  []option{planned, local, noBackup},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonBackupNotFound, after: soon,
				message: goneMessage, record: failure(v1alpha1.ReasonBackupNotFound, goneMessage)},
		},
		"BackupMadeAgain": {
			reason: "another backup of that name has another moment's state",
			story: []option{planned, local, func(_ *testing.T, s *story) {
				s.in.Backup.Status.Moment.CutEnded = metav1.NewMicroTime(now)
			}},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonBackupNotFound, after: soon, message: goneMessage,
				record: failure(v1alpha1.ReasonBackupNotFound, goneMessage)},
		},
		"SnapshotsAlone": {
			reason: "without firmware state a pod still mounts the claims: that shows that they were made",
			story:  []option{local, known, local, stateless},
			want: want{reason: v1alpha1.ReasonFilling, message: "filling 1 volumes", after: step,
				actions: []action.Action{importJobOf(t, local, known, local, stateless)}},
		},
		"PodStillThere": {
			reason: "a pod that has not ended can still write to what is about to be a disk",
			story:  []option{known, filledBy("root", sourceState), func(_ *testing.T, s *story) { s.in.Import.Active = true }},
			want:   want{reason: v1alpha1.ReasonFilling, message: "waiting until the pod that filled the volumes has ended", after: patience},
		},
		"ClaimReplaced": {
			reason: "a claim that was deleted and made again is empty",
			story:  []option{known, func(_ *testing.T, s *story) { s.in.Claims[newRoot].UID = "another" }},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonImportFailed, after: soon,
				message: `claim "` + newRoot + `" of volume "root" was deleted and made again by somebody; nothing was replaced`,
				record:  failure(v1alpha1.ReasonImportFailed, `claim "`+newRoot+`" of volume "root" was deleted and made again by somebody; nothing was replaced`)},
		},
		"Pending": {
			reason: "a Job that does not start is diagnosed",
			story: []option{known, reported(v1alpha1.TaskImport, v1alpha1.VMStateReportStatus{}), func(_ *testing.T, s *story) {
				s.in.Import.Pending = "0/1 nodes are available"
			}},
			want: want{reason: v1alpha1.ReasonJobPending, after: patience,
				message: "the Job that fills the volumes does not start: 0/1 nodes are available"},
		},
		"Deleted": {
			reason: "a restore that is deleted before the switch changes nothing",
			story:  []option{known, func(_ *testing.T, s *story) { s.in.Restore.DeletionTimestamp = &metav1.Time{Time: now} }},
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, after: soon,
				message: "the restore was deleted before it was done; nothing was replaced",
				record:  failure(v1alpha1.ReasonSwitchFailed, "the restore was deleted before it was done; nothing was replaced")},
		},
	})
}

func noBackup(_ *testing.T, s *story) { s.in.Backup = nil }

// stateless: the machine keeps no firmware state.
func stateless(_ *testing.T, s *story) {
	s.docs.Identity.PersistentTPM, s.docs.Identity.PersistentEFI = false, false
	s.in.Restore.Status.From.Commit = nil
	s.in.Restore.Status.From.Volumes = s.in.Restore.Status.From.Volumes[:1]
	s.in.Restore.Status.Volumes = s.in.Restore.Status.Volumes[:1]
}

const goneMessage = `backup "nightly" was deleted, or made again, before its volumes were restored; nothing was replaced`

// TestImportTold shows what the Jobs are told and see, for a store and for snapshots.
func TestImportTold(t *testing.T) {
	for name, options := range map[string][]option{
		"store": {known, func(_ *testing.T, s *story) {
			s.in.Restore.Spec.Target.VMName = "db2"
			mode := corev1.PersistentVolumeBlock
			s.in.Restore.Status.From.Volumes[0].VolumeMode = string(mode)
		}},
		"local": {local},
	} {
		t.Run(name, func(t *testing.T) {
			spec, err := importSpec(seen(t, options...))
			if err != nil {
				t.Fatal(err)
			}
			text := string(spec.Config) + "\n"
			for _, m := range spec.Mounts {
				text += m.Secret + m.ConfigMap + m.Claim + " " + m.Path + "\n"
			}
			golden(t, "import-"+name+".txt", []byte(text), "what the import Job is told")
		})
	}
}

// TestDocuments: a machine that cannot be read is an error, never an empty machine.
func TestDocuments(t *testing.T) {
	for name, raw := range map[string]string{
		"none": "", "empty": "{}", "later": `{"version":9}`, "cut": `{"version":1,"vm":{"metadata"`,
		"bare": `{"version":1,"vm":{"metadata":{"name":"db"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := from()
			f.Documents = &runtime.RawExtension{Raw: []byte(raw)}
			if _, err := MachineOf(f); err == nil {
				t.Errorf("MachineOf(%s) gave no error", raw)
			}
		})
	}
	in := seen(t, resolvedFrom)
	if diff := cmp.Diff(document.Version, in.Machine.Version); diff != "" {
		t.Error(diff)
	}
}

// importing: the Job is at work and has done so many bytes of 200.
func importing(done int64) option {
	return func(t *testing.T, s *story) {
		reported(v1alpha1.TaskImport, v1alpha1.VMStateReportStatus{
			PodUID: "p", Message: "dial tcp: timeout", Progress: &v1alpha1.ReportProgress{TotalBytes: 200, DoneBytes: done},
		})(t, s)
		s.in.Import.Standing = `pod "p" is Running on node "n"`
	}
}

// since: so many bytes were seen last that long ago.
func since(done int64, ago time.Duration) option {
	return func(_ *testing.T, s *story) {
		s.in.Restore.Status.Filling = &v1alpha1.FillProgress{DoneBytes: done, TotalBytes: 200, ProgressedAt: metav1.NewTime(now.Add(-ago))}
	}
}
