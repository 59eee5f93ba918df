package vm

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vmstate/vmstate/test/guest/tool"
)

const socketPoll = 5 * time.Millisecond

// process is qemu or swtpm. Its methods accept nil: never started.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
}

// startProcess runs a tool that does not outlive this program nor ctx.
func startProcess(ctx context.Context, dir, name string, args []string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	p.cmd = tool.Command(ctx, name, args...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended shows in its log
		close(p.exited)
	}()
	return p, nil
}

// wait returns when the process has ended.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.exited:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of %s: %w", p.name, context.Cause(ctx))
	}
}

func (p *process) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // fails only if it has ended already
	<-p.exited
}

// waitListening returns when the process serves its socket.
func (p *process) waitListening(ctx context.Context, path string) error {
	for !tool.Listening(path) {
		if err := p.pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// dial connects to a socket that the process is about to serve.
func (p *process) dial(ctx context.Context, path string) (net.Conn, error) {
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err == nil {
			return conn, nil
		}
		if err := p.pause(ctx); err != nil {
			return nil, err
		}
	}
}

func (p *process) pause(ctx context.Context) error {
	select {
	case <-p.exited:
		return p.exitError()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(socketPoll):
		return nil
	}
}

// exitError is ErrExited with the process's last words.
func (p *process) exitError() error {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Errorf("%s: %w", p.name, ErrExited)
	}
	return fmt.Errorf("%s: %w: %s", p.name, ErrExited, strings.TrimSpace(string(b)))
}

// cpuTime returns user and system time so far, from proc(5): fields 14 and 15, in
// ticks of 10 ms. 0 once the process has ended.
func (p *process) cpuTime() time.Duration {
	const tick, userAfterName, systemAfterName = 10 * time.Millisecond, 11, 12
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(after)
	if len(fields) <= systemAfterName {
		return 0
	}
	user, _ := strconv.Atoi(fields[userAfterName])
	system, _ := strconv.Atoi(fields[systemAfterName])
	return time.Duration(user+system) * tick
}
