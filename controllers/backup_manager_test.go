package controllers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/metrics"
	"github.com/vmstate/vmstate/pkg/snapshotset"
	"github.com/vmstate/vmstate/test/build"
	"github.com/vmstate/vmstate/test/kube"
)

// TestManager runs the controllers as cmd/manager does, with caches and watches. A watch that
// does not wake its backup would leave it to the timer of lookAgain: the window between the
// two readings would have seconds.
func TestManager(t *testing.T) {
	for name, disks := range map[string][]string{"SingleDisk": {"root"}, "Group": {"root", "data"}} {
		t.Run(name, func(t *testing.T) {
			w := newBackupWorld(t, disks...)
			w.start(true)
			startManager(t, w)
			w.backup(nil)
			b := &v1alpha1.VMStateBackup{}
			kube.Eventually(t, time.Minute, func() error {
				w.play()
				if !w.get("nightly", b) || b.Status.CompletedAt == nil || len(b.Finalizers) > 0 {
					return fmt.Errorf("not done: %s", said(b))
				}
				return nil
			})
			if s := said(b); s[:4] != "True" {
				t.Fatal(s)
			}
			m := b.Status.Moment
			t.Logf("window %d ms, frozen %d ms, cut %s", m.WindowMilliseconds, m.FrozenMilliseconds, m.CutEnded.Sub(m.CutStarted.Time))
			if m.WindowMilliseconds >= 4000 {
				t.Errorf("the window is %d ms: something waited for a timer", m.WindowMilliseconds)
			}
			w.clean(b)
		})
	}
}

func startManager(t *testing.T, w *backupWorld) {
	t.Helper()
	t.Cleanup(runManager(t, w))
}

// runManager starts a manager, and returns what stops it.
func runManager(t *testing.T, w *backupWorld) (end func()) {
	t.Helper()
	skip := true // one process starts several managers here
	mgr, err := ctrl.NewManager(w.cluster.Config, ctrl.Options{
		Scheme: NewScheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: &skip},
	})
	w.must(err)
	r := &BackupReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Guests: w.guest, Events: mgr.GetEventRecorder("vmstate"),
		Metrics: metrics.New(prometheus.NewRegistry()), Image: "localhost/vmstate:dev", Process: "manager",
		Knowledge: snapshotset.NewKnowledge([]snapshotset.Driver{{Name: build.Driver, GroupsCutTogether: true, Source: "test"}}),
	}
	s := &StoreReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("vmstate"), Image: "localhost/vmstate:dev"}
	w.must(r.SetupWithManager(mgr))
	w.must(s.SetupWithManager(mgr))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	return sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("manager: %v", err)
		}
	})
}
