// Command witness runs in a Job beside a virtual machine. It reads the machine's
// firmware state before and after the disks are cut, carries it out as Secrets, and
// thaws the guest when nobody else does. What it decides is in package witness.
//
// Exit codes: 0 the report holds both readings; 2 the report says why not, or what
// the program is told is wrong; 1 nothing could be reported and another pod should try.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/pkg/witness/config"
)

// memoryLimit keeps the heap below the pod's 128 MiB; it is no cap, only an aim.
const memoryLimit = 100 << 20

func main() {
	debug.SetMemoryLimit(memoryLimit)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "witness: error:", err)
		if errors.Is(err, errFinal) {
			os.Exit(job.ExitFinal)
		}
		os.Exit(1)
	}
}

// errFinal: another pod would come to the same end.
var errFinal = errors.New("no other try can help")

func start(ctx context.Context) error {
	task, err := config.Decode([]byte(os.Getenv(job.EnvConfig)))
	if err != nil {
		return fmt.Errorf("%w: %w", errFinal, err)
	}
	self := identity{namespace: os.Getenv(job.EnvNamespace), report: os.Getenv(job.EnvReport), podUID: os.Getenv(job.EnvPodUID)}
	if self.namespace == "" || self.report == "" {
		return fmt.Errorf("%w: namespace and report are given by the Job's environment; this program is not run by hand", errFinal)
	}
	cluster, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	calls, err := newAPI(cluster, self.namespace)
	if err != nil {
		return err
	}
	defer klog.Flush()
	return newRunner(task, self, calls).run(ctx)
}
