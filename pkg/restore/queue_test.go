package restore

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
)

// limited is a store that lets one mover work: another, or the restore itself.
func limited(mine bool) option {
	return func(_ *testing.T, s *story) {
		me := v1alpha1.MoverTurn{Kind: v1alpha1.MoverRestore, Name: "r", UID: s.in.Restore.UID, Slot: 2}
		s.in.Store.Spec.Limits = &v1alpha1.StoreLimits{Movers: 1, MoversPerNode: 1}
		s.in.Store.Status.Movers = &v1alpha1.MoversStatus{
			Working: []v1alpha1.MoverTurn{{Kind: v1alpha1.MoverBackup, Name: "b", UID: "b"}}, Waiting: []v1alpha1.MoverTurn{me}, WaitingCount: 1,
		}
		if mine {
			s.in.Store.Status.Movers = &v1alpha1.MoversStatus{Working: []v1alpha1.MoverTurn{me}}
		}
	}
}

// TestQueue: a restore asks its store for a turn once its claims are made, waits as long as it takes, and says where it stands.
func TestQueue(t *testing.T) {
	d := Plan(seen(t, known, limited(false)))
	if d.Reason != v1alpha1.ReasonWaitingForMover || d.Message != `1st of 1 waiting for a mover of store "main"` || d.Status.QueuedAt == nil || len(d.Actions) > 0 {
		t.Errorf("asks: %s %q, %v, %d actions", d.Reason, d.Message, d.Status.QueuedAt, len(d.Actions))
	}
	since := metav1.NewTime(d.Status.QueuedAt.Add(-1000 * time.Hour))
	waiting := func(_ *testing.T, s *story) { s.in.Restore.Status.QueuedAt = &since }
	d = Plan(seen(t, known, limited(false), waiting))
	if d.Reason != v1alpha1.ReasonWaitingForMover || !d.Status.QueuedAt.Equal(&since) || d.RequeueAfter == 0 {
		t.Errorf("waits: %s, since %v, again in %s", d.Reason, d.Status.QueuedAt, d.RequeueAfter)
	}
	d = Plan(seen(t, known, limited(true), waiting))
	run, ok := d.Actions[0].(action.RunJob)
	if !ok || run.Job.Store != "main" || run.Job.Slot != 2 || run.Job.Task != v1alpha1.TaskImport {
		t.Errorf("is let in: %+v", d.Actions)
	}
	running := reported(v1alpha1.TaskImport, v1alpha1.VMStateReportStatus{PodUID: "p"})
	if d = Plan(seen(t, known, limited(true), waiting, running)); d.Status.QueuedAt != nil || d.Reason != v1alpha1.ReasonFilling {
		t.Errorf("has its mover: %s, %v", d.Reason, d.Status.QueuedAt)
	}
}

// TestNotes: what the Job found not to be as it should be stays in the findings, once, and no longer than it may be.
func TestNotes(t *testing.T) {
	filled := func(notes ...string) option {
		return reported(v1alpha1.TaskImport, v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeSucceeded, Import: &v1alpha1.ImportResult{
			Volumes: []v1alpha1.ImportedVolume{{Name: "root"}, {Name: "persistent-state-for-db-abcde"}}, Notes: notes,
		}})
	}
	noted := func(notes ...string) (out []v1alpha1.Finding) {
		for _, f := range Plan(seen(t, known, filled(notes...))).Status.Findings {
			if f.Check == "Import" {
				out = append(out, f)
			}
		}
		return out
	}
	if got := noted(); len(got) > 0 {
		t.Errorf("nothing is said, and found is %+v", got)
	}
	if got := noted("one", "two"); len(got) != 1 || got[0].Message != "one; two" || got[0].Outcome != v1alpha1.FindingWarning {
		t.Errorf("found is %+v", got)
	}
	if got := noted(strings.Repeat("x", 1<<16)); len(got) != 1 || len(got[0].Message) > maxNote+3 {
		t.Errorf("%d findings, the first of %d bytes", len(got), len(got[0].Message))
	}
}
