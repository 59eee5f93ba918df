package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/pkg/mover"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
)

// A mover that is to be killed is a process of its own: this test's binary, started
// with these.
const (
	envChild   = "VMSTATE_TEST_TASK"
	envCluster = "VMSTATE_TEST_KUBECONFIG"
	envPaths   = "VMSTATE_TEST_PATHS"
)

// child is main with the API server and the mounts of the test.
func child() int {
	cluster, err := clientcmd.BuildConfigFromFlags("", os.Getenv(envCluster))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitRetry
	}
	var paths mover.Paths
	if err := json.Unmarshal([]byte(os.Getenv(envPaths)), &paths); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitRetry
	}
	p, err := wire(os.Getenv(envChild), cluster, os.Getenv, paths)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitRetry
	}
	return p.serve()
}

// gate lets requests through to a server and kills a process at one of them.
type gate struct {
	url string
	// count of requests so far; kill is the one to kill at, 0 for none.
	count, kill atomic.Int64
	// after says that the server is to see that request, and the process not its answer.
	after atomic.Bool
	// starting is held while the victim is started, which sends requests at once.
	starting sync.Mutex
	victim   *os.Process
	// sent are bytes that were put; from the first so many on, if that is not 0, the process is told to end.
	sent, tell atomic.Int64
}

func newGate(t *testing.T, target string, transport http.RoundTripper) *gate {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{}
	pass := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host
	}}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			if g.sent.Add(r.ContentLength) >= g.tell.Load() && g.tell.Swap(0) > 0 {
				g.starting.Lock()
				_ = g.victim.Signal(syscall.SIGTERM)
				g.starting.Unlock()
			}
		}
		if g.count.Add(1) != g.kill.Load() {
			pass.ServeHTTP(w, r)
			return
		}
		if g.after.Load() {
			pass.ServeHTTP(httptest.NewRecorder(), r)
		}
		g.starting.Lock()
		defer g.starting.Unlock()
		_ = g.victim.Kill()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(front.Close)
	g.url = front.URL
	return g
}

// killable runs tasks as processes whose requests to the bucket and to the API server
// pass one gate.
type killable struct {
	*site
	gate       *gate
	kubeconfig string
	// remount does what the kubelet does for the pod after the one that was killed.
	remount func(what string)
	runs    int
}

func newKillable(t *testing.T) *killable {
	t.Helper()
	k := &killable{site: newPlainSite(t), remount: func(string) {}}
	k.kubeconfig = k.cluster.Kubeconfig
	k.gate = newGate(t, k.store.Endpoint, nil)
	k.store.Endpoint = k.gate.url
	return k
}

// start runs one pod of a Job and returns what it said.
func (k *killable) start(t *testing.T, task v1alpha1.ReportTask, name string, c config.Config) string {
	t.Helper()
	raw, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	paths, err := json.Marshal(k.paths)
	if err != nil {
		t.Fatal(err)
	}
	k.runs++
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(),
		envChild+"="+strings.ToLower(string(task)), envCluster+"="+k.kubeconfig, envPaths+"="+string(paths),
		job.EnvConfig+"="+string(raw), job.EnvReport+"="+name, job.EnvNamespace+"="+k.namespace,
		job.EnvPodUID+"="+fmt.Sprintf("pod-%d", k.runs))
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	k.gate.starting.Lock()
	err = cmd.Start()
	k.gate.victim = cmd.Process
	k.gate.starting.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // how it ended is in the report
	return output.String()
}

// killEverywhere kills the task at each request to the bucket, lets the next pod of the
// Job finish, and has check look at what came of it.
func (k *killable) killEverywhere(t *testing.T, task v1alpha1.ReportTask, prepare func(n string) config.Config, check func(what string, got v1alpha1.VMStateReportStatus)) {
	t.Helper()
	for _, after := range []bool{false, true} {
		for n := int64(1); ; n++ {
			what := fmt.Sprintf("%s-%t-%d", strings.ToLower(string(task)), after, n)
			c := prepare(what)
			report := k.newReport(t, task, what)
			k.gate.count.Store(0)
			k.gate.after.Store(after)
			k.gate.kill.Store(n)
			output := k.start(t, task, what, c)
			k.gate.kill.Store(0)
			reached := k.gate.count.Load() >= n
			if reached {
				k.remount(what)
				output += k.start(t, task, what, c)
			}
			if err := k.cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(report), report); err != nil {
				t.Fatal(err)
			}
			if report.Status.Outcome != v1alpha1.OutcomeSucceeded {
				t.Fatalf("%s: %+v\n%s", what, report.Status, output)
			}
			check(what, report.Status)
			if !reached {
				t.Logf("%s: killed at each of %d requests, after=%t", task, n-1, after)
				break
			}
		}
	}
}

// TestKilled kills export and import with SIGKILL at every request that they send to
// the bucket: the next pod ends with one whole backup, or with whole volumes.
func TestKilled(t *testing.T) {
	k := newKillable(t)
	if code, got := k.run(t, v1alpha1.TaskSetup, "setup", k.setup()); code != exitDone {
		t.Fatalf("setup: %+v", got)
	}
	k.mountKeys(t, keysName)
	image := filepath.Join(k.paths.Volumes, "root", "disk.img")
	var want []byte
	var last v1alpha1.CommitRef
	commits := map[string]string{}
	k.killEverywhere(t, v1alpha1.TaskExport, func(n string) config.Config {
		task := k.exportTask(t, v1alpha1.Moment{CutEnded: metav1.NowMicro()}, v1alpha1.VolumeFacts{Name: "root", Role: v1alpha1.RoleDisk})
		task.VM.UID, task.BackupUID = "vm-"+n, "backup-"+n
		return config.Config{Store: &k.store, Export: task}
	}, func(what string, got v1alpha1.VMStateReportStatus) {
		last = got.Export.Commit
		if other, twice := commits[last.Key]; twice || last.Sequence != 1 {
			t.Errorf("%s: commit %+v, also of %q", what, last, other)
		}
		commits[last.Key] = what
	})
	want, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	k.killEverywhere(t, v1alpha1.TaskImport, func(string) config.Config {
		if err := os.Remove(image); err != nil {
			t.Fatal(err)
		}
		return config.Config{Store: &k.store, Import: &config.Import{
			Commit: &config.Commit{Key: last.Key, Digest: last.Digest},
			Disks:  []config.Disk{{Name: "root", Mode: config.Filesystem}},
		}}
	}, func(what string, _ v1alpha1.VMStateReportStatus) {
		if got, err := os.ReadFile(image); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes that are not those of the backup, %v", what, len(got), err)
		}
	})
}

// TestTerminated: an export whose pod is told to end, as by a drain, keeps what it has sent and says so; the next pod sends the
// rest alone. An import goes on as well.
func TestTerminated(t *testing.T) {
	const size = 80 << 20
	k := newKillable(t)
	if code, got := k.run(t, v1alpha1.TaskSetup, "setup", k.setup()); code != exitDone {
		t.Fatalf("setup: %+v", got)
	}
	k.mountKeys(t, keysName)
	task := k.exportTask(t, v1alpha1.Moment{CutEnded: metav1.NowMicro()}, v1alpha1.VolumeFacts{Name: "root", Role: v1alpha1.RoleDisk})
	image, content := filepath.Join(k.paths.Volumes, "root", "disk.img"), string(storetest.Bytes(5, size))
	write(t, image, content)
	twice := func(task v1alpha1.ReportTask, name string, c config.Config, tell func()) (v1alpha1.VMStateReportStatus, string) {
		report := k.newReport(t, task, name)
		read := func() v1alpha1.VMStateReportStatus {
			if err := k.cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(report), report); err != nil {
				t.Fatal(err)
			}
			return report.Status
		}
		tell()
		output := k.start(t, task, name, c)
		if got := read(); got.Outcome != "" || got.Message != stoppedMessage {
			t.Fatalf("%s was told to end, and reports %+v\n%s", name, got, output)
		}
		output += k.start(t, task, name, c)
		got := read()
		if got.Outcome != v1alpha1.OutcomeSucceeded || got.Message != "" {
			t.Fatalf("%s: %+v\n%s", name, got, output)
		}
		return got, output
	}
	k.gate.sent.Store(0)
	got, output := twice(v1alpha1.TaskExport, "export", config.Config{Store: &k.store, Export: task}, func() { k.gate.tell.Store(16 << 20) })
	if again := k.gate.sent.Load() - size; again > 1<<20 || again < 0 {
		t.Errorf("%d bytes were sent that need not have been\n%s", again, output)
	}
	write(t, image, "")
	twice(v1alpha1.TaskImport, "import", config.Config{Store: &k.store, Import: &config.Import{
		Commit: &config.Commit{Key: got.Export.Commit.Key, Digest: got.Export.Commit.Digest},
		Disks:  []config.Disk{{Name: "root", Mode: config.Filesystem}}, Reader: "restore-uid",
	}}, func() { k.gate.sent.Store(0); k.gate.tell.Store(1) }) // the pin is the first that it puts
	if back, err := os.ReadFile(image); err != nil || string(back) != content {
		t.Errorf("%d bytes came back, %v", len(back), err)
	}
}

// TestSetupKilled kills setup at every request to the API server: the keys are kept once,
// and the repository is of those keys.
func TestSetupKilled(t *testing.T) {
	k := newKillable(t)
	transport, err := rest.TransportFor(k.cluster.Config)
	if err != nil {
		t.Fatal(err)
	}
	api := newGate(t, k.cluster.Config.Host, transport)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, kubeconfig, fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`, api.url))
	k.kubeconfig, k.gate = kubeconfig, api
	k.remount = func(what string) { k.mountKeys(t, "keys-"+what) }
	prefix := k.store.Prefix
	k.killEverywhere(t, v1alpha1.TaskSetup, func(n string) config.Config {
		if err := os.RemoveAll(k.paths.RepositoryKeys); err != nil {
			t.Fatal(err)
		}
		c := k.setup()
		c.Store.Prefix, c.Setup.KeysSecretName = prefix+"/"+n, "keys-"+n
		return c
	}, func(what string, got v1alpha1.VMStateReportStatus) {
		if !got.Setup.Writable {
			t.Errorf("%s: %+v", what, got.Setup)
		}
	})
}
