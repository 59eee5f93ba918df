package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/pkg/mover/config"
)

func maintained(in *Observed) {
	in.Store.Spec.Maintenance = &v1alpha1.MaintenanceSpec{CredentialsSecretRef: v1alpha1.ObjectRef{Name: "s3-delete"}, IntervalHours: 24}
}

// deleted is a backup that somebody deleted a minute ago, to be removed from the store as well.
func deleted(name string, c v1alpha1.CommitRef) v1alpha1.VMStateBackup {
	b := own(name, c)
	at := metav1.NewTime(noon.Add(-time.Minute))
	b.DeletionTimestamp, b.Finalizers, b.Spec.DeletionPolicy = &at, []string{v1alpha1.FinalizerStored}, v1alpha1.DeletionDelete
	return b
}

func cleaning(in *Observed) {
	at := metav1.NewTime(noon.Add(-time.Second))
	in.Store.Status.Maintenance = &v1alpha1.MaintenanceStatus{StoreTaskStatus: v1alpha1.StoreTaskStatus{Runs: 1, JobName: "vmstate-u1-maintain-1", LastStartedAt: &at}}
}

func TestMaintenanceDue(t *testing.T) {
	gone, ready := deleted("x", ref(chainA, 2)), probed(time.Minute, "True")
	tests := map[string]struct {
		reason string
		in     Observed
		want   bool
	}{
		"NotSetUp":  {"nothing is deleted by default", at(ready, with(gone)), false},
		"Deleted":   {"", at(ready, maintained, with(gone)), true},
		"Suspended": {"", at(ready, maintained, with(gone), func(in *Observed) { in.Store.Spec.Maintenance.Suspend = true }), false},
		"InUse":     {"a restore stands on it", at(ready, maintained, with(gone), func(in *Observed) { in.InUse = []string{ref(chainA, 2).Key} }), false},
		"Keyless":   {"", at(ready, maintained, with(gone), func(in *Observed) { in.Store.Status.KeysSecretName = "" }), false},
		"NotReady":  {"an outage is not a reason to delete", at(probed(time.Minute, "False"), maintained, with(gone)), false},
		"Nothing":   {"", at(ready, maintained), false},
		"LocksDaily": {"locks are extended each day", at(ready, maintained, objectLocked, func(in *Observed) {
			in.Store.Spec.Maintenance.IntervalHours = 720
			in.Store.CreationTimestamp = metav1.NewTime(noon.Add(-24 * time.Hour))
		}, listed), true},
		"Monthly": {"", at(ready, maintained, func(in *Observed) {
			in.Store.Spec.Maintenance.IntervalHours = 720
			in.Store.CreationTimestamp = metav1.NewTime(noon.Add(-24 * time.Hour))
		}, listed), false},
		"Daily": {"", at(ready, maintained, func(in *Observed) { in.Store.CreationTimestamp = metav1.NewTime(noon.Add(-24 * time.Hour)) }, listed), true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if m := Plan(tc.in).Status.Maintenance; (m != nil && m.JobName != "") != tc.want {
				t.Errorf("%s: begun is %+v", tc.reason, m)
			}
		})
	}
}

func objectLocked(in *Observed) {
	in.Store.Spec.S3.ObjectLock = &v1alpha1.ObjectLock{Mode: "Governance", RetentionDays: 14}
}

// TestLocksLapse: whoever locks objects is told when nothing extends the locks, and what to set.
func TestLocksLapse(t *testing.T) {
	for name, change := range map[string]func(*Observed){
		"None":      func(*Observed) {},
		"Suspended": func(in *Observed) { maintained(in); in.Store.Spec.Maintenance.Suspend = true },
		"Keyless":   func(in *Observed) { maintained(in); in.Store.Status.KeysSecretName = "" },
	} {
		c := meta.FindStatusCondition(Plan(at(probed(time.Minute, "True"), listed, objectLocked, change)).Status.Conditions, v1alpha1.ConditionMaintained)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonLocksLapse || !strings.Contains(c.Message, "44 days") || !strings.Contains(c.Message, "spec.maintenance") {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// listed says that the catalogue is not due.
func listed(in *Observed) {
	status(func(c *v1alpha1.CatalogueStatus) {
		at := metav1.NewTime(noon)
		c.LastSucceededAt = &at
	})(in)
}

func TestMaintenanceJob(t *testing.T) {
	working := own("w", v1alpha1.CommitRef{})
	working.Status = v1alpha1.VMStateBackupStatus{VM: &v1alpha1.CapturedVM{UID: "vm"}}
	in := at(probed(time.Minute, "True"), maintained, cleaning, with(deleted("x", ref(chainA, 2)), own("y", ref(chainA, 1)), own("z", ref(chainB, 7)), working))
	in.Store.Status.Maintenance.Sessions = []string{"s/a"}
	in.Store.Spec.Maintenance.Lost = []string{"r/a/b/"}
	want := []action.Action{action.RunJob{Job: job.Spec{
		Name: "vmstate-u1-maintain-1", Task: v1alpha1.TaskMaintain,
		Config: []byte(`{"store":{"endpoint":"https://s3.example.com","bucket":"vm-backups","region":"us-east-1","addressing":"Path","signingKey":"k1"},"maintain":{` +
			`"remove":[{"key":"` + ref(chainA, 2).Key + `","digest":"` + ref(chainA, 2).Digest + `"}],` +
			`"known":[{"key":"` + ref(chainA, 1).Key + `","digest":"` + ref(chainA, 1).Digest + `"},{"key":"` + ref(chainB, 7).Key + `","digest":"` + ref(chainB, 7).Digest + `"}],"lost":["r/a/b/"],` +
			`"alive":[{"vmUID":"vm","backupUID":"backup-w"}],"ended":["s/a"],"intervalSeconds":86400,"keySecretName":"main-maintenance-key"}}`),
		Mounts: []job.Mount{
			{Secret: "s3-delete", Path: "/credentials", Optional: true},
			{Secret: "main-repository-keys", Path: "/repository-keys", Optional: true},
			{Secret: "main-maintenance-key", Path: "/maintenance-key", Optional: true},
		},
		Deadline: maintainLimit, Retries: 2, Store: "main",
	}}}
	if diff := cmp.Diff(want, Plan(in).Actions); diff != "" {
		t.Errorf("only this Job sees the credential that deletes (-want +got):\n%s", diff)
	}
}

// TestMaintenanceReaders: the Job is told which restores may be reading, and ends no session where it was not told of all.
func TestMaintenanceReaders(t *testing.T) {
	in := at(probed(time.Minute, "True"), maintained, cleaning)
	in.Store.Status.Maintenance.Sessions = []string{"s/a"}
	for n, ended := range map[int]bool{2: true, maxTold: false, maxTold + 1: false} {
		in.Readers = nil
		for i := range n {
			in.Readers = append(in.Readers, fmt.Sprintf("restore-%03d", i))
		}
		told, err := config.Decode(maintenanceJob(in).Config)
		if err != nil {
			t.Fatal(err)
		}
		if got := told.Maintain.Readers; len(got) != min(n, maxTold) || got[1] != "restore-001" || (len(told.Maintain.Ended) > 0) != ended {
			t.Errorf("of %d restores %d are told, ended sessions %q", n, len(got), told.Maintain.Ended)
		}
	}
}

// TestMaintenanceOfLost: what the store was seen to lack is neither removed nor relied on, and
// hurries nobody; a record that is of no use is removed.
func TestMaintenanceOfLost(t *testing.T) {
	tests := map[string]struct {
		reason  string
		deleted bool
		remove  int
		known   int
	}{
		"MissingDeleted": {v1alpha1.ReasonCommitMissing, true, 0, 0},
		"Missing":        {v1alpha1.ReasonCommitMissing, false, 0, 0},
		"DamagedDeleted": {v1alpha1.ReasonCommitDamaged, true, 1, 0},
		"Damaged":        {v1alpha1.ReasonCommitDamaged, false, 0, 0},
		"HurtDeleted":    {v1alpha1.ReasonDamaged, true, 1, 0},
		"Hurt":           {v1alpha1.ReasonDamaged, false, 0, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := own("x", ref(chainA, 2))
			if tc.deleted {
				b = deleted("x", ref(chainA, 2))
			}
			b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionVerified, Status: "False", Reason: tc.reason}}
			run, ok := Plan(at(probed(time.Minute, "True"), maintained, cleaning, with(b))).Actions[0].(action.RunJob)
			if !ok {
				t.Fatal("no Job is made")
			}
			var c config.Config
			if err := json.Unmarshal(run.Job.Config, &c); err != nil || len(c.Maintain.Remove) != tc.remove || len(c.Maintain.Known) != tc.known {
				t.Errorf("told to remove %v, and that known are %v, %v", c.Maintain.Remove, c.Maintain.Known, err)
			}
			m := Plan(at(probed(time.Minute, "True"), maintained, with(b))).Status.Maintenance
			if begun := m != nil && m.JobName != ""; begun != (tc.remove > 0) {
				t.Errorf("begun: %v", begun)
			}
		})
	}
}

func TestMaintenanceRecords(t *testing.T) {
	gone, stays := deleted("x", ref(chainA, 2)), deleted("y", ref(chainB, 1))
	in := at(probed(time.Minute, "True"), maintained, cleaning, with(gone, stays), status(func(*v1alpha1.CatalogueStatus) {}))
	in.Chore = Task{Exists: true, Created: noon, Report: &v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeSucceeded, Maintenance: &v1alpha1.MaintenanceResult{
		Removed: []v1alpha1.CommitRef{{Key: ref(chainA, 2).Key, Digest: ref(chainA, 2).Digest}, {Key: "c/x", Digest: "y"}}, DeletedObjects: 3, FreedBytes: 9, RetainedObjects: 7, ExtendedObjects: 2,
		Held: []v1alpha1.CatalogueFault{{Key: chainB, Message: "a known backup is not listed"}},
	}}}
	d := Plan(in)
	if diff := cmp.Diff([]action.Action{action.ReleaseBackup{Name: "x", UID: "backup-x"}}, d.Actions); diff != "" {
		t.Errorf("what is gone is let go, and nothing else (-want +got):\n%s", diff)
	}
	m := d.Status.Maintenance
	c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionMaintained)
	if m.RemovedBackups != 1 || m.DeletedObjects != 3 || m.FreedBytes != 9 || m.RetainedObjects != 7 || m.ExtendedObjects != 2 || m.JobName != "" || c == nil || c.Reason != v1alpha1.ReasonMaintenanceHeld {
		t.Errorf("recorded %+v, said %+v", m, c)
	}
	in.Chore.Report.Maintenance = &v1alpha1.MaintenanceResult{FreedBytes: -1}
	if d := Plan(in); len(d.Actions) > 0 || d.Status.Maintenance.Failures != 1 {
		t.Errorf("a report of less than nothing: %+v", d.Status.Maintenance)
	}
}

func TestVerification(t *testing.T) {
	at0 := metav1.NewTime(noon.Add(-time.Minute))
	good, hurt := own("x", ref(chainA, 1)), own("y", ref(chainA, 2))
	in := at(probed(time.Minute, "True"), with(good, hurt), func(in *Observed) {
		in.Store.Spec.Verification = &v1alpha1.VerificationSpec{RoundDays: 7}
		in.Store.Status.Verification = &v1alpha1.VerificationStatus{Cursor: "c", StoreTaskStatus: v1alpha1.StoreTaskStatus{Runs: 1, JobName: "vmstate-u1-verify-1", LastStartedAt: &at0}}
	})
	run, ok := Plan(in).Actions[0].(action.RunJob)
	if !ok || run.Job.Task != v1alpha1.TaskVerify || len(run.Job.Mounts) != 2 {
		t.Fatalf("the Job is %+v", run)
	}
	in.Chore = Task{Exists: true, Created: noon, Report: &v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeSucceeded, Verification: &v1alpha1.VerificationResult{
		Cursor: "next", RoundDone: true, CheckedBytes: 5, Damaged: []v1alpha1.CatalogueFault{{Key: "r/x", Message: "cut"}},
		Backups: []v1alpha1.BackupVerdict{{Commit: ref(chainA, 1)}, {Commit: ref(chainA, 2), Damaged: true, Message: "volume root"}, {Commit: ref(chainB, 1)}},
	}}}
	d := Plan(in)
	mark := func(name string, status metav1.ConditionStatus, reason, message string, when *metav1.Time) action.Action {
		return action.MarkBackup{Name: name, UID: "backup-x", VerifiedAt: when, Condition: metav1.Condition{
			Type: v1alpha1.ConditionVerified, Status: status, Reason: reason, Message: message, ObservedGeneration: 1,
		}}
	}
	second, _ := mark("y", metav1.ConditionFalse, v1alpha1.ReasonDamaged, "volume root", nil).(action.MarkBackup)
	second.UID = "backup-y"
	want := []action.Action{mark("x", metav1.ConditionTrue, v1alpha1.ReasonVerified, "all of it was read back from the store, and is as it was written", &at0), second}
	if diff := cmp.Diff(want, d.Actions); diff != "" {
		t.Fatalf("each backup is told its own (-want +got):\n%s", diff)
	}
	for i, a := range want {
		m, _ := a.(action.MarkBackup)
		in.Backups[i].Status.Conditions, in.Backups[i].Status.VerifiedAt = []metav1.Condition{m.Condition}, m.VerifiedAt
	}
	d = Plan(in)
	v := d.Status.Verification
	c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionVerified)
	if len(d.Actions) > 0 || v.Cursor != "next" || v.RoundEndedAt == nil || len(v.Damaged) != 1 || v.JobName != "" || c.Reason != v1alpha1.ReasonDamaged {
		t.Errorf("recorded %+v, said %+v, actions %v", v, c, d.Actions)
	}
}
