package story

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrEnvironment is what Start ends with when a cluster of the user's own is not ready for a story.
var ErrEnvironment = errors.New("the cluster of KUBECONFIG lacks something")

// Say prints a line of a story.
type Say func(format string, args ...any)

// Start brings a cluster with the product in it. With KUBECONFIG set that cluster is used: the
// product is installed in it already, and the bucket is named by VMSTATE_S3_ENDPOINT,
// VMSTATE_S3_BUCKET, VMSTATE_S3_ACCESS_KEY, VMSTATE_S3_SECRET_KEY and, where needed,
// VMSTATE_S3_REGION and VMSTATE_S3_CA (a file); the guest's disk is written by a pod of
// VMSTATE_DEMO_LOADER_IMAGE (default busybox). Otherwise test/cluster builds and starts one.
func Start(ctx context.Context, say Say) (*Env, error) {
	root, err := repositoryRoot(ctx)
	if err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp("", "vmstate-story-")
	if err != nil {
		return nil, err
	}
	e := &Env{Work: work}
	e.Cluster, e.GuestTool = filepath.Join(work, "cluster"), filepath.Join(work, "guest")
	if err := e.tools(ctx, root, say); err != nil {
		return nil, err
	}
	foreign := os.Getenv("KUBECONFIG")
	if foreign == "" {
		err = e.ownCluster(ctx, root, say)
	} else {
		e.Kubeconfig, e.Kubectl, e.foreign = foreign, "kubectl", true
		err = e.bucket(os.Getenv)
	}
	if err != nil {
		return nil, err
	}
	return e, e.check(ctx)
}

// repositoryRoot is the folder of the product's module.
func repositoryRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/vmstate/vmstate").Output()
	return strings.TrimSpace(string(out)), err
}

// tools builds what the story runs on this machine.
func (e *Env) tools(ctx context.Context, root string, say Say) error {
	say("building kubectl-vmstate, manager, mover, witness and the tools of the story")
	bin := filepath.Join(e.Work, "bin") + string(filepath.Separator)
	e.CLI = bin + "kubectl-vmstate"
	for _, build := range [][]string{
		{"-C", filepath.Join(root, "test", "cluster"), "build", "-o", e.Cluster, "./cmd/cluster"},
		{"-C", filepath.Join(root, "test", "guest"), "build", "-o", e.GuestTool, "./cmd/guest"},
		{"-C", root, "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "./cmd/..."},
	} {
		cmd := exec.CommandContext(ctx, "go", build...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go %s: %w", strings.Join(build, " "), err)
		}
	}
	return nil
}

// ownCluster brings up the cluster of test/cluster and installs the product in it.
func (e *Env) ownCluster(ctx context.Context, root string, say Say) error {
	for _, args := range [][]string{{"build"}, {"up", "--level", "kubevirt"}} {
		if err := e.stream(ctx, say, e.Cluster, args...); err != nil {
			return err
		}
	}
	out, err := e.Run(ctx, nil, e.Cluster, "env")
	if err != nil {
		return err
	}
	settings := parseExports(out)
	e.Kubeconfig = settings["KUBECONFIG"]
	e.Kubectl = filepath.Join(settings["KUBEBUILDER_ASSETS"], "kubectl")
	if err := e.bucket(func(name string) string { return settings[name] }); err != nil {
		return err
	}
	return e.install(ctx, root, say)
}

// install puts the image and the manifests of the product into the cluster.
func (e *Env) install(ctx context.Context, root string, say Say) error {
	bin := filepath.Join(e.Work, "bin")
	args := []string{"load-image", "localhost/vmstate:dev"}
	for _, name := range []string{"manager", "mover", "witness"} {
		args = append(args, filepath.Join(bin, name))
	}
	if err := e.stream(ctx, say, e.Cluster, args...); err != nil {
		return err
	}
	say("kubectl apply -k config/demo (config/default, and the word that the test driver cuts groups together)")
	if _, err := e.K(ctx, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(root, "config", "demo")); err != nil {
		return err
	}
	// The image's name stays the same from build to build: a manager that ran already is made anew.
	if _, err := e.K(ctx, "-n", "vmstate-system", "rollout", "restart", "deployment"); err != nil {
		return err
	}
	_, err := e.K(ctx, "-n", "vmstate-system", "rollout", "status", "deployment", "--timeout=180s")
	return err
}

// stream runs a program and says each line that it prints.
func (e *Env) stream(ctx context.Context, say Say, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	var last bytes.Buffer
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		say("%s", lines.Text())
		last.WriteString(lines.Text() + "\n")
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, tail(last.String(), 5))
	}
	return nil
}

// bucket reads the settings of the bucket.
func (e *Env) bucket(get func(string) string) error {
	e.Bucket = Bucket{
		Endpoint: get("VMSTATE_S3_ENDPOINT"), Name: get("VMSTATE_S3_BUCKET"), Region: get("VMSTATE_S3_REGION"),
		AccessKey: get("VMSTATE_S3_ACCESS_KEY"), SecretKey: get("VMSTATE_S3_SECRET_KEY"), CAFile: get("VMSTATE_S3_CA"), Prefix: prefix(),
	}
	if e.Bucket.Endpoint == "" || e.Bucket.Name == "" || e.Bucket.AccessKey == "" || e.Bucket.SecretKey == "" {
		return fmt.Errorf("%w: set VMSTATE_S3_ENDPOINT, VMSTATE_S3_BUCKET, VMSTATE_S3_ACCESS_KEY and VMSTATE_S3_SECRET_KEY", ErrEnvironment)
	}
	if e.Bucket.Region == "" {
		e.Bucket.Region = "us-east-1"
	}
	if e.Bucket.CAFile == "" {
		return nil
	}
	ca, err := os.ReadFile(e.Bucket.CAFile)
	e.Bucket.CA = string(ca)
	return err
}

// check says what a cluster lacks before a story begins in it.
func (e *Env) check(ctx context.Context) error {
	for _, need := range []struct{ kind, hint string }{
		{"virtualmachines.kubevirt.io", "install KubeVirt"},
		{"volumesnapshots.snapshot.storage.k8s.io", "install the CSI snapshot controller and its CRDs"},
		{"vmstatebackups.vmstate.io", "kubectl apply -k config/default"},
	} {
		if _, err := e.K(ctx, "get", "customresourcedefinition", need.kind); err != nil {
			return fmt.Errorf("%w: no %s (%s): %w", ErrEnvironment, need.kind, need.hint, err)
		}
	}
	return nil
}

// parseExports reads lines of the form export NAME="value".
func parseExports(out []byte) map[string]string {
	settings := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		if text, err := strconv.Unquote(value); ok && err == nil {
			settings[name] = text
		}
	}
	return settings
}

// prefix is a folder of the bucket that no other run uses.
func prefix() string { return "run-" + time.Now().UTC().Format("20060102-150405.000") }
