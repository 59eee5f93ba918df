package controllers

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// TestRestoreUnlock: a restore without an identity waits for a ticket, once for each of its Jobs, says what to type,
// and goes on when the mover has its keys. One with an identity in a Secret says that as a condition.
func TestRestoreUnlock(t *testing.T) {
	w := newRestoreWorld(t)
	w.locked = true
	rs := w.restore(newVM)
	if rs.Spec.IdentitySecretRef != nil {
		t.Fatal("the story has an identity")
	}
	r := w.reconciler()
	for _, task := range []v1alpha1.ReportTask{v1alpha1.TaskResolve, v1alpha1.TaskImport} {
		report := w.asking(task)
		for range 3 { // waiting is never a failure
			w.now = w.now.Add(24 * time.Hour)
			r = w.step(r)
		}
		if !w.get("db-back", rs) || !strings.Contains(ready(rs), "WaitingForUnlock: ") || !strings.Contains(ready(rs), "kubectl vmstate unlock db-back -n "+w.namespace) {
			t.Fatalf("%s: %s", task, ready(rs))
		}
		if meta.FindStatusCondition(rs.Status.Conditions, v1alpha1.ConditionStalled) != nil || rs.Status.CompletedAt != nil {
			t.Errorf("%s: waiting is a failure: %s", task, ready(rs))
		}
		report.Spec.Ticket = &v1alpha1.UnlockTicket{Request: report.Status.Unlock.ID, Sealed: []byte("sealed")}
		w.must(w.cluster.Client.Update(t.Context(), report))
		report.Status.Unlock, report.Status.Unlocked = nil, true
		w.must(w.cluster.Client.Status().Update(t.Context(), report))
	}
	w.locked = false
	if rs := w.run(time.Minute); ready(rs)[:4] != "True" {
		t.Fatal(ready(rs))
	}
	w.restored()
	w.get("db-back", rs)
	if c := meta.FindStatusCondition(rs.Status.Conditions, v1alpha1.ConditionIdentityInCluster); c != nil {
		t.Errorf("no identity was in the cluster: %+v", c)
	}
}

// asking makes passes until the Job of a task is there, and has it ask for keys.
func (w *restoreWorld) asking(task v1alpha1.ReportTask) *v1alpha1.VMStateReport {
	w.t.Helper()
	r := w.reconciler()
	for range 60 {
		r = w.step(r)
		w.play()
		reports := &v1alpha1.VMStateReportList{}
		w.must(w.cluster.Client.List(w.t.Context(), reports, w.here()))
		for i := range reports.Items {
			report := &reports.Items[i]
			if report.Spec.Task != task || report.Status.Outcome != "" {
				continue
			}
			report.Status.Unlock = &v1alpha1.UnlockRequest{ID: "id-" + string(task), Request: []byte("request")}
			w.must(w.cluster.Client.Status().Update(w.t.Context(), report))
			return report
		}
	}
	w.t.Fatalf("no Job of task %s came", task)
	return nil
}
