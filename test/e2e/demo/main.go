// Command demo shows the main job of vmstate from end to end on a real cluster: a running guest
// with a vTPM is backed up, deleted with its namespace, and comes back from the bucket and one
// age identity alone.
//
// With KUBECONFIG set that cluster is used and nothing is built; story.Start says what it
// needs. Otherwise a one-node cluster is built and started by test/cluster.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/vmstate/vmstate/test/e2e/story"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t := &teller{out: os.Stdout, total: 1 + story.MainJobStages}
	fmt.Println("vmstate: back up a running virtual machine whole, lose it, bring it back, boot it.")
	if err := tell(ctx, t); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: error: %v\n", err)
		os.Exit(1)
	}
}

func tell(ctx context.Context, t *teller) error {
	t.Stage("A real cluster: Kubernetes, CSI snapshots, KubeVirt, an S3 server")
	env, err := story.Start(ctx, t.Say)
	if err != nil {
		return err
	}
	defer os.RemoveAll(env.Work)
	if err := env.MainJob(ctx, t); err != nil {
		return err
	}
	t.finish()
	return nil
}
