package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/firmware"
	"github.com/vmstate/vmstate/pkg/witness/config"
	"github.com/vmstate/vmstate/test/build"
	"github.com/vmstate/vmstate/test/firmwaredata"
	"github.com/vmstate/vmstate/test/kube"
)

func TestMain(m *testing.M) { kube.Main(m) }

const (
	vmName  = "db"
	permall = "swtpm/" + build.FirmwareUUID + "/tpm2/tpm2-00.permall"
	varsFD  = "nvram/" + vmName + "_VARS.fd"
	account = "witness"
	report  = "vmstate-b-witness-1"
	patient = 60 * time.Second
)

// world is one backup on a real API server, with the state of its VM in a folder
// and a proxy in front of the server that plays KubeVirt and the bad luck.
type world struct {
	t         *testing.T
	client    client.Client
	namespace string
	state     string
	proxy     *proxy
	config    *rest.Config // the witness's, by way of the proxy
	backup    *v1alpha1.VMStateBackup
}

func newWorld(t *testing.T) *world {
	t.Helper()
	cluster := kube.Shared(t)
	w := &world{t: t, client: cluster.Client, namespace: cluster.Namespace(t), state: stateFolder(t)}
	w.bind()
	w.proxy = newProxy(t, cluster.Config)
	w.config = &rest.Config{Host: w.proxy.server.URL, Impersonate: rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + w.namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}}
	w.backup = build.Backup("b", vmName)
	w.backup.Namespace, w.backup.UID = w.namespace, ""
	w.create(w.backup)
	w.create(&v1alpha1.VMStateReport{
		ObjectMeta: metav1.ObjectMeta{Name: report, Namespace: w.namespace},
		Spec:       v1alpha1.VMStateReportSpec{Task: v1alpha1.TaskWitness},
	})
	w.attempt(func(*v1alpha1.MomentAttempt) {})
	return w
}

// bind gives the witness the rights that it is installed with, and no other.
func (w *world) bind() {
	w.t.Helper()
	root, err := kube.Root()
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(root, "config/rbac/jobs.yaml"))
	if err != nil {
		w.t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(b), "\n---\n") {
		role := &rbacv1.ClusterRole{}
		if err := yaml.Unmarshal([]byte(document), role); err != nil {
			w.t.Fatal(err)
		}
		if role.Name == "vmstate-witness" {
			if err := w.client.Create(w.t.Context(), role); client.IgnoreAlreadyExists(err) != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: w.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "vmstate-witness"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: w.namespace}},
	})
}

func (w *world) create(o client.Object) {
	w.t.Helper()
	if err := w.client.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// attempt changes the attempt in the backup's status, as the manager would.
func (w *world) attempt(edit func(*v1alpha1.MomentAttempt)) {
	w.t.Helper()
	before := w.backup.DeepCopy()
	if len(w.backup.Status.Attempts) == 0 {
		w.backup.Status.Attempts = []v1alpha1.MomentAttempt{{Number: 1, StartedAt: metav1.NowMicro()}}
	}
	w.backup.Status.VM = &v1alpha1.CapturedVM{InstanceUID: "vmi"}
	edit(&w.backup.Status.Attempts[0])
	if err := w.client.Status().Patch(w.t.Context(), w.backup, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// cut records that all snapshots were cut against the first reading of the report.
func (w *world) cut() {
	w.t.Helper()
	first := w.firstReading()
	now := metav1.NowMicro()
	w.attempt(func(a *v1alpha1.MomentAttempt) { a.FirstReading, a.CutStarted, a.CutEnded = first.Digest, &now, &now })
}

func (w *world) freeze(length time.Duration, confirmed bool) {
	w.t.Helper()
	now := metav1.NowMicro()
	w.attempt(func(a *v1alpha1.MomentAttempt) {
		a.Freeze = &v1alpha1.FreezeRecord{RequestedAt: now, Deadline: metav1.NewMicroTime(now.Add(length))}
		if confirmed {
			a.Freeze.FrozenAt = &now
		}
	})
}

func (w *world) report() v1alpha1.VMStateReportStatus {
	w.t.Helper()
	r := &v1alpha1.VMStateReport{}
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: report}, r); err != nil {
		w.t.Fatal(err)
	}
	return r.Status
}

func (w *world) firstReading() *v1alpha1.WitnessReading {
	w.t.Helper()
	var first *v1alpha1.WitnessReading
	kube.Eventually(w.t, patient, func() error {
		r := w.report()
		if r.Witness == nil || r.Witness.First == nil {
			return fmt.Errorf("no first reading; outcome %q: %s", r.Outcome, r.Message)
		}
		first = r.Witness.First
		return nil
	})
	return first
}

// captured is the tree in the Secrets that the report names, which must have its digest.
func (w *world) captured() firmware.Tree {
	w.t.Helper()
	r := w.report()
	var chunks [][]byte
	for _, name := range r.Witness.SecretNames {
		s := &corev1.Secret{}
		if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, s); err != nil {
			w.t.Fatal(err)
		}
		if s.Immutable == nil || !*s.Immutable || s.Labels[v1alpha1.LabelVeleroExclude] != "true" || s.OwnerReferences[0].Name != report {
			w.t.Errorf("Secret %q can be changed, copied or left behind: %+v", name, s.ObjectMeta)
		}
		chunks = append(chunks, s.Data[config.SecretKey])
	}
	tree, err := firmware.Unpack(chunks, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	if tree.Digest() != r.Witness.StateDigest {
		w.t.Errorf("the Secrets hold state %s, the report says %s", tree.Digest(), r.Witness.StateDigest)
	}
	return tree
}

func (w *world) task(mode config.Mode) config.Config {
	return config.Config{
		BackupName: w.backup.Name, BackupUID: string(w.backup.UID), Attempt: 1, Mode: mode, StateDir: w.state,
		Machine: config.Machine{VMName: vmName, FirmwareUUID: build.FirmwareUUID, PersistentTPM: true, PersistentEFI: true},
	}
}

// process is one running witness.
type process struct {
	kill context.CancelCauseFunc
	done chan error
}

var errKilled = errors.New("killed")

// start runs a witness as the pod of that UID.
func (w *world) start(podUID string, task config.Config) *process {
	w.t.Helper()
	calls, err := newAPI(w.config, w.namespace)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, kill := context.WithCancelCause(w.t.Context())
	p := &process{kill: kill, done: make(chan error, 1)}
	w.proxy.onKill(func() { kill(errKilled) })
	r := newRunner(task, identity{namespace: w.namespace, report: report, podUID: podUID}, calls)
	go func() { p.done <- r.run(ctx) }()
	w.t.Cleanup(func() { kill(errKilled) })
	return p
}

// end waits for the process's own end.
func (p *process) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-p.done:
		return err
	case <-time.After(patient):
		t.Fatal("the witness does not end")
		return nil
	}
}

// stateFolder is the state volume of a machine that has booted.
func stateFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		varsFD: firmwaredata.File(t, "secureboot_VARS.fd.zst"), permall: firmwaredata.File(t, "tpm2-00.permall"),
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// proxy stands before the API server. It answers for virt-api, which does not run
// here, and breaks single requests.
type proxy struct {
	server *httptest.Server
	mutex  sync.Mutex
	// thaws are the answers of virt-api still to be given; the last one stays.
	thaws  []int
	thawed int
	// paused says that the instance db is; unpauses are the answers to come, the last one stays.
	paused   bool
	unpauses []int
	unpaused int
	// down says that virt-api is.
	down    bool
	fault   func(r *http.Request) fault
	killers []func()
}

// fault is what becomes of one request.
type fault int

const (
	pass        fault = iota
	reject            // 503, and the server never sees it
	loseAnswer        // the server does it, the witness hears 503
	killBefore        // the witness dies, and the server never sees it
	killAfter         // the server does it, and the witness dies before it hears
	malfunction = http.StatusServiceUnavailable
)

func newProxy(t *testing.T, c *rest.Config) *proxy {
	t.Helper()
	target, err := url.Parse(c.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(c)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(target)
	forward.Transport, forward.FlushInterval = transport, -1
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(malfunction) }
	p := &proxy{thaws: []int{http.StatusOK}, fault: func(*http.Request) fault { return pass }}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, forward) }))
	t.Cleanup(p.server.CloseClientConnections)
	return p
}

func (p *proxy) serve(w http.ResponseWriter, r *http.Request, forward http.Handler) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/unpause"):
		p.unpause(w, r)
		return
	case strings.HasPrefix(r.URL.Path, "/apis/subresources.kubevirt.io/"):
		p.virtAPI(w, r)
		return
	case strings.HasPrefix(r.URL.Path, "/apis/kubevirt.io/"):
		p.instance(w)
		return
	}
	p.mutex.Lock()
	fault := p.fault(r)
	p.mutex.Unlock()
	switch fault {
	case pass:
		forward.ServeHTTP(w, r)
	case reject:
		w.WriteHeader(malfunction)
	case loseAnswer:
		forward.ServeHTTP(httptest.NewRecorder(), r)
		w.WriteHeader(malfunction)
	case killBefore:
		p.killAll()
	case killAfter:
		forward.ServeHTTP(httptest.NewRecorder(), r)
		p.killAll()
	}
}

// virtAPI answers an unfreeze as virt-api does.
func (p *proxy) virtAPI(w http.ResponseWriter, r *http.Request) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.thawed++
	code := p.thaws[0]
	if len(p.thaws) > 1 {
		p.thaws = p.thaws[1:]
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if code == http.StatusNotFound {
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,`+
			`"message":"virtualmachineinstance.kubevirt.io \"db\" not found","details":{"name":"db","group":"kubevirt.io","kind":"virtualmachineinstance"}}`)
	}
}

func (p *proxy) answerThaws(codes ...int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.thaws = codes
}

func (p *proxy) thawCalls() int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return p.thawed
}

// onRequest sets what becomes of requests from now on.
func (p *proxy) onRequest(f func(r *http.Request) fault) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.fault = f
}

func (p *proxy) onKill(f func()) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.killers = append(p.killers, f)
}

func (p *proxy) killAll() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, kill := range p.killers {
		kill()
	}
	p.killers = nil
}
