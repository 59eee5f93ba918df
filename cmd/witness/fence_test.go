package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/firmware"
	"github.com/vmstate/vmstate/pkg/witness/config"
	"github.com/vmstate/vmstate/test/kube"
)

func (w *world) fenceTask() config.Config {
	c := w.task(config.Running)
	c.Fence = true
	return c
}

// eventually waits for a report.
func (w *world) eventually(what string, seen func(v1alpha1.VMStateReportStatus) bool) v1alpha1.VMStateReportStatus {
	w.t.Helper()
	var r v1alpha1.VMStateReportStatus
	kube.Eventually(w.t, patient, func() error {
		if r = w.report(); !seen(r) {
			return fmt.Errorf("%s: not yet: %+v", what, r)
		}
		return nil
	})
	return r
}

// TestFence has a guest that writes its firmware state until it is paused: what counts and is carried out is
// what the volume holds then.
func TestFence(t *testing.T) {
	w := newWorld(t)
	p := w.start("pod-1", w.fenceTask())
	first := w.firstReading()
	if r := w.report(); !r.Witness.Guarding || w.proxy.unpauseCalls() != 0 {
		t.Fatalf("guarding %t after %d unpauses, before anything was paused", r.Witness.Guarding, w.proxy.unpauseCalls())
	}
	if err := writeAt(filepath.Join(w.state, varsFD), 1000); err != nil {
		t.Fatal(err)
	}
	want, err := firmware.Read(t.Context(), w.state, firmware.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	w.fence(time.Hour)
	r := w.eventually("read the paused guest", func(r v1alpha1.VMStateReportStatus) bool { return r.Witness.Fenced != nil })
	if r.Witness.Fenced.Digest != want.Reading.Digest() || r.Witness.Fenced.Digest == first.Digest || r.Outcome != "" {
		t.Errorf("outcome %q, reading %s of the paused guest, want %s, which is not the first's", r.Outcome, r.Witness.Fenced.Digest, want.Reading.Digest())
	}
	if err := writeAt(filepath.Join(w.state, varsFD), 2000); err != nil { // it runs again, and nobody cares
		t.Fatal(err)
	}
	now := metav1.NowMicro()
	w.attempt(func(a *v1alpha1.MomentAttempt) {
		a.FirstReading, a.CutEnded, a.Fence.ReleasedAt = first.Digest, &now, &now
	})
	if err := p.end(t); err != nil {
		t.Fatal(err)
	}
	if got := w.captured(); got.Digest() != want.Tree.Digest() {
		t.Errorf("captured state %s, the volume of the paused guest held %s", got.Digest(), want.Tree.Digest())
	}
	if w.proxy.unpauseCalls()+w.proxy.thawCalls() != 0 {
		t.Error("the witness released a guest that the manager had")
	}
}

// TestFenceDeadline has a manager that paused and froze the guest and went silent.
func TestFenceDeadline(t *testing.T) {
	cases := map[string]struct {
		reason  string
		answers []int
		calls   int
		state   bool
	}{
		"Unpauses":  {"one unpause of a pause that was seen is enough", nil, 1, true},
		"Conflict":  {"409 and errors are never a success", []int{409, 500, 403, 200}, 4, true},
		"Stateless": {"a guest without firmware state is guarded too", nil, 1, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			task := w.fenceTask()
			if !tc.state {
				task.StateDir = ""
			}
			p := w.start("pod-1", task)
			w.eventually("guards", func(r v1alpha1.VMStateReportStatus) bool {
				return r.Witness != nil && r.Witness.Guarding && (r.Witness.First != nil || !tc.state)
			})
			w.freeze(time.Hour, true)
			w.fence(2*time.Second, tc.answers...)
			r := w.eventually("lets go", func(r v1alpha1.VMStateReportStatus) bool { return r.Witness.ReleasedAt != nil })
			if r.Witness.UnpausedAt == nil || w.proxy.unpauseCalls() != tc.calls || w.proxy.thawCalls() != 1 {
				t.Fatalf("%s: unpaused at %v after %d calls, want %d; %d thaws", tc.reason, r.Witness.UnpausedAt, w.proxy.unpauseCalls(), tc.calls, w.proxy.thawCalls())
			}
			deadline := w.backup.Status.Attempts[0].Fence.Deadline
			late := r.Witness.UnpausedAt.Sub(deadline.Time)
			t.Logf("the try that counted was made %s after the deadline", late)
			if late < -100*time.Millisecond || r.Witness.ReleasedAt.Before(r.Witness.UnpausedAt) {
				t.Errorf("unpaused %s after the deadline, thawed at %v", late, r.Witness.ReleasedAt)
			}
			w.attempt(func(a *v1alpha1.MomentAttempt) { a.Verdict = v1alpha1.AttemptDiscarded })
			if err := p.end(t); err == nil {
				t.Error("a witness of a discarded attempt reports no failure")
			}
		})
	}
}

// TestFenceRestarted has manager and witness die while the guest is paused.
func TestFenceRestarted(t *testing.T) {
	w := newWorld(t)
	p := w.start("pod-1", w.fenceTask())
	w.firstReading()
	w.fence(3 * time.Second)
	p.kill(errKilled)
	if err := p.end(t); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	p = w.start("pod-2", w.fenceTask())
	w.eventually("unpauses", func(r v1alpha1.VMStateReportStatus) bool { return r.Witness.UnpausedAt != nil })
	w.attempt(func(a *v1alpha1.MomentAttempt) { a.Verdict = v1alpha1.AttemptDiscarded })
	if err := p.end(t); err == nil || w.proxy.unpauseCalls() != 1 {
		t.Errorf("ended with %v after %d unpauses, want an error and 1", err, w.proxy.unpauseCalls())
	}
}

// TestFenceUnguarded: a witness that could not release the guest says so before anybody pauses it.
func TestFenceUnguarded(t *testing.T) {
	w := newWorld(t)
	if err := w.mayNotThaw(); err != nil {
		t.Fatal(err)
	}
	err := w.start("pod-1", w.fenceTask()).end(t)
	if r := w.report(); err == nil || r.Reason != v1alpha1.ReasonWitnessFailed || !strings.Contains(r.Message, "may not unpause the guest") {
		t.Errorf("ended with %v, reported %q %q", err, r.Reason, r.Message)
	}
}

// TestFenceWaitsForKubeVirt: while virt-api does not answer there is no guard; when it does there is.
func TestFenceWaitsForKubeVirt(t *testing.T) {
	w := newWorld(t)
	w.proxy.setDown(true)
	w.start("pod-1", w.fenceTask())
	time.Sleep(2 * time.Second) // several tries
	if r := w.report(); r.Witness != nil && r.Witness.Guarding {
		t.Error("guarding, without a way to the guest")
	}
	w.proxy.setDown(false)
	w.eventually("guards", func(r v1alpha1.VMStateReportStatus) bool { return r.Witness != nil && r.Witness.Guarding })
}

func (p *proxy) setDown(down bool) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.down = down
}

// fence records a pause, and has the instance paused.
func (w *world) fence(length time.Duration, answers ...int) {
	w.t.Helper()
	w.proxy.pause(answers...)
	now := metav1.NowMicro()
	w.attempt(func(a *v1alpha1.MomentAttempt) {
		a.Fence = &v1alpha1.FenceRecord{RequestedAt: now, Deadline: metav1.NewMicroTime(now.Add(length)), PausedAt: &now}
		a.CutStarted = &now
	})
}

// instance says whether db is paused.
func (p *proxy) instance(w http.ResponseWriter) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	conditions := "[]"
	if p.paused {
		conditions = `[{"type":"Paused","status":"True"}]`
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind":"VirtualMachineInstance","apiVersion":"kubevirt.io/v1","metadata":{"name":"db","uid":"vmi"},"status":{"conditions":`+conditions+`}}`)
}

// unpause is a conflict while db is not paused, as virt-api has it, and what the test says otherwise.
func (p *proxy) unpause(w http.ResponseWriter, r *http.Request) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.down {
		w.WriteHeader(malfunction)
		return
	}
	body, _ := io.ReadAll(r.Body) // a body that cannot be read is none
	code := http.StatusConflict
	if p.paused && !strings.Contains(string(body), "dryRun") {
		p.unpaused++
		code = http.StatusOK
		if len(p.unpauses) > 0 {
			code, p.unpauses = p.unpauses[0], p.unpauses[1:]
		}
		p.paused = code != http.StatusOK
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
}

func (p *proxy) pause(answers ...int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.paused, p.unpauses = true, answers
}

func (p *proxy) unpauseCalls() int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.unpaused
}
