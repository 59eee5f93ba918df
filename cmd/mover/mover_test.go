package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/document"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/pkg/mover"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/test/kube"
	"github.com/vmstate/vmstate/test/s3"
)

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		os.Exit(child())
	}
	kube.Main(m)
}

// site is a namespace on a real API server, a real bucket, and the folders that the
// kubelet would mount.
type site struct {
	cluster   *kube.Cluster
	namespace string
	paths     mover.Paths
	store     config.Store
	identity  keys.Identity
}

func newSite(t *testing.T) *site {
	t.Helper()
	return siteOn(t, s3.Start(t, true).Options)
}

// newPlainSite reaches its bucket over plain http, so that requests can be counted.
func newPlainSite(t *testing.T) *site {
	t.Helper()
	return siteOn(t, s3.Start(t, false).Options)
}

func siteOn(t *testing.T, bucket s3store.Options) *site {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	s := &site{cluster: kube.Shared(t), paths: mover.Paths{
		Credentials: at("credentials"), CA: at("ca"), RepositoryKeys: at("keys"), Identities: at("identities"),
		State: at("state"), Spec: at("spec"), Volumes: at("volumes"), Devices: at("devices"),
	}}
	s.namespace = s.cluster.Namespace(t)
	s.store = config.Store{
		Endpoint: bucket.Endpoint, Bucket: bucket.Bucket, Prefix: bucket.Prefix, CABundle: len(bucket.CABundle) > 0,
	}
	write(t, filepath.Join(s.paths.Credentials, "accessKeyID"), bucket.AccessKeyID)
	write(t, filepath.Join(s.paths.Credentials, "secretAccessKey"), bucket.SecretAccessKey)
	write(t, filepath.Join(s.paths.CA, "ca.crt"), string(bucket.CABundle))
	var err error
	if s.identity, err = keys.GenerateIdentity(); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.paths.Identities, "key.txt"), s.identity.Secret)
	s.roles(t)
	return s
}

func write(t *testing.T, path, body string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
}

// roles installs the roles that vmstate is installed with and binds an account to each.
func (s *site) roles(t *testing.T) {
	t.Helper()
	root, err := kube.Root()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(root, "config", "rbac", "jobs.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range strings.Split(string(raw), "\n---\n") {
		role := &rbacv1.ClusterRole{}
		if err := yaml.UnmarshalStrict([]byte(text), role); err != nil {
			t.Fatal(err)
		}
		if err := s.cluster.Client.Create(t.Context(), role); client.IgnoreAlreadyExists(err) != nil {
			t.Fatal(err)
		}
		s.create(t, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: s.namespace},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: role.Name, Namespace: s.namespace}},
		})
	}
}

func (s *site) create(t *testing.T, object client.Object) {
	t.Helper()
	if err := s.cluster.Client.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
}

// run plays one Job's pod under the account that the Job would have, and returns the
// exit code and the report.
func (s *site) run(t *testing.T, task v1alpha1.ReportTask, name string, c config.Config) (int, v1alpha1.VMStateReportStatus) {
	t.Helper()
	report := s.newReport(t, task, name)
	raw, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{job.EnvConfig: string(raw), job.EnvReport: name, job.EnvNamespace: s.namespace, job.EnvPodUID: "pod-uid"}
	account := rest.CopyConfig(s.cluster.Config)
	account.Impersonate.UserName = "system:serviceaccount:" + s.namespace + ":" + job.ClusterRole(task)
	p, err := wire(strings.ToLower(string(task)), account, func(key string) string { return env[key] }, s.paths)
	if err != nil {
		t.Fatal(err)
	}
	code := p.run(t.Context())
	if err := s.cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(report), report); err != nil {
		t.Fatal(err)
	}
	return code, report.Status
}

// newReport makes the empty report of a Job, or leaves the one that is there.
func (s *site) newReport(t *testing.T, task v1alpha1.ReportTask, name string) *v1alpha1.VMStateReport {
	t.Helper()
	report := &v1alpha1.VMStateReport{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace},
		Spec:       v1alpha1.VMStateReportSpec{Task: task},
	}
	if err := s.cluster.Client.Create(t.Context(), report); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	return report
}

const keysName = "main-repository-keys"

// mountKeys mounts the Secret that setup made, if it is there, as the kubelet would for
// the next pod.
func (s *site) mountKeys(t *testing.T, name string) {
	t.Helper()
	s.mount(t, name, s.paths.RepositoryKeys)
}

// mount writes a Secret of keys to a folder.
func (s *site) mount(t *testing.T, name, dir string) {
	t.Helper()
	secret := &corev1.Secret{}
	err := s.cluster.Client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, secret)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err == nil && (secret.Immutable == nil || !*secret.Immutable) {
		t.Errorf("Secret %q of the repository's keys can be changed", name)
	}
	for name, body := range secret.Data {
		write(t, filepath.Join(dir, name), string(body))
	}
}

func (s *site) setup() config.Config {
	return config.Config{Store: &s.store, Setup: &config.Setup{Recipients: []string{s.identity.Recipient}, KeysSecretName: keysName}}
}

// The whole way, each task as the Job runs it.
func TestTasks(t *testing.T) {
	s := newSite(t)
	code, got := s.run(t, v1alpha1.TaskSetup, "setup", s.setup())
	if code != exitDone || got.Outcome != v1alpha1.OutcomeSucceeded || !got.Setup.Writable || got.Setup.ChecksumMode == "" || got.PodUID != "pod-uid" {
		t.Fatalf("setup: exit code %d, %+v, %+v", code, got, got.Setup)
	}
	for _, f := range got.Setup.Findings {
		if f.Outcome != v1alpha1.FindingOK {
			t.Errorf("finding %+v", f)
		}
	}
	s.mountKeys(t, keysName)
	s.store.Checksum, s.store.SigningKey = got.Setup.ChecksumMode, got.Setup.SigningKey

	moment := v1alpha1.Moment{Disks: v1alpha1.DisksSingle, CutEnded: metav1.NewMicroTime(time.Date(2026, 11, 30, 2, 0, 4, 123_456_000, time.UTC))}
	facts := v1alpha1.VolumeFacts{Name: "root", Role: v1alpha1.RoleDisk, ClaimName: "db-root", VolumeMode: "Filesystem", SizeBytes: 1 << 30}
	export := config.Config{Store: &s.store, Export: s.exportTask(t, moment, facts)}
	code, got = s.run(t, v1alpha1.TaskExport, "export", export)
	if code != exitDone || got.Export == nil || got.Export.Commit.Sequence != 1 || len(got.Export.Volumes) != 2 || got.Export.SentBytes == 0 || got.Progress == nil {
		t.Fatalf("export: exit code %d, %+v, %+v", code, got, got.Export)
	}
	commit := got.Export.Commit

	resolve := config.Config{Store: &s.store, Resolve: &config.Resolve{VMNamespace: "prod", VMName: "db"}}
	code, got = s.run(t, v1alpha1.TaskResolve, "resolve", resolve)
	if code != exitDone || got.Resolve == nil {
		t.Fatalf("resolve: exit code %d, %+v", code, got)
	}
	from := got.Resolve.From
	from.Documents = nil
	want := v1alpha1.RestoredFrom{
		VM: "prod/db", VMUID: "vm-uid", BackupName: "nightly", Commit: &commit, TakenAt: moment.CutEnded,
		Authentic: authenticPinned, Volumes: []v1alpha1.VolumeFacts{facts},
	}
	if diff := cmp.Diff(want, from); diff != "" {
		t.Errorf("resolved mismatch (-want +got):\n%s", diff)
	}

	image := filepath.Join(s.paths.Volumes, "root", "disk.img")
	before, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(image); err != nil {
		t.Fatal(err)
	}
	fill := config.Config{Store: &s.store, Import: &config.Import{
		Commit: &config.Commit{Key: commit.Key, Digest: commit.Digest},
		Disks:  []config.Disk{{Name: "root", Mode: config.Filesystem}},
	}}
	code, got = s.run(t, v1alpha1.TaskImport, "import", fill)
	after, err := os.ReadFile(image)
	if code != exitDone || err != nil || string(after) != string(before) || len(got.Import.Volumes) != 1 {
		t.Errorf("import: exit code %d, %+v, %d bytes back, %v", code, got, len(after), err)
	}
}

func (s *site) exportTask(t *testing.T, moment v1alpha1.Moment, facts v1alpha1.VolumeFacts) *config.Export {
	t.Helper()
	write(t, filepath.Join(s.paths.Volumes, "root", "disk.img"), string(storetest.Bytes(1, 3<<20)))
	documents, err := document.Encode(document.Documents{Volumes: []v1alpha1.BackupVolume{
		{VolumeFacts: facts, Outcome: v1alpha1.VolumeIncluded},
		{VolumeFacts: v1alpha1.VolumeFacts{Name: "cloudinit"}, Outcome: v1alpha1.VolumeExcluded, Reason: "made anew at each start"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.paths.Spec, document.FileName), string(documents))
	raw, err := json.Marshal(moment)
	if err != nil {
		t.Fatal(err)
	}
	return &config.Export{
		VM: config.VM{Namespace: "prod", Name: "db", UID: "vm-uid"}, BackupName: "nightly", BackupUID: "backup-uid",
		Created: moment.CutEnded.Time, Recipients: []string{s.identity.Recipient},
		Disks: []config.Disk{{Name: "root", Mode: config.Filesystem}}, Moment: raw,
	}
}

// Each way to fail has its reason in the report, and an exit code that says whether
// another pod may do better.
func TestFailures(t *testing.T) {
	s := newSite(t)
	stranger, err := keys.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if code, got := s.run(t, v1alpha1.TaskSetup, "setup", s.setup()); code != exitDone {
		t.Fatalf("setup: %+v", got)
	}
	resolve := func(store config.Store) config.Config {
		return config.Config{Store: &store, Resolve: &config.Resolve{VMNamespace: "prod", VMName: "db"}}
	}
	noBucket, nobody, noCA := s.store, s.store, s.store
	noBucket.Bucket, nobody.Endpoint, noCA.CABundle = "no-such-bucket", "https://127.0.0.1:1", false
	setupOf := func(store config.Store, recipients ...string) config.Config {
		return config.Config{Store: &store, Setup: &config.Setup{Recipients: recipients, KeysSecretName: "k"}}
	}
	for name, tc := range map[string]struct {
		task   v1alpha1.ReportTask
		config config.Config
		reason string
		code   int
	}{
		"bucket-absent":      {v1alpha1.TaskSetup, setupOf(noBucket, s.identity.Recipient), v1alpha1.ReasonBucketNotFound, exitFinal},
		"nobody-listens":     {v1alpha1.TaskSetup, setupOf(nobody, s.identity.Recipient), v1alpha1.ReasonUnreachable, exitFinal},
		"certificate":        {v1alpha1.TaskSetup, setupOf(noCA, s.identity.Recipient), v1alpha1.ReasonUnreachable, exitFinal},
		"no-recipient":       {v1alpha1.TaskSetup, setupOf(s.store), v1alpha1.ReasonInvalidRecipients, exitFinal},
		"identity-recipient": {v1alpha1.TaskSetup, setupOf(s.store, stranger.Secret), v1alpha1.ReasonInvalidRecipients, exitFinal},
		"keys-not-mounted":   {v1alpha1.TaskExport, config.Config{Store: &s.store, Export: s.exportTask(t, v1alpha1.Moment{}, v1alpha1.VolumeFacts{})}, v1alpha1.ReasonSecretNotFound, exitFinal},
		"no-backup":          {v1alpha1.TaskResolve, resolve(s.store), v1alpha1.ReasonBackupNotFound, exitFinal},
		"no-section":         {v1alpha1.TaskImport, config.Config{Store: &s.store}, v1alpha1.ReasonImportFailed, exitFinal},
	} {
		t.Run(name, func(t *testing.T) {
			code, got := s.run(t, tc.task, name, tc.config)
			if code != tc.code || got.Reason != tc.reason || got.Message == "" {
				t.Errorf("exit code %d, reason %q, message %q; want %d and %q", code, got.Reason, got.Message, tc.code, tc.reason)
			}
			if strings.Contains(got.Message, stranger.Secret) {
				t.Errorf("the message repeats an identity: %s", got.Message)
			}
		})
	}
}

// A pod that comes after one that has reached an outcome does nothing.
func TestOutcomeStays(t *testing.T) {
	s := newSite(t)
	if code, got := s.run(t, v1alpha1.TaskSetup, "setup", s.setup()); code != exitDone {
		t.Fatalf("setup: %+v", got)
	}
	broken := s.setup()
	broken.Store.Bucket = "no-such-bucket"
	if code, got := s.run(t, v1alpha1.TaskSetup, "setup", broken); code != exitDone || got.Outcome != v1alpha1.OutcomeSucceeded {
		t.Errorf("second pod: exit code %d, %+v; want the first one's outcome", code, got)
	}
}

// The account of a mover cannot read the Secrets of its namespace, nor write what is not its own.
func TestAccountIsSmall(t *testing.T) {
	s := newSite(t)
	s.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "of-somebody", Namespace: s.namespace}})
	for _, task := range []v1alpha1.ReportTask{v1alpha1.TaskSetup, v1alpha1.TaskExport} {
		account := rest.CopyConfig(s.cluster.Config)
		account.Impersonate.UserName = "system:serviceaccount:" + s.namespace + ":" + job.ClusterRole(task)
		o, err := newObjects(account, s.namespace)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.secrets.Get(t.Context(), "of-somebody", metav1.GetOptions{}); err == nil {
			t.Errorf("%s can read a Secret", task)
		}
		if err := o.secrets.Delete(t.Context(), "of-somebody", metav1.DeleteOptions{}); err == nil {
			t.Errorf("%s can delete a Secret", task)
		}
		if err := o.reports.Delete(t.Context(), "any", metav1.DeleteOptions{}); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("%s can delete a report: %v", task, err)
		}
	}
}
