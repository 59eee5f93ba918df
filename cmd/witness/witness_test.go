package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/firmware"
	"github.com/vmstate/vmstate/pkg/witness/config"
	"github.com/vmstate/vmstate/test/kube"
)

func TestUnchanged(t *testing.T) {
	w := newWorld(t)
	p := w.start("pod-1", w.task(config.Running))
	w.cut()
	if err := p.end(t); err != nil {
		t.Fatal(err)
	}
	r := w.report()
	if r.Outcome != v1alpha1.OutcomeSucceeded || r.PodUID != "pod-1" || len(r.Witness.Changed) != 0 {
		t.Errorf("report %+v, want a success without a change", r)
	}
	if r.Witness.Second.Digest != r.Witness.First.Digest {
		t.Errorf("readings %s and %s of one state", r.Witness.First.Digest, r.Witness.Second.Digest)
	}
	ended := w.backup.Status.Attempts[0].CutEnded
	t.Logf("second reading %s after the end of the cut was written, %s long", r.Witness.Second.StartedAt.Sub(ended.Time), r.Witness.Second.EndedAt.Sub(r.Witness.Second.StartedAt.Time))
	if !r.Witness.First.EndedAt.Time.Before(r.Witness.Second.StartedAt.Time) {
		t.Error("the second reading did not start after the first")
	}
	if efi := string(r.Witness.EFI.Raw); !strings.Contains(efi, `"secureBoot":"Enabled"`) {
		t.Errorf("what the variables say is %s", efi)
	}
	want, err := firmware.Read(t.Context(), w.state, firmware.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.captured(); got.Digest() != want.Tree.Digest() {
		t.Errorf("captured state %s, the volume holds %s", got.Digest(), want.Tree.Digest())
	}
	if w.proxy.thawCalls() != 0 {
		t.Error("a guest that was never frozen was thawed")
	}
}

func TestOffline(t *testing.T) {
	w := newWorld(t)
	if err := w.start("pod-1", w.task(config.Offline)).end(t); err != nil {
		t.Fatal(err)
	}
	r := w.report()
	if diff := cmp.Diff(r.Witness.First, r.Witness.Second); diff != "" || r.Outcome != v1alpha1.OutcomeSucceeded {
		t.Errorf("outcome %q, readings differ (-first +second):\n%s", r.Outcome, diff)
	}
	w.captured()
}

func TestChanged(t *testing.T) {
	newTPM := func(w *world) error {
		dir := filepath.Dir(filepath.Join(w.state, permall))
		tmp := filepath.Join(dir, "TMP2-00.permall")
		if err := os.WriteFile(tmp, []byte("another state of the TPM"), 0o600); err != nil {
			return err
		}
		return os.Rename(tmp, filepath.Join(w.state, permall))
	}
	cases := map[string]struct {
		change  func(*world) error
		restart bool
		says    string
	}{
		"TPM":       {newTPM, false, permall + " changed its size"},
		"Variables": {func(w *world) error { return writeAt(filepath.Join(w.state, varsFD), 1000) }, false, varsFD + " was written"},
		"Restarted": {newTPM, true, "the firmware state changed; the witness restarted in between"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.start("pod-1", w.task(config.Running))
			w.firstReading()
			if tc.restart {
				p.kill(errKilled)
				if err := p.end(t); !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
				p = w.start("pod-2", w.task(config.Running))
			}
			if err := tc.change(w); err != nil {
				t.Fatal(err)
			}
			w.cut()
			if err := p.end(t); err != nil {
				t.Fatal(err)
			}
			r := w.report()
			if r.Witness.First.Digest == r.Witness.Second.Digest || len(r.Witness.Changed) != 1 || !strings.HasPrefix(r.Witness.Changed[0], tc.says) {
				t.Errorf("changes %q, want one that says %q", r.Witness.Changed, tc.says)
			}
		})
	}
}

func writeAt(path string, offset int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{0xee}, offset)
	return errors.Join(err, f.Close())
}

// TestRefused has states and rights with which no reading may be recorded.
func TestRefused(t *testing.T) {
	cases := map[string]struct {
		spoil  func(*world, *config.Config) error
		reason string
		says   string
	}{
		"TPMCut": {func(w *world, _ *config.Config) error { return os.Truncate(filepath.Join(w.state, permall), 700) },
			v1alpha1.ReasonStateDamaged, "700 bytes where its header says"},
		"OtherUUID": {func(_ *world, c *config.Config) error { c.Machine.FirmwareUUID = "other"; return nil },
			v1alpha1.ReasonStateDamaged, "would start with an empty TPM"},
		"Unreadable": {func(w *world, _ *config.Config) error { return os.RemoveAll(w.state) },
			v1alpha1.ReasonWitnessFailed, "open state volume"},
		"TooLarge": {func(w *world, _ *config.Config) error {
			return os.Truncate(filepath.Join(w.state, varsFD), maxState+1)
		}, v1alpha1.ReasonStateUnsupported, "too large"},
		"MayNotThaw": {func(w *world, _ *config.Config) error { return w.mayNotThaw() },
			v1alpha1.ReasonWitnessFailed, "may not unfreeze the guest"},
		"GivenUp": {func(w *world, _ *config.Config) error {
			w.attempt(func(a *v1alpha1.MomentAttempt) { a.Verdict = v1alpha1.AttemptDiscarded })
			return nil
		}, v1alpha1.ReasonWitnessFailed, "gave this attempt up"},
		"OtherBackup": {func(_ *world, c *config.Config) error { c.BackupUID = "deleted"; return nil },
			v1alpha1.ReasonWitnessFailed, "gave this attempt up"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			task := w.task(config.Running)
			if err := tc.spoil(w, &task); err != nil {
				t.Fatal(err)
			}
			err := w.start("pod-1", task).end(t)
			r := w.report()
			if err == nil || r.Outcome != v1alpha1.OutcomeFailed || r.Reason != tc.reason || !strings.Contains(r.Message, tc.says) {
				t.Errorf("ended with %v, reported %q %q %q; want %q that says %q", err, r.Outcome, r.Reason, r.Message, tc.reason, tc.says)
			}
			if r.Witness.First != nil || len(w.secrets()) != 0 {
				t.Errorf("a reading or %d Secrets of a refused state", len(w.secrets()))
			}
		})
	}
}

// mayNotThaw takes the right to unfreeze away and leaves the others.
func (w *world) mayNotThaw() error {
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: w.namespace}}
	if err := w.client.Delete(w.t.Context(), binding); err != nil {
		return err
	}
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: w.namespace},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"vmstate.io"}, Resources: []string{"vmstatebackups"}, Verbs: []string{"get", "list", "watch"}},
			{APIGroups: []string{"vmstate.io"}, Resources: []string{"vmstatereports", "vmstatereports/status"}, Verbs: []string{"get", "patch"}},
		},
	}
	w.create(role)
	w.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "less", Namespace: w.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: w.namespace}},
	})
	return nil
}

func (w *world) secrets() []corev1.Secret {
	w.t.Helper()
	list := &corev1.SecretList{}
	if err := w.client.List(w.t.Context(), list, client.InNamespace(w.namespace)); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

// TestDeadline has a manager that froze the guest and went silent.
func TestDeadline(t *testing.T) {
	cases := map[string]struct {
		reason  string
		answers []int
		calls   int
	}{
		"Thaws":    {"one thaw of a confirmed freeze is enough", []int{200}, 1},
		"Refused":  {"409 and errors are never a success", []int{409, 500, 503, 403, 200}, 5},
		"Gone":     {"an instance that is gone is not frozen", []int{404}, 1},
		"Accepted": {"virt-api answers 202 as well", []int{202}, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.proxy.answerThaws(tc.answers...)
			p := w.start("pod-1", w.task(config.Running))
			w.firstReading()
			w.freeze(3*time.Second, true)
			w.cut()
			if err := p.end(t); err != nil {
				t.Fatal(err)
			}
			r := w.report()
			if r.Witness.ReleasedAt == nil || w.proxy.thawCalls() != tc.calls {
				t.Fatalf("%s: released at %v after %d calls, want %d", tc.reason, r.Witness.ReleasedAt, w.proxy.thawCalls(), tc.calls)
			}
			freeze := w.backup.Status.Attempts[0].Freeze
			if late := r.Witness.ReleasedAt.Sub(freeze.Deadline.Time); late < -time.Second {
				t.Errorf("%s: thawed %s before the deadline", tc.reason, -late)
			}
		})
	}
}

// TestDeadlineRestarted has manager and witness die during a freeze; the next pod of
// the witness's Job finds the record and thaws.
func TestDeadlineRestarted(t *testing.T) {
	w := newWorld(t)
	p := w.start("pod-1", w.task(config.Running))
	w.firstReading()
	w.freeze(2*time.Second, true)
	p.kill(errKilled)
	if err := p.end(t); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	p = w.start("pod-2", w.task(config.Running))
	kube.Eventually(t, patient, func() error {
		if r := w.report(); r.Witness.ReleasedAt == nil {
			return fmt.Errorf("not released after %d calls", w.proxy.thawCalls())
		}
		return nil
	})
	w.attempt(func(a *v1alpha1.MomentAttempt) { a.Verdict = v1alpha1.AttemptDiscarded })
	if err := p.end(t); err == nil {
		t.Error("a witness of a discarded attempt reports no failure")
	}
	if w.proxy.thawCalls() != 1 {
		t.Errorf("%d thaws, want 1", w.proxy.thawCalls())
	}
}

// TestManagerReleases has a manager that thaws in time: the witness keeps away.
func TestManagerReleases(t *testing.T) {
	w := newWorld(t)
	p := w.start("pod-1", w.task(config.Running))
	w.firstReading()
	w.freeze(time.Hour, true)
	w.cut()
	kube.Eventually(t, patient, func() error {
		if o := w.report().Outcome; o != v1alpha1.OutcomeSucceeded {
			return fmt.Errorf("outcome %q", o)
		}
		return nil
	})
	select {
	case err := <-p.done:
		t.Fatalf("the witness left a frozen guest: %v", err)
	case <-time.After(time.Second):
	}
	now := metav1.NowMicro()
	w.attempt(func(a *v1alpha1.MomentAttempt) { a.Freeze.ReleasedAt = &now })
	if err := p.end(t); err != nil {
		t.Fatal(err)
	}
	if w.proxy.thawCalls() != 0 {
		t.Error("the witness thawed a guest that the manager had")
	}
}

// TestReportDeleted has somebody who deletes the report of a frozen guest.
func TestReportDeleted(t *testing.T) {
	w := newWorld(t)
	p := w.start("pod-1", w.task(config.Running))
	w.firstReading()
	w.freeze(time.Hour, true)
	if err := w.client.Delete(t.Context(), &v1alpha1.VMStateReport{ObjectMeta: metav1.ObjectMeta{Name: report, Namespace: w.namespace}}); err != nil {
		t.Fatal(err)
	}
	now := metav1.NowMicro()
	w.attempt(func(a *v1alpha1.MomentAttempt) { a.FirstReading, a.CutStarted, a.CutEnded = "lost", &now, &now })
	if err := p.end(t); !errors.Is(err, errReportGone) {
		t.Errorf("ended with %v, want errReportGone", err)
	}
	if w.proxy.thawCalls() != 1 {
		t.Errorf("%d thaws of a guest that nobody guards any more, want 1", w.proxy.thawCalls())
	}
}

// writes are the requests of a witness that change something, in their order.
func writes(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "selfsubjectaccessreviews")
}

// TestBadLuck breaks each write of a run in turn, in each way, and expects the same
// end: readings of one state, and Secrets that hold it.
func TestBadLuck(t *testing.T) {
	const writesOfARun = 3 // one Secret, the first reading, the second
	for name, f := range map[string]fault{"Refused": reject, "AnswerLost": loseAnswer, "KilledBefore": killBefore, "KilledAfter": killAfter} {
		for n := 1; n <= writesOfARun; n++ {
			t.Run(fmt.Sprintf("%s/%d", name, n), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				var seen atomic.Int32
				w.proxy.onRequest(func(r *http.Request) fault {
					if writes(r) && seen.Add(1) == int32(n) {
						return f
					}
					return pass
				})
				supervise(w)
				w.cut()
				kube.Eventually(t, patient, func() error {
					if r := w.report(); r.Outcome != v1alpha1.OutcomeSucceeded {
						return fmt.Errorf("outcome %q %s", r.Outcome, r.Message)
					}
					return nil
				})
				r := w.report()
				if r.Witness.First.Digest != r.Witness.Second.Digest {
					t.Errorf("readings differ: %q", r.Witness.Changed)
				}
				w.captured()
				if seen.Load() < writesOfARun {
					t.Errorf("%d writes in a run, this test counts on %d", seen.Load(), writesOfARun)
				}
			})
		}
	}
}

// supervise starts a witness, and another pod of its Job whenever it was killed.
func supervise(w *world) {
	p := w.start("pod-1", w.task(config.Running))
	go func() {
		for n := 2; errors.Is(<-p.done, errKilled) && w.t.Context().Err() == nil; n++ {
			p = w.start(fmt.Sprintf("pod-%d", n), w.task(config.Running))
		}
	}()
}
