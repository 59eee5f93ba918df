package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/dirstore"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/tree"
	"github.com/vmstate/vmstate/test/kube"
	"github.com/vmstate/vmstate/test/s3"
)

// suite stops the API server once the scripts have ended.
type suite struct{ m *testing.M }

func (s suite) Run() int { return kube.Run(s.m, kube.KubeVirt) }

func TestMain(m *testing.M) {
	testscript.Main(suite{m}, map[string]func(){"kubectl-vmstate": main})
}

// TestStore are the commands that need no cluster.
func TestStore(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "store"), Cmds: commands(), RequireExplicitExec: true, RequireUniqueNames: true,
	})
}

// TestBucket are the same commands over a real S3 server with TLS.
func TestBucket(t *testing.T) {
	server := s3.Start(t, true)
	all := commands()
	all["bucket"] = func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 1 {
			ts.Fatalf("usage: bucket IDENTITY")
		}
		store, err := s3store.New(server.Options)
		ts.Check(err)
		disk := diskContent()
		ts.Check(os.WriteFile(ts.MkAbs("bucket.img"), disk, 0o600))
		ts.Check(fill(store, []byte(ts.ReadFile(args[0])), disk))
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "bucket"), Cmds: all, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("AWS_ACCESS_KEY_ID", server.Options.AccessKeyID)
			env.Setenv("AWS_SECRET_ACCESS_KEY", server.Options.SecretAccessKey)
			env.Setenv("ENDPOINT", server.Options.Endpoint)
			return os.WriteFile(filepath.Join(env.WorkDir, "ca.crt"), server.Options.CABundle, 0o600)
		},
	})
}

// TestCluster are the commands that need a cluster, against a real API server. kubectl plays the manager, by writing status.
func TestCluster(t *testing.T) {
	cluster := kube.Shared(t)
	bin := filepath.Dir(kube.Binary(t, "kubectl"))
	all := commands()
	all["asks"], all["lists"] = asks(cluster.Client), lists(cluster.Client)
	setup := &setupJob{cluster: cluster.Client}
	all["challenge"], all["answered"] = setup.challenge, setup.answered
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "cluster"), Cmds: all, RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			namespace := cluster.Namespace(env.T().(testing.TB))
			env.Setenv("PATH", env.Getenv("PATH")+string(os.PathListSeparator)+bin)
			env.Setenv("NS", namespace)
			return writeKubeconfig(env, cluster.Kubeconfig, namespace)
		},
	})
}

// writeKubeconfig gives a script a kubeconfig whose context is in its own namespace.
func writeKubeconfig(env *testscript.Env, source, namespace string) error {
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	file := filepath.Join(env.WorkDir, "kubeconfig")
	env.Setenv("KUBECONFIG", file)
	own := strings.Replace(string(text), "- context:\n", "- context:\n    namespace: "+namespace+"\n", 1)
	return os.WriteFile(file, []byte(own), 0o600)
}

func commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"exits":      exits,
		"repository": makeRepository,
		"flip":       flip,
		"smaller":    smaller,
	}
}

// exits CODE PROGRAM ARGS… wants this very exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS…")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if got != args[0] {
		ts.Fatalf("exit status %s, want %s (%v)", got, args[0], err)
	}
}

// flip FILES… alters a byte in the middle of each file.
func flip(ts *testscript.TestScript, neg bool, args []string) {
	for _, pattern := range args {
		files, err := filepath.Glob(ts.MkAbs(pattern))
		ts.Check(err)
		if neg || len(files) == 0 {
			ts.Fatalf("no file is called %s", pattern)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			ts.Check(err)
			text[len(text)/2] ^= 1
			ts.Check(os.Chmod(file, 0o600))
			ts.Check(os.WriteFile(file, text, 0o600))
		}
	}
}

// smaller FILE BYTES wants the file to use less of the disk than that.
func smaller(ts *testscript.TestScript, neg bool, args []string) {
	var limit int64
	if _, err := fmt.Sscan(args[1], &limit); err != nil || neg {
		ts.Fatalf("usage: smaller FILE BYTES")
	}
	used, err := usedBytes(ts.MkAbs(args[0]))
	ts.Check(err)
	if used >= limit {
		ts.Fatalf("%s uses %d bytes, want less than %d", args[0], used, limit)
	}
}

// makeRepository DIR IDENTITY makes a repository in a directory, with one backup of prod/db that the identity in the
// file reads, and writes the disk that it holds beside it as DIR.img, and the cluster's keys into DIR.keys.
func makeRepository(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: repository DIR IDENTITY")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o755))
	disk := diskContent()
	ts.Check(os.WriteFile(dir+".img", disk, 0o600))
	set, err := keys.Generate()
	ts.Check(err)
	ts.Check(os.Mkdir(dir+".keys", 0o755))
	for name, value := range set.Secret() {
		ts.Check(os.WriteFile(filepath.Join(dir+".keys", name), value, 0o600))
	}
	ts.Check(fillWith(set, dirstore.New(dir), []byte(ts.ReadFile(args[1])), disk))
}

// fill makes a repository with one backup in an empty store.
func fill(store objectstore.Store, identity, disk []byte) error {
	set, err := keys.Generate()
	if err != nil {
		return err
	}
	return fillWith(set, store, identity, disk)
}

func fillWith(set *keys.Keys, store objectstore.Store, identity, disk []byte) error {
	identities, err := keys.ParseIdentities(identity)
	if err != nil {
		return err
	}
	recipients, err := keys.ParseRecipients([]string{keys.RecipientOf(identities[0])})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := repository.Init(ctx, store, set, recipients); err != nil {
		return err
	}
	repo, err := repository.OpenWithKeys(ctx, store, set)
	if err != nil {
		return err
	}
	run, err := repo.Begin(ctx, repository.BackupSpec{
		VM:         repository.VM{Namespace: "prod", Name: "db", UID: "0b0e2f6c-93f3-4b5b-9c68-6c6b41f29d11"},
		Backup:     repository.BackupID{Namespace: "prod", Name: "db-before-upgrade", UID: "a2b7a7c4-2c43-4c3e-8e29-f2f3a7d7c001"},
		Created:    moment.CutEnded.Time,
		Recipients: recipients,
	})
	if err != nil {
		return err
	}
	defer run.Close()
	root := repository.BlockVolume{Name: "root", Role: "Disk", Mode: "Filesystem", Size: int64(len(disk)), Source: bytes.NewReader(disk)}
	if _, err := run.AddBlock(ctx, root); err != nil {
		return err
	}
	if _, err := run.AddTree(ctx, stateVolume()); err != nil {
		return err
	}
	recorded, err := json.Marshal(moment)
	if err != nil {
		return err
	}
	_, err = run.Commit(ctx, recorded)
	return err
}

var moment = v1alpha1.Moment{
	Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceFrozen,
	CutStarted: metav1.NewMicroTime(time.Date(2026, 11, 30, 2, 0, 3, 0, time.UTC)),
	CutEnded:   metav1.NewMicroTime(time.Date(2026, 11, 30, 2, 0, 4, 0, time.UTC)),
	Attempts:   1,
}

// diskContent is 8 MiB, of which one in the middle is not zero.
func diskContent() []byte {
	disk := make([]byte, 8<<20)
	_, _ = rand.Read(disk[3<<20 : 4<<20]) // never fails
	return disk
}

func stateVolume() repository.TreeVolume {
	files := map[string]string{"nvram/db_VARS.fd": "variables", "swtpm/tpm2/tpm2-00.permall": "secrets of the TPM"}
	entry := func(path string, kind tree.Type, mode uint32) tree.Entry {
		return tree.Entry{Path: path, Type: kind, Mode: mode, UID: 107, GID: 107, ModTime: moment.CutEnded.UTC(), Size: int64(len(files[path]))}
	}
	return repository.TreeVolume{
		Name: "persistent-state-for-db", Role: "FirmwareState", Mode: "Filesystem",
		Entries: []tree.Entry{
			entry("nvram", tree.TypeDir, 0o750), entry("nvram/db_VARS.fd", tree.TypeFile, 0o600),
			entry("swtpm", tree.TypeDir, 0o750), entry("swtpm/tpm2", tree.TypeDir, 0o750),
			entry("swtpm/tpm2/tpm2-00.permall", tree.TypeFile, 0o600),
		},
		Open: func(path string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(files[path])), nil },
	}
}
