package store

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/test/build"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// at is a store that was never probed; change brings it on.
func at(change ...func(*Observed)) Observed {
	s := build.Store("main")
	s.UID, s.Status, s.CreationTimestamp = "u1", v1alpha1.VMStateStoreStatus{}, metav1.NewTime(noon)
	in := Observed{Now: noon, Store: s}
	for _, c := range change {
		c(&in)
	}
	return in
}

// probed was probed that long ago, with this answer of Ready.
func probed(ago time.Duration, ready metav1.ConditionStatus) func(*Observed) {
	return func(in *Observed) {
		when, catalogue := metav1.NewTime(noon.Add(-ago)), in.Store.Status.Catalogue
		in.Store.Status = v1alpha1.VMStateStoreStatus{
			Catalogue:          catalogue,
			ObservedGeneration: 1, ProbedAt: &when, RepositoryID: "r1", SigningKey: "k1", KeysSecretName: "main-repository-keys",
			Conditions: []metav1.Condition{{Type: "Ready", Status: ready, Reason: "x"}},
		}
	}
}

func reports(outcome v1alpha1.ReportOutcome, reason, message string, setup *v1alpha1.SetupResult) func(*Observed) {
	return func(in *Observed) {
		in.Setup = Task{Exists: true, Created: noon, Report: &v1alpha1.VMStateReportStatus{Outcome: outcome, Reason: reason, Message: message, Setup: setup}}
	}
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: 1, LastTransitionTime: metav1.NewTime(noon)}
}

var several = condition("Redundant", "True", v1alpha1.ReasonSeveralRecipients, "2 recipients can read the backups")

var notProven = condition("Proven", "False", v1alpha1.ReasonNotProven,
	"nobody has shown yet that an identity opens the backups: type kubectl vmstate prove main -n prod --identity FILE where the identity is")

func TestPlanProbes(t *testing.T) {
	run := []action.Action{action.RunJob{Job: job.Spec{
		Name: "vmstate-u1-setup-1", Task: v1alpha1.TaskSetup,
		Config: []byte(`{"store":{"endpoint":"https://s3.example.com","bucket":"vm-backups","region":"us-east-1","addressing":"Path"},` +
			`"setup":{"recipients":["age1pq1first","age1pq1second"],"keysSecretName":"main-repository-keys"}}`),
		Mounts: []job.Mount{
			{Secret: "s3-write", Path: "/credentials", Optional: true},
			{Secret: "main-repository-keys", Path: "/repository-keys", Optional: true},
		},
		Deadline: setupLimit, Retries: 2,
	}}}
	tests := map[string]struct {
		reason string
		in     Observed
		want   []action.Action
		after  time.Duration
	}{
		"Never":      {"", at(), run, 10 * time.Second},
		"OtherSpec":  {"a changed spec is probed at once", at(probed(time.Minute, "True"), func(in *Observed) { in.Store.Generation = 2 }), nil, 10 * time.Second},
		"Usable":     {"", at(probed(time.Minute, "True")), nil, 59 * time.Minute},
		"Unusable":   {"an outage is looked at again soon", at(probed(time.Minute, "False")), nil, time.Minute},
		"DueUsable":  {"", at(probed(time.Hour, "True")), nil, 10 * time.Second},
		"DueFailing": {"", at(probed(2*time.Minute, "False")), nil, 10 * time.Second},
		"Remains": {
			"the Job goes before its report", at(probed(time.Minute, "True"), func(in *Observed) {
				in.Children = []Child{{Kind: action.KindReport, Name: "r", UID: "1"}, {Kind: action.KindJob, Name: "j", UID: "2"}}
			}),
			[]action.Action{action.Delete{Kind: action.KindJob, Name: "j", UID: "2"}}, 5 * time.Second,
		},
		"BeingDeleted": {"", at(func(in *Observed) { now := metav1.NewTime(noon); in.Store.DeletionTimestamp = &now }), nil, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := Plan(tc.in)
			if d.RequeueAfter != tc.after {
				t.Errorf("%s: comes back after %s, want %s", tc.reason, d.RequeueAfter, tc.after)
			}
			if tc.want == nil && tc.after == 10*time.Second {
				if len(d.Actions) != 1 {
					t.Errorf("%s: no probe is started", tc.reason)
				}
				return
			}
			if diff := cmp.Diff(tc.want, d.Actions); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPlanRecords(t *testing.T) {
	now := metav1.NewTime(noon)
	good := v1alpha1.SetupResult{
		Findings: []v1alpha1.Finding{{Check: "Write", Outcome: v1alpha1.FindingOK}}, ChecksumMode: "CRC32C", RepositoryID: "r1", SigningKey: "k1", Writable: true,
	}
	elsewhere, other := good, good
	elsewhere.Writable = false
	other.RepositoryID = "r2"
	reached := func(change func(*v1alpha1.VMStateStoreStatus)) v1alpha1.VMStateStoreStatus {
		s := v1alpha1.VMStateStoreStatus{
			ObservedGeneration: 1, ProbedAt: &now, Findings: good.Findings, ChecksumMode: "CRC32C", RepositoryID: "r1", SigningKey: "k1",
			KeysSecretName: "main-repository-keys", KeyEpoch: 1,
			Conditions: []metav1.Condition{
				condition("Ready", "True", v1alpha1.ReasonProbed, "1 checks made"), several, notProven,
				condition("Writable", "True", v1alpha1.ReasonKeysHere, "the repository's keys are in Secret main-repository-keys"),
			},
		}
		change(&s)
		return s
	}
	failed := func(reason, message string) func(*v1alpha1.VMStateStoreStatus) {
		return func(s *v1alpha1.VMStateStoreStatus) {
			*s = v1alpha1.VMStateStoreStatus{ObservedGeneration: 1, ProbedAt: &now, Conditions: []metav1.Condition{
				condition("Ready", "False", reason, message), condition("Stalled", "True", reason, message), condition("Writable", "False", reason, message), several,
			}}
		}
	}
	tests := map[string]struct {
		reason string
		in     Observed
		want   v1alpha1.VMStateStoreStatus
	}{
		"Good": {"", at(reports(v1alpha1.OutcomeSucceeded, "", "", &good)), reached(func(*v1alpha1.VMStateStoreStatus) {})},
		"KeysElsewhere": {
			"good for restores", at(reports(v1alpha1.OutcomeSucceeded, "", "", &elsewhere)), reached(func(s *v1alpha1.VMStateStoreStatus) {
				s.KeysSecretName, s.KeyEpoch = "", 0
				s.Conditions[3] = condition("Writable", "False", v1alpha1.ReasonKeysElsewhere,
					`the repository was made elsewhere, and its keys are not here: restores work; to write, bring its keys as Secret "main-repository-keys", or use another prefix`)
			}),
		},
		"Denied": {
			"the mover's own words", at(reports(v1alpha1.OutcomeFailed, v1alpha1.ReasonAccessDenied, "403", nil)), reached(failed(v1alpha1.ReasonAccessDenied, "403")),
		},
		"Forged": {
			"a report cannot make a store ready", at(reports(v1alpha1.OutcomeFailed, v1alpha1.ReasonProbed, "ha", nil)), reached(failed(v1alpha1.ReasonSetupFailed, "ha")),
		},
		"JobFailed": {
			"", at(func(in *Observed) { in.Setup = Task{Exists: true, Created: noon, Failed: "OOMKilled"} }),
			reached(failed(v1alpha1.ReasonSetupFailed, "the setup Job failed: OOMKilled")),
		},
		"DoesNotStart": {
			"every wait has a deadline and a diagnosis", at(func(in *Observed) { in.Setup = Task{Exists: true, Created: noon.Add(-pendingLimit), Pending: "quota"} }),
			reached(failed(v1alpha1.ReasonSetupFailed, "the setup Job does not start: quota")),
		},
		"Pending": {
			"", at(func(in *Observed) { in.Setup = Task{Exists: true, Created: noon, Pending: "quota"} }),
			v1alpha1.VMStateStoreStatus{Conditions: []metav1.Condition{
				condition("Ready", "False", v1alpha1.ReasonJobPending, "quota"), condition("Reconciling", "True", v1alpha1.ReasonJobPending, "quota"),
				condition("Writable", "Unknown", v1alpha1.ReasonJobPending, "quota"), several,
			}},
		},
		"OneRecipient": {
			"said, not refused", at(reports(v1alpha1.OutcomeSucceeded, "", "", &good), func(in *Observed) { in.Store.Spec.Recipients = []string{"age1pq1first"} }),
			reached(func(s *v1alpha1.VMStateStoreStatus) {
				s.Conditions[1] = condition("Redundant", "False", v1alpha1.ReasonOneRecipient,
					"one recipient alone can read the backups: if its identity is lost, they are; add one that is kept elsewhere")
			}),
		},
		"PlainHTTP": {
			"said as a finding", at(reports(v1alpha1.OutcomeSucceeded, "", "", &good), func(in *Observed) { in.Store.Spec.S3.Endpoint = "http://s3" }),
			reached(func(s *v1alpha1.VMStateStoreStatus) {
				s.Findings = append(transport(&v1alpha1.VMStateStore{}), s.Findings...)
				s.Conditions[0].Message = "2 checks made, 1 with a warning"
			}),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Plan(tc.in).Status); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	t.Run("Interrupted", func(t *testing.T) {
		unknown := Interrupted(at(), errors.New("quota")).Status.Conditions
		want := []metav1.Condition{
			condition("Ready", "False", v1alpha1.ReasonProbing, "quota"), condition("Reconciling", "True", v1alpha1.ReasonProbing, "quota"),
			condition("Writable", "Unknown", v1alpha1.ReasonProbing, "quota"),
		}
		if diff := cmp.Diff(want, unknown); diff != "" {
			t.Errorf("a store that nobody has probed says what stands in the way (-want +got):\n%s", diff)
		}
		known := at(probed(time.Hour, "True"))
		if diff := cmp.Diff(known.Store.Status, Interrupted(known, errors.New("quota")).Status); diff != "" {
			t.Errorf("a store that is known stays as it is (-want +got):\n%s", diff)
		}
	})
	t.Run("AnotherRepository", func(t *testing.T) {
		in := at(probed(time.Hour, "True"), reports(v1alpha1.OutcomeSucceeded, "", "", &other))
		d := Plan(in)
		if d.Status.RepositoryID != "r1" || d.Status.Conditions[0].Reason != v1alpha1.ReasonRepositoryDamaged {
			t.Errorf("a swapped repository was taken for the store's own: %+v", d.Status)
		}
	})
}
