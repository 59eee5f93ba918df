package kube

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// process is one program beside the API server. It dies with the test binary.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed once it has ended
}

func (c *Cluster) run(name string, args ...string) (*process, error) {
	path, err := c.binary(name)
	if err != nil {
		return nil, err
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	p := &process{name: name, done: make(chan struct{}), log: filepath.Join(c.directory, fmt.Sprintf("%s-%d.log", name, len(c.processes)))}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		close(p.done)
	}()
	c.processes = append(c.processes, p)
	return p, nil
}

// stop ends the process. One that has ended by itself is an error, with the end of what it said: no test saw it work.
func (p *process) stop() error {
	select {
	case <-p.done:
		text, _ := os.ReadFile(p.log) // what cannot be read has nothing to tell
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		return fmt.Errorf("%s ended by itself (%s):\n%s", p.name, p.cmd.ProcessState, strings.Join(lines[max(0, len(lines)-15):], "\n"))
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("end %s: %w", p.name, err)
	}
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		if err := p.cmd.Process.Kill(); err != nil {
			return fmt.Errorf("kill %s: %w", p.name, err)
		}
		<-p.done
	}
	return nil
}

// controllers of kube-controller-manager that vmstate's objects meet.
var controllers = []string{
	"clusterrole-aggregation-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"persistentvolume-binder-controller",
	"persistentvolume-protection-controller",
	"persistentvolumeclaim-protection-controller",
	"resourcequota-controller",
	"serviceaccount-controller",
}

func (c *Cluster) startControllers() error {
	if c.parts[ControllerManager] {
		_, err := c.run("kube-controller-manager", "--kubeconfig="+c.Kubeconfig, "--leader-elect=false", "--secure-port=0",
			"--controllers="+strings.Join(controllers, ","), "--pvclaimbinder-sync-period=1s", "--resource-quota-sync-period=5s",
			"--kube-api-qps=200", "--kube-api-burst=400")
		if err != nil {
			return err
		}
	}
	if c.parts[SnapshotController] {
		_, err := c.run("snapshot-controller", "--kubeconfig="+c.Kubeconfig, "--leader-election=false")
		return err
	}
	return nil
}

// StartSidecars starts csi-snapshotter and csi-provisioner for the driver that listens on socket, until the test ends.
// They are the real ones; the driver may be anything that speaks CSI.
func (c *Cluster) StartSidecars(t testing.TB, socket string) {
	t.Helper()
	for _, name := range []string{"csi-snapshotter", "csi-provisioner"} {
		p, err := c.run(name, "--csi-address="+socket, "--kubeconfig="+c.Kubeconfig, "--leader-election=false", "--extra-create-metadata")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.end(p); err != nil {
				t.Error(err)
			}
		})
	}
}

func (c *Cluster) end(p *process) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for i, known := range c.processes {
		if known == p {
			c.processes = append(c.processes[:i], c.processes[i+1:]...)
			break
		}
	}
	return p.stop()
}
