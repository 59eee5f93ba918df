package story

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// ErrTimeout is what Until ends with when the deadline passes first.
var ErrTimeout = errors.New("did not happen in time")

// Runner runs the programs of a story: kubectl as a person would type it, the product's own
// CLI, and the tools of test/cluster and test/guest.
type Runner struct {
	// Kubeconfig of the cluster.
	Kubeconfig string
	// Kubectl, CLI, Cluster and GuestTool are the programs' paths.
	Kubectl, CLI, Cluster, GuestTool string
}

// Run runs a program and returns its standard output; standard error becomes the error's text.
func (r *Runner) Run(ctx context.Context, stdin []byte, name string, args ...string) ([]byte, error) {
	cmd := r.command(ctx, name, args...)
	cmd.Stdin = bytes.NewReader(stdin)
	return output(cmd)
}

// runWith runs a program with more in its environment.
func (r *Runner) runWith(ctx context.Context, environment []string, name string, args ...string) ([]byte, error) {
	cmd := r.command(ctx, name, args...)
	cmd.Env = append(cmd.Env, environment...)
	return output(cmd)
}

func (r *Runner) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.Kubeconfig)
	return cmd
}

// output is what a program prints; standard error becomes the error's text.
func output(cmd *exec.Cmd) ([]byte, error) {
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(failure.String() + "\n" + out.String())
		return out.Bytes(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, text)
	}
	return out.Bytes(), nil
}

// K runs kubectl.
func (r *Runner) K(ctx context.Context, args ...string) (string, error) {
	out, err := r.Run(ctx, nil, r.Kubectl, args...)
	return string(out), err
}

// Apply hands a manifest to kubectl apply.
func (r *Runner) Apply(ctx context.Context, manifest string) error {
	_, err := r.Run(ctx, []byte(manifest), r.Kubectl, "apply", "--server-side", "-f", "-")
	return err
}

// Get reads an object as JSON into v.
func (r *Runner) Get(ctx context.Context, v any, args ...string) error {
	out, err := r.K(ctx, append(append([]string{"get"}, args...), "-o", "json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), v)
}

// Until asks again every interval until ok says true, an error that ok does not swallow
// comes, or the limit passes. The last answer is in the error.
func Until(ctx context.Context, limit, interval time.Duration, ok func(context.Context) (bool, string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		done, seen, err := ok(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%s): last seen: %s", ErrTimeout, limit, seen)
		case <-time.After(interval):
		}
	}
}
