package cluster

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmstate/vmstate/test/cluster/build"
)

const poll = 200 * time.Millisecond

// kubectl runs kubectl as administrator and returns what it printed.
func (c *Cluster) kubectl(args ...string) (string, error) {
	return c.kubectlInput(nil, args...)
}

func (c *Cluster) kubectlInput(input []byte, args ...string) (string, error) {
	cmd := exec.Command(c.binary("kubectl"), append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...)...)
	cmd.Stdin = bytes.NewReader(input)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// apply creates or changes the objects of a file, of a folder or, if name is "-", of input.
func (c *Cluster) apply(name string, input []byte) error {
	_, err := c.kubectlInput(input, "apply", "--server-side", "--force-conflicts", "-f", name)
	return err
}

// applyCRDs applies one of the folders of definitions and waits until the API server serves them.
func (c *Cluster) applyCRDs(folder string) error {
	dir := filepath.Join(c.builder.Assets(), build.CRDFolder, folder)
	if err := c.apply(dir, nil); err != nil {
		return err
	}
	_, err := c.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", dir)
	return err
}

// until asks again and again until done says so or the time is up. The last error of done is part of the message.
func until(limit time.Duration, what string, done func() (bool, error)) error {
	deadline := time.Now().Add(limit)
	for {
		ok, err := done()
		if ok {
			return nil
		}
		if time.Now().After(deadline) {
			if err != nil {
				return fmt.Errorf("wait %v for %s: %w", limit, what, err)
			}
			return fmt.Errorf("wait %v for %s: time is up", limit, what)
		}
		time.Sleep(poll)
	}
}

// untilPrinted waits until kubectl prints a text that holds wanted.
func (c *Cluster) untilPrinted(limit time.Duration, wanted string, args ...string) error {
	return until(limit, fmt.Sprintf("%q from kubectl %s", wanted, strings.Join(args, " ")), func() (bool, error) {
		out, err := c.kubectl(args...)
		return err == nil && strings.Contains(out, wanted), err
	})
}
