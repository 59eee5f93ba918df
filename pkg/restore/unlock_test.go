package restore

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/job"
)

const unlockMessage = "the backup is encrypted and no identity is in this cluster: type kubectl vmstate unlock db-back -n prod --identity FILE where the identity is"

func withoutIdentity(_ *testing.T, s *story) { s.in.Restore.Spec.IdentitySecretRef = nil }

// asks is a Job whose mover has published a request, and perhaps has an answer.
func asks(task v1alpha1.ReportTask, refused string, ticket *v1alpha1.UnlockTicket) option {
	return func(t *testing.T, s *story) {
		reported(task, v1alpha1.VMStateReportStatus{Unlock: &v1alpha1.UnlockRequest{ID: "r2", Refused: refused}})(t, s)
		j := s.in.Resolve
		if task == v1alpha1.TaskImport {
			j = s.in.Import
		}
		j.Report.Spec.Ticket = ticket
	}
}

// TestPlanUnlock: a restore without an identity waits for a ticket as long as it takes, and says what to type.
func TestPlanUnlock(t *testing.T) {
	wait := func(says string) want {
		return want{reason: v1alpha1.ReasonWaitingForUnlock, after: patience,
			message: unlockMessage + says + ". Nothing is lost by waiting; delete the restore to cancel. A pod that is started again asks again"}
	}
	testPlan(t, map[string]planCase{
		"Resolve": {
			reason: "what is encrypted needs somebody with the identity",
			story:  []option{withoutIdentity, asks(v1alpha1.TaskResolve, "", nil)},
			want:   wait(""),
		},
		"ImportForLong": {
			reason: "a Job that waits for a person does not stall: its time begins anew when it goes on",
			story:  []option{known, withoutIdentity, asks(v1alpha1.TaskImport, "", nil), since(0, stallLimit)},
			want: func() want {
				w := wait("")
				w.record = func(s *v1alpha1.VMStateRestoreStatus) { s.Filling = nil }
				return w
			}(),
		},
		"Import": {
			reason: "the Job that fills is another process, to which the first ticket says nothing",
			story:  []option{known, withoutIdentity, asks(v1alpha1.TaskImport, "", nil)},
			want:   wait(""),
		},
		"StaleTicket": {
			reason: "a ticket for the pod before this one is none",
			story:  []option{withoutIdentity, asks(v1alpha1.TaskResolve, "", &v1alpha1.UnlockTicket{Request: "r1"})},
			want:   wait(""),
		},
		"Refused": {
			reason: "who has typed the command is told why it did not help",
			story:  []option{withoutIdentity, asks(v1alpha1.TaskResolve, "it has expired", &v1alpha1.UnlockTicket{Request: "r2"})},
			want:   wait("; the last ticket was not taken: it has expired"),
		},
		"Answered": {
			reason: "the mover is at it",
			story:  []option{withoutIdentity, asks(v1alpha1.TaskResolve, "", &v1alpha1.UnlockTicket{Request: "r2"})},
			want:   want{reason: v1alpha1.ReasonResolving, message: `looking for the backup in store "main"`, after: patience},
		},
	})
}

// TestUnlockTold: without an identity the Jobs mount none, are told to ask, and wait for a person without a deadline.
func TestUnlockTold(t *testing.T) {
	in := seen(t, known, withoutIdentity)
	resolve, err := resolveSpec(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	importing, err := importSpec(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range []job.Spec{resolve, importing} {
		for _, m := range spec.Mounts {
			if m.Path == job.PathIdentities {
				t.Errorf("%s mounts identities: %+v", spec.Name, m)
			}
		}
		if !strings.Contains(string(spec.Config), `"unlock":{"restore":"`+string(restoreUID)+`"}`) {
			t.Errorf("%s is not told to ask: %s", spec.Name, spec.Config)
		}
		if spec.Deadline != 0 {
			t.Errorf("%s ends after %s, whoever is waited for", spec.Name, spec.Deadline)
		}
	}
	with, err := resolveSpec(seen(t), nil)
	if err != nil || with.Deadline != resolveDeadline || strings.Contains(string(with.Config), "unlock") {
		t.Errorf("with an identity: deadline %s, told %s, %v", with.Deadline, with.Config, err)
	}
}

func TestIdentityInCluster(t *testing.T) {
	if diff := cmp.Diff("", IdentityInCluster(seen(t, withoutIdentity).Restore)); diff != "" {
		t.Error(diff)
	}
	if says := IdentityInCluster(seen(t).Restore); !strings.Contains(says, `Secret "restore-key"`) {
		t.Errorf("says %q", says)
	}
}
