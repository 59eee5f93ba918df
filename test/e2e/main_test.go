//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vmstate/vmstate/test/e2e/story"
)

// env is the one cluster of all tests.
var env *story.Env

func TestMain(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), 75*time.Minute)
	defer cancel()
	begun := time.Now()
	var err error
	env, err = story.Start(ctx, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "start:", err)
		os.Exit(1)
	}
	fmt.Printf("cluster with the product in it: %.0f s\n", time.Since(begun).Seconds())
	code := m.Run()
	_ = os.RemoveAll(env.Work) // a folder of the system's for temporary files
	os.Exit(code)
}

// told tells a story to a test's log.
type told struct{ t *testing.T }

func (o told) Stage(format string, args ...any) { o.t.Logf("== "+format, args...) }
func (o told) Say(format string, args ...any)   { o.t.Logf(format, args...) }
func (o told) Show(command, output string)      { o.t.Logf("$ %s\n%s", command, output) }

// check ends the test at an error, with what the manager and the namespace say.
func check(t *testing.T, ns string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, args := range [][]string{
		{"-n", ns, "get", "vmstatebackups,vmstaterestores,vmstatereports,vmstatestores,jobs,pods,pvc,volumesnapshots,vm,vmi", "-o", "wide"},
		{"-n", ns, "get", "events", "--sort-by=.lastTimestamp"},
		{"-n", "vmstate-system", "logs", "deployment/vmstate-manager", "--tail=60"},
	} {
		out, failed := env.K(ctx, args...)
		t.Logf("$ kubectl %s\n%s %v", strings.Join(args, " "), out, failed)
	}
	t.Fatal(err)
}

// namespace with a store in it, and the key pair that opens its backups; gone after a test that went well.
func namespace(ctx context.Context, t *testing.T, ns string) *story.KeyPair {
	t.Helper()
	check(t, ns, env.Namespace(ctx, ns))
	keys, err := env.Keygen(ctx)
	check(t, ns, err)
	bucket := env.Bucket
	bucket.Prefix += "-" + ns
	check(t, ns, env.Store(ctx, ns, bucket, keys.Recipient))
	check(t, ns, env.Identity(ctx, ns, keys.Identity))
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		if err := env.NoNamespace(context.WithoutCancel(ctx), ns); err != nil {
			t.Error(err)
		}
	})
	return keys
}

// nothingLeft fails the test if anything that vmstate made on the way is still there a minute later.
func nothingLeft(ctx context.Context, t *testing.T, ns string) {
	t.Helper()
	err := story.Until(ctx, time.Minute, time.Second, func(ctx context.Context) (bool, string, error) {
		left, err := env.Left(ctx, ns)
		return left == "", left, err
	})
	if err != nil {
		t.Errorf("left behind in %s: %v", ns, err)
	}
}
