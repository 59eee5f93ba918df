package controllers

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/test/build"
	"github.com/vmstate/vmstate/test/kube"
)

// limit bounds the movers of the store.
func (w *backupWorld) limit(limits v1alpha1.StoreLimits) {
	w.t.Helper()
	s := &v1alpha1.VMStateStore{}
	w.get("main", s)
	s.Spec.Limits = &limits
	status := s.Status
	w.must(w.cluster.Client.Update(w.t.Context(), s))
	s.Status = status
	probed := metav1.NewTime(w.now())
	s.Status.ObservedGeneration, s.Status.ProbedAt = s.Generation, &probed // it need not be probed again
	w.must(w.cluster.Client.Status().Update(w.t.Context(), s))
}

// ours are the backups of the namespace.
func (w *backupWorld) ours() []v1alpha1.VMStateBackup {
	w.t.Helper()
	list := &v1alpha1.VMStateBackupList{}
	w.must(w.cluster.Client.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	return list.Items
}

// countMovers lists the export Jobs, again and again until the test ends, and returns how many there were at most.
func (w *backupWorld) countMovers() (most func() int) {
	ctx, stop := context.WithCancel(w.t.Context())
	result := make(chan int, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			jobs := &batchv1.JobList{}
			of := client.MatchingLabels{v1alpha1.LabelStore: "main"}
			if err := w.cluster.Client.List(ctx, jobs, client.InNamespace(w.namespace), of); err == nil {
				n = max(n, len(jobs.Items))
			}
			time.Sleep(10 * time.Millisecond)
		}
		result <- n
	}()
	return func() int { stop(); return <-result }
}

// TestQueue: backups of a store that lets three movers work, fifty of them with VMSTATE_QUEUE=large, two managers at work at the same time, and both replaced on the
// way: there are never more than three Jobs, everybody who waits is told where it stands, nothing is written while nothing
// moves, and each backup is stored.
func TestQueue(t *testing.T) {
	const limit = 3
	backups := 12
	if os.Getenv("VMSTATE_QUEUE") == "large" {
		backups = 50
	}
	w := newBackupWorld(t, "root")
	w.limit(v1alpha1.StoreLimits{Movers: limit, MoversPerNode: 2})
	stop := []func(){runManager(t, w), runManager(t, w)}
	for _, s := range stop {
		t.Cleanup(s)
	}
	most := w.countMovers()
	w.mute[string(v1alpha1.TaskExport)] = true
	for i := range backups {
		b := build.Backup(fmt.Sprintf("b%02d", i), "db")
		w.create(b)
	}
	place := regexp.MustCompile(fmt.Sprintf(`^[0-9]+(st|nd|rd|th) of %d waiting for a mover of store "main"$`, backups-limit))
	kube.Eventually(t, 15*time.Minute, func() error {
		w.play()
		placed := 0
		for _, b := range w.ours() {
			c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
			if c != nil && c.Reason == v1alpha1.ReasonWaitingForMover && place.MatchString(c.Message) {
				placed++
			}
		}
		if placed != backups-limit {
			return fmt.Errorf("%d backups say where they stand", placed)
		}
		return nil
	})
	w.standsStill()
	for _, s := range stop {
		s()
	}
	t.Cleanup(runManager(t, w))
	t.Cleanup(runManager(t, w))
	w.mute[string(v1alpha1.TaskExport)] = false
	kube.Eventually(t, 15*time.Minute, func() error {
		w.play()
		for _, b := range w.ours() {
			if s := said(&b); b.Status.Failure != nil {
				t.Fatalf("%s: %s", b.Name, s)
			} else if !strings.HasPrefix(s, "True") {
				return fmt.Errorf("%s: %s", b.Name, s)
			}
		}
		return nil
	})
	if n := most(); n != limit {
		t.Errorf("there were %d movers at a time, want %d", n, limit)
	}
}

// standsStill: while no mover ends, neither the store nor a backup is written.
func (w *backupWorld) standsStill() {
	w.t.Helper()
	versions := func() map[string]string {
		s := &v1alpha1.VMStateStore{}
		w.get("main", s)
		out := map[string]string{"store": s.ResourceVersion}
		for _, b := range w.ours() {
			out[b.Name] = b.ResourceVersion
		}
		return out
	}
	time.Sleep(2 * placePause) // what was put off is written
	before := versions()
	time.Sleep(2 * placePause)
	for name, version := range versions() {
		if before[name] != version {
			w.t.Errorf("%s is written while nothing moves", name)
		}
	}
}

// TestLimitLifted: without a limit nobody waits, also who did.
func TestLimitLifted(t *testing.T) {
	w := newBackupWorld(t, "root")
	w.limit(v1alpha1.StoreLimits{Movers: 1})
	startManager(t, w)
	w.mute[string(v1alpha1.TaskExport)] = true
	for _, name := range []string{"a", "b"} {
		w.create(build.Backup(name, "db"))
	}
	waiting := func() (n int) {
		for _, b := range w.ours() {
			if b.Status.QueuedAt != nil && strings.Contains(said(&b), `1st of 1 waiting for a mover of store "main"`) {
				n++
			}
		}
		return n
	}
	kube.Eventually(t, 5*time.Minute, func() error {
		w.play()
		if n := waiting(); n != 1 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	w.limit(v1alpha1.StoreLimits{})
	w.mute[string(v1alpha1.TaskExport)] = false
	kube.Eventually(t, 5*time.Minute, func() error {
		w.play()
		s := &v1alpha1.VMStateStore{}
		w.get("main", s)
		for _, b := range w.ours() {
			if !strings.HasPrefix(said(&b), "True") || b.Status.QueuedAt != nil || s.Status.Movers != nil {
				return fmt.Errorf("%s: %s, store %+v", b.Name, said(&b), s.Status.Movers)
			}
		}
		return nil
	})
}
