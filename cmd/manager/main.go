// Command manager is the controller manager of vmstate.
package main

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/vmstate/vmstate/controllers"
	"github.com/vmstate/vmstate/pkg/metrics"
	"github.com/vmstate/vmstate/pkg/snapshotset"
)

// leaderElectionID is the lease that config/rbac lets the manager hold.
const leaderElectionID = "vmstate-manager"

// options are the flags and the environment.
type options struct {
	leaderElect bool
	probes      string
	metrics     string
	image       string
	config      string
}

// configuration is the file that --config names.
type configuration struct {
	// Drivers that the administrator vouches for, before what vmstate knows.
	Drivers []snapshotset.Driver `json:"drivers"`
}

func main() {
	klog.InitFlags(nil)
	o := options{image: os.Getenv("VMSTATE_IMAGE")}
	flag.BoolVar(&o.leaderElect, "leader-elect", false, "let one of several managers work")
	flag.StringVar(&o.probes, "health-probe-bind-address", ":8081", "where /healthz and /readyz are served")
	flag.StringVar(&o.metrics, "metrics-bind-address", "0", "where /metrics is served; 0 for nowhere")
	flag.StringVar(&o.image, "image", o.image, "image of vmstate's Jobs (default: $VMSTATE_IMAGE)")
	flag.StringVar(&o.config, "config", "", "file with what an administrator says of the cluster, as YAML")
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	if err := run(o); err != nil {
		klog.ErrorS(err, "Cannot go on")
		os.Exit(1)
	}
}

func run(o options) error {
	if o.image == "" {
		return errors.New("neither --image nor VMSTATE_IMAGE names the image of the Jobs")
	}
	config, err := readConfiguration(o.config)
	if err != nil {
		return err
	}
	mgr, err := newManager(o)
	if err != nil {
		return err
	}
	if err := setup(mgr, o, config); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

func readConfiguration(path string) (configuration, error) {
	var out configuration
	if path == "" {
		return out, nil
	}
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return out, nil // the ConfigMap that it comes from is optional
	}
	if err != nil {
		return out, fmt.Errorf("read configuration: %w", err)
	}
	if err := yaml.UnmarshalStrict(raw, &out); err != nil {
		return out, fmt.Errorf("read configuration %q: %w", path, err)
	}
	return out, nil
}

func newManager(o options) (ctrl.Manager, error) {
	rest, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	// A cut is a handful of requests that must not queue behind a limit of our own: the API
	// server's priority and fairness is the one that counts.
	rest.QPS = -1
	release := 5 * time.Second
	mgr, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme:                        controllers.NewScheme(),
		HealthProbeBindAddress:        o.probes,
		Metrics:                       metricsserver.Options{BindAddress: o.metrics},
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       &release,
		Client:                        client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("make the manager: %w", err)
	}
	return mgr, nil
}

func setup(mgr ctrl.Manager, o options, config configuration) error {
	guests, err := controllers.NewGuests(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	recorder := mgr.GetEventRecorder("vmstate")
	measured := metrics.New(ctrlmetrics.Registry)
	backups := &controllers.BackupReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Guests: guests, Events: recorder,
		Metrics: measured, Image: o.image, Process: processName(),
		Knowledge: snapshotset.NewKnowledge(config.Drivers),
	}
	stores := &controllers.StoreReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder, Metrics: measured, Image: o.image,
	}
	restores := &controllers.RestoreReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Guests: guests, Events: recorder, Image: o.image}
	kept := &controllers.KeptReconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder}
	for _, r := range []interface{ SetupWithManager(ctrl.Manager) error }{backups, stores, restores, kept} {
		if err := r.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("set up controllers: %w", err)
		}
	}
	if err := mgr.Add(manager.Runnable(controllers.Releaser{Backups: backups})); err != nil {
		return fmt.Errorf("add the releaser: %w", err)
	}
	leftovers := &controllers.Leftovers{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder, Metrics: measured}
	if err := mgr.Add(leftovers); err != nil {
		return fmt.Errorf("add the look for what is left over: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("add readiness check: %w", err)
	}
	return nil
}

// processName is different for every process that ever runs: a freeze that another one asked
// for must never be taken for one's own.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "manager"
	}
	return host + "-" + rand.Text()[:8]
}
