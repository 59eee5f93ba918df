package backup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/test/build"
)

func TestPlanExport(t *testing.T) {
	done := func(in *Observed) {
		in.Export = Task{Exists: true, Started: true, Created: noon, Report: &v1alpha1.VMStateReportStatus{
			Outcome: v1alpha1.OutcomeSucceeded,
			Export: &v1alpha1.ExportResult{
				Commit: v1alpha1.CommitRef{Key: "v/x/c/7", Digest: one, Sequence: 7}, StateDigest: five, SentBytes: 3 << 20, ReadBytes: 1 << 30,
				Volumes: []v1alpha1.ExportedVolume{
					{Name: "root", Role: v1alpha1.RoleDisk}, {Name: stateClaimOfDB, Role: v1alpha1.RoleFirmwareState}, {Name: "vmstate.spec", Role: v1alpha1.RoleSpec},
				},
			},
		}}
	}
	runPlan(t, map[string]planCase{
		"MarksFirst": {
			reason: "what we put on the VM goes before hours of export",
			in: at(momentOf, func(in *Observed) {
				in.Locked, in.Members = true, []ClaimRef{{Name: "root-db", UID: "claim-root-db"}}
			}),
			want: does(v1alpha1.ReasonExporting, "waiting until the snapshots can be read",
				action.UnlockVM{VM: "db", UID: "vm-db", Holder: "vmstate-u1"},
				action.UnlabelClaim{Claim: "root-db", UID: "claim-root-db", Member: "u1-1"}),
		},
		"NotReadable": {
			in:   at(momentOf, func(in *Observed) { in.Cut.Cut = true }),
			want: says(v1alpha1.ReasonExporting, "waiting until the snapshots can be read"),
		},
		"SnapshotGone": seenAs(fails(v1alpha1.ReasonSnapshotFailed, `the snapshot of disk "root" was removed before it was read`),
			"", at(momentOf, func(in *Observed) { in.Cut.Missing = []string{"root"} })),
		"CapturedStateGone": seenAs(fails(v1alpha1.ReasonWitnessFailed, "the report that holds the captured firmware state is gone"), "", at(momentOf, cutOf)),
		"CapturedStateChanged": seenAs(fails(v1alpha1.ReasonWitnessFailed, "the report of the witness was changed after the moment was bound"), "",
			at(momentOf, cutOf, reads(one), func(in *Observed) { in.Witness.Report.Witness.StateDigest = two })),
		"Pending": {
			in:   at(momentOf, func(in *Observed) { in.Export = Task{Exists: true, Created: noon, Pending: "secret not found"} }),
			want: says(v1alpha1.ReasonJobPending, "secret not found"),
		},
		"Progress": {
			in: at(momentOf, func(in *Observed) {
				in.Parent = &v1alpha1.CommitRef{Key: "p", Sequence: 6}
				in.Export = Task{Exists: true, Started: true, Report: &v1alpha1.VMStateReportStatus{
					Progress: &v1alpha1.ReportProgress{TotalBytes: 2 << 30, DoneBytes: 1 << 30, SentBytes: 1 << 20},
				}}
			}),
			want: says(v1alpha1.ReasonExporting, "sending 2 volumes of 2.0 GiB"),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				at := metav1.NewTime(noon)
				s.Export = &v1alpha1.ExportStatus{
					TotalBytes: 2 << 30, ReadBytes: 1 << 30, SentBytes: 1 << 20, Parent: &v1alpha1.CommitRef{Key: "p", Sequence: 6}, ProgressedAt: &at,
				}
			},
		},
		"Stalled": seenAs(fails(v1alpha1.ReasonExportFailed, "the export made no progress in 30m0s: node is gone"), "no fixed time-out: only a lack of progress is a stall",
			at(momentOf, clock(stallLimit), func(in *Observed) {
				at := metav1.NewTime(noon)
				in.Backup.Status.Export = &v1alpha1.ExportStatus{ReadBytes: 7, ProgressedAt: &at}
				in.Export = Task{Exists: true, Started: true, Created: noon, Pending: "node is gone", Report: &v1alpha1.VMStateReportStatus{
					Progress: &v1alpha1.ReportProgress{DoneBytes: 7},
				}}
			})),
		"StalledPod": seenAs(fails(v1alpha1.ReasonExportFailed, `the export made no progress in 30m0s: pod "p" is Running on node "n"`), "a pod that runs and does nothing is named",
			at(momentOf, clock(stallLimit), func(in *Observed) {
				at := metav1.NewTime(noon)
				in.Backup.Status.Export = &v1alpha1.ExportStatus{ProgressedAt: &at}
				in.Export = Task{Exists: true, Started: true, Created: noon, Standing: `pod "p" is Running on node "n"`}
			})),
		"StartedLate": {
			reason: "the wait for a node is no lack of progress: the time counts from the start",
			in: at(momentOf, clock(stallLimit+time.Minute), func(in *Observed) {
				in.Export = Task{Exists: true, Started: true, Created: noon}
			}),
			want: says(v1alpha1.ReasonExporting, "sending 2 volumes of 2.0 GiB"),
			status: func(s *v1alpha1.VMStateBackupStatus) {
				at := metav1.NewTime(noon.Add(stallLimit + time.Minute))
				s.Export = &v1alpha1.ExportStatus{ProgressedAt: &at}
			},
		},
		"FailedByRetries": seenAs(fails(v1alpha1.ReasonUnreachable, "the export failed: no route"), "its own words, where it left any",
			at(momentOf, func(in *Observed) {
				in.Export = Task{Exists: true, Failed: "BackoffLimitExceeded", Report: &v1alpha1.VMStateReportStatus{Reason: v1alpha1.ReasonUnreachable, Message: "no route"}}
			})),
		"Failed": seenAs(fails(v1alpha1.ReasonStoreFull, "the export failed: no room"), "the bucket filled up in the middle",
			at(momentOf, func(in *Observed) {
				in.Export = Task{Exists: true, Report: &v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeFailed, Reason: v1alpha1.ReasonStoreFull, Message: "no room"}}
			})),
		"VolumeMissing": seenAs(fails(v1alpha1.ReasonExportFailed, `the export does not hold volume "root"`), "never Ready in part",
			at(momentOf, done, func(in *Observed) {
				in.Export.Report.Export.Volumes = in.Export.Report.Export.Volumes[1:]
			})),
		"OtherState": seenAs(fails(v1alpha1.ReasonExportFailed, "the exported firmware state is not the one of the moment"), "",
			at(momentOf, done, func(in *Observed) { in.Export.Report.Export.StateDigest = two })),
		"Stored": {
			reason: "every volume is there",
			in:     at(momentOf, done),
			want:   Decision{State: conditions.Tidying, Reason: v1alpha1.ReasonStored, Message: "2 volumes of 2.0 GiB stored as commit 7"},
			status: func(s *v1alpha1.VMStateBackupStatus) {
				at := metav1.NewTime(noon)
				s.Export = &v1alpha1.ExportStatus{
					TotalBytes: 2 << 30, ReadBytes: 1 << 30, SentBytes: 3 << 20, Commit: &v1alpha1.CommitRef{Key: "v/x/c/7", Digest: one, Sequence: 7},
				}
				s.Summary.Sent, s.CompletedAt = "3.0 MiB", &at
			},
		},
	})
}

// TestPlanStartsExport looks at what the Job is told and sees.
func TestPlanStartsExport(t *testing.T) {
	in := at(momentOf, cutOf, reads(one), func(in *Observed) { in.Parent = &v1alpha1.CommitRef{Key: "p", Digest: two, Sequence: 6} })
	group, class, mode := "snapshot.storage.k8s.io", build.Class, corev1.PersistentVolumeFilesystem
	want := []action.Action{
		action.CreateClaim{Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: "vmstate-u1-disk-0"},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: &mode, StorageClassName: &class,
				DataSource: &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: "vmstate-u1-snap-1-0"},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceStorage: *resource.NewQuantity(2<<30, resource.BinarySI), // the snapshot's, which is more than the claim's
				}},
			},
		}},
		action.RunJob{Job: job.Spec{
			Name: "vmstate-u1-export", Task: v1alpha1.TaskExport, OwnVolumes: true, Retries: 6, Store: "main",
			Config: []byte(`{"store":{"endpoint":"https://s3.example.com","bucket":"vm-backups","region":"us-east-1","addressing":"Path","checksum":"CRC32C"},` +
				`"export":{"vm":{"namespace":"prod","name":"db","uid":"vm-db"},"backupName":"nightly","backupUID":"u1","created":"2026-11-30T12:00:01Z",` +
				`"parent":{"key":"p","digest":"` + two + `"},"recipients":["age1pq1first","age1pq1second"],"disks":[{"name":"root","mode":"Filesystem","sizeBytes":1073741824}],` +
				`"state":{"volumeName":"` + stateClaimOfDB + `","digest":"` + five + `"},` +
				`"moment":{"disks":"SingleDisk","state":"Witness","quiesce":"NoAgent","quiesceMessage":"no guest agent was connected",` +
				`"cutStarted":"2026-11-30T12:00:00.000000Z","cutEnded":"2026-11-30T12:00:01.000000Z","windowMilliseconds":1300,"stateDigest":"` + five + `","attempts":1}}}`),
			Mounts: []job.Mount{
				{Secret: "s3-write", Path: "/credentials", Optional: true},
				{Secret: "main-repository-keys", Path: "/repository-keys"},
				{ConfigMap: "vmstate-u1-spec", Path: "/spec"},
				{Secret: "vmstate-u1-witness-1-0", Path: "/state/0"},
				{Claim: "vmstate-u1-disk-0", Path: "/volumes/root"},
			},
		}},
	}
	if diff := cmp.Diff(want, Plan(in).Actions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestExportDamaged: what the verification of the store found damaged is sent again by the machine
// that it belongs to.
func TestExportDamaged(t *testing.T) {
	const mine, others = "r/0aaa/1/p1-000001", "r/0bbb/1/p1-000001"
	parent := &v1alpha1.CommitRef{Key: "c/0aaa/0000000006-1", Digest: two, Sequence: 6}
	found := func(keys ...string) *v1alpha1.VerificationStatus {
		v := &v1alpha1.VerificationStatus{}
		for _, key := range keys {
			v.Damaged = append(v.Damaged, v1alpha1.CatalogueFault{Key: key, Message: "is gone"})
		}
		return v
	}
	tests := map[string]struct {
		reason string
		parent *v1alpha1.CommitRef
		found  *v1alpha1.VerificationStatus
		want   []string
	}{
		"NeverVerified": {parent: parent},
		"Whole":         {parent: parent, found: found()},
		"Damaged":       {parent: parent, found: found(mine, "r/0aaa/1/k1.age"), want: []string{mine, "r/0aaa/1/k1.age"}},
		"Others":        {reason: "no parent reaches another machine's objects", parent: parent, found: found(others, mine), want: []string{mine}},
		"OfNoMachine":   {parent: parent, found: found("repository", "k/1", "")},
		"First":         {reason: "without a parent all is sent", found: found(mine)},
		"OddParent":     {parent: &v1alpha1.CommitRef{Key: "p"}, found: found("repository", mine)},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			in := at(momentOf, cutOf, reads(one))
			in.Parent, in.Store.Status.Verification = tc.parent, tc.found
			if diff := cmp.Diff(tc.want, exportConfig(in).Export.Damaged); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
