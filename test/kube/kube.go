// Package kube gives tests a real API server: kube-apiserver and etcd as they are released, with the definitions of
// vmstate, external-snapshotter and KubeVirt, and on demand the real controllers beside it. No kubelet runs: a test
// plays it, by writing the status of pods.
//
// One server is shared by all tests of a binary, started by the first that asks; each test has a namespace of its own:
//
//	func TestMain(m *testing.M) { kube.Main(m, kube.KubeVirt, kube.ControllerManager) }
//
//	func TestStory(t *testing.T) {
//		cluster := kube.Shared(t)
//		namespace := cluster.Namespace(t)
//		…cluster.Client.Create(t.Context(), build.VM("db")…)
//	}
//
// The binaries come from the assets folder (see Assets); one that is missing fails the test with the command that
// builds it.
package kube

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmstate/vmstate/test/assets"
)

// Part is what a server has beside Kubernetes' own kinds and those of vmstate and the snapshots.
type Part string

const (
	// KubeVirt: its custom resource definitions. Its controllers and webhooks do not run.
	KubeVirt Part = "KubeVirt"
	// ControllerManager: kube-controller-manager with Jobs, garbage collection, namespaces, claims, quotas and role aggregation.
	ControllerManager Part = "ControllerManager"
	// SnapshotController: external-snapshotter's controller. It needs a driver's sidecars to get anywhere: see Cluster.StartSidecars.
	SnapshotController Part = "SnapshotController"
)

// Cluster is a running API server.
type Cluster struct {
	// Config is an administrator's.
	Config *rest.Config
	// Kubeconfig is the name of a file with the same.
	Kubeconfig string
	// Client reads from the server, not from a cache, and knows every kind in Scheme.
	Client client.WithWatch

	parts     map[Part]bool
	assets    string
	directory string
	env       *envtest.Environment
	mutex     sync.Mutex
	processes []*process
}

var shared struct {
	once    sync.Once
	parts   []Part
	cluster *Cluster
	err     error
}

// Main runs the tests of a binary and stops what Shared has started. It does not return.
func Main(m *testing.M, parts ...Part) { os.Exit(Run(m, parts...)) }

// Run is Main for those who have more to do before they exit with its result.
func Run(m interface{ Run() int }, parts ...Part) int {
	shared.parts = parts
	code := m.Run()
	if shared.cluster != nil {
		if err := shared.cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "kube: error:", err)
			code = max(code, 1)
		}
	}
	return code
}

// Shared is the server of this test binary. TestMain must call Main.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	shared.once.Do(func() { shared.cluster, shared.err = Start(shared.parts...) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.cluster
}

// Start starts a server; the caller stops it.
func Start(parts ...Part) (*Cluster, error) {
	c := &Cluster{parts: map[Part]bool{}}
	for _, p := range parts {
		c.parts[p] = true
	}
	if err := c.start(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start() error {
	var err error
	if c.assets, err = assets.Folder(); err != nil {
		return err
	}
	if c.directory, err = os.MkdirTemp("", "vmstate-kube-"); err != nil {
		return err
	}
	definitions, err := c.definitions()
	if err != nil {
		return err
	}
	if err := c.startServer(definitions); err != nil {
		return err
	}
	c.Kubeconfig = filepath.Join(c.directory, "kubeconfig")
	if err := os.WriteFile(c.Kubeconfig, c.env.KubeConfig, 0o600); err != nil {
		return err
	}
	if c.Client, err = client.NewWithWatch(c.Config, client.Options{Scheme: Scheme()}); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if err := c.installPriority(); err != nil {
		return err
	}
	return c.startControllers()
}

func (c *Cluster) startServer(definitions []string) error {
	for _, binary := range []string{"kube-apiserver", "etcd"} {
		if _, err := c.binary(binary); err != nil {
			return err
		}
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory:    c.assets,
		CRDInstallOptions:        envtest.CRDInstallOptions{Paths: definitions, ErrorIfPathMissing: true, MaxTime: time.Minute},
		ControlPlaneStartTimeout: 2 * time.Minute, // on a machine that builds at the same time
		ControlPlaneStopTimeout:  time.Minute,
	}
	log.SetLogger(logr.Discard()) // envtest's own words; a test that wants logs sets its logger afterwards
	env.ControlPlane.Etcd = &envtest.Etcd{}
	env.ControlPlane.Etcd.Configure().Set("unsafe-no-fsync", "true")
	config, err := env.Start()
	c.env = env
	if err != nil {
		return fmt.Errorf("start API server: %w", err)
	}
	c.Config = config
	return nil
}

// Stop ends every process that was started and removes its files.
func (c *Cluster) Stop() error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var errs []error
	for _, p := range c.processes {
		errs = append(errs, p.stop())
	}
	c.processes = nil
	if c.env != nil {
		errs = append(errs, c.env.Stop())
	}
	if c.directory != "" {
		errs = append(errs, os.RemoveAll(c.directory))
	}
	return errors.Join(errs...)
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// Namespace makes a namespace for one test, with the labels given as pairs. It is deleted after the test if a
// controller manager runs that can do so.
func (c *Cluster) Namespace(t testing.TB, labels ...string) string {
	t.Helper()
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(t.Name()), "-"), "-")
	name = strings.Trim(name[:min(len(name), 40)], "-") + "-" + rand.String(5)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i+1 < len(labels); i += 2 {
		namespace.Labels[labels[i]] = labels[i+1]
	}
	if err := c.Client.Create(t.Context(), namespace); err != nil {
		t.Fatalf("create namespace %q: %v", name, err)
	}
	if c.parts[ControllerManager] {
		t.Cleanup(func() { c.remove(t, namespace) })
	}
	return name
}

// Eventually calls check until it returns nil, and fails the test with its last error after timeout.
func Eventually(t testing.TB, timeout time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %v", timeout, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
