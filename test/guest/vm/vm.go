// Package vm runs the guest with swtpm and qemu alone, without KubeVirt: UEFI
// firmware (OVMF) with its own variable store, a TPM 2.0, one virtio disk, the
// serial console, and the guest agent's port. Software emulation, one CPU.
package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// Where Debian's package ovmf puts the firmware. varsTemplate are blank variables.
const (
	firmwareCode = "/usr/share/OVMF/OVMF_CODE_4M.fd"
	varsTemplate = "/usr/share/OVMF/OVMF_VARS_4M.fd"
)

// ErrExited is returned when qemu ended before what was waited for.
var ErrExited = errors.New("qemu ended")

// Packages returns the Debian packages that Start needs.
func Packages() []string { return []string{"ovmf", "qemu-system-x86", "swtpm"} }

// Config says what to run. All of Disk, TPMDir and Vars are changed by the run.
type Config struct {
	Disk   string // raw image or block device
	TPMDir string // swtpm's state; made if absent: a blank TPM, as libvirt does
	Vars   string // EFI variables; made from blank ones if absent, as libvirt does

	// Asset is the SMBIOS chassis asset tag, which carries options to the guest.
	Asset string
	// OnLine is called for every serial line, in order, from one goroutine. May be nil.
	OnLine func(Line)
}

// Line is one line of the serial console, without escape sequences.
type Line struct {
	Text string
	At   time.Duration // since qemu's start
	CPU  time.Duration // qemu's CPU time until then: what counts on a busy machine
}

// VM is a running guest. Its methods may be called concurrently, except Kill.
type VM struct {
	run    string // sockets and logs
	swtpm  *process
	qemu   *process
	serial *serial
	qmp    *qmp
}

// Start boots the guest. ctx bounds the start-up and the VM's whole life: when it
// ends, qemu and swtpm are killed. The caller ends the VM with Kill.
func Start(ctx context.Context, c Config) (*VM, error) {
	if err := prepareState(c); err != nil {
		return nil, err
	}
	// Short, since a Unix socket's path holds 107 bytes.
	dir, err := os.MkdirTemp("", "vmstate-vm-")
	if err != nil {
		return nil, err
	}
	v := &VM{run: dir}
	if err := v.start(ctx, c); err != nil {
		return nil, errors.Join(err, v.Kill())
	}
	return v, nil
}

func prepareState(c Config) error {
	if err := os.MkdirAll(c.TPMDir, 0o700); err != nil {
		return err
	}
	if _, err := os.Stat(c.Vars); err == nil {
		return nil
	}
	blank, err := os.ReadFile(varsTemplate)
	if err != nil {
		return fmt.Errorf("blank EFI variables: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(c.Vars), 0o755); err != nil {
		return err
	}
	return os.WriteFile(c.Vars, blank, 0o600)
}

func (v *VM) start(ctx context.Context, c Config) (err error) {
	if v.swtpm, err = startProcess(ctx, v.run, "swtpm", swtpmArgs(v.run, c)); err != nil {
		return err
	}
	if err := v.swtpm.waitListening(ctx, v.path("swtpm.sock")); err != nil {
		return err
	}
	start := time.Now()
	if v.qemu, err = startProcess(ctx, v.run, "qemu-system-x86_64", qemuArgs(v.run, c)); err != nil {
		return err
	}
	if v.serial, err = openSerial(ctx, v.qemu, v.path("serial.sock"), start, c.OnLine); err != nil {
		return err
	}
	v.qmp, err = openQMP(ctx, v.qemu, v.path("qmp.sock"))
	return err
}

// Expect waits for the next line that matches pattern, and returns it. Every line
// is looked at by one Expect only. ErrExited if qemu ended without it.
func (v *VM) Expect(ctx context.Context, pattern string) (Line, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return Line{}, err
	}
	return v.serial.expect(ctx, re)
}

// Send types a line on the console.
func (v *VM) Send(line string) error {
	_, err := v.serial.conn.Write([]byte(line + "\n"))
	return err
}

// Ask sends a command and waits for the next line that matches pattern.
func (v *VM) Ask(ctx context.Context, command, pattern string) (Line, error) {
	if err := v.Send(command); err != nil {
		return Line{}, err
	}
	return v.Expect(ctx, pattern)
}

// Pause stops the virtual CPU and flushes the disks; Resume lets it go on.
func (v *VM) Pause(ctx context.Context) error { return v.monitor(ctx, "stop") }

// Resume ends a Pause.
func (v *VM) Resume(ctx context.Context) error { return v.monitor(ctx, "cont") }

func (v *VM) monitor(ctx context.Context, command string) error {
	if _, err := v.qmp.execute(ctx, command); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}

// Agent sends one command to the guest agent and returns its "return".
func (v *VM) Agent(ctx context.Context, command string) (json.RawMessage, error) {
	r, err := askAgent(ctx, v.qemu, v.path("qga.sock"), command)
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", command, err)
	}
	return r, nil
}

// Poweroff has the guest shut down and waits until qemu has ended.
func (v *VM) Poweroff(ctx context.Context) error {
	if err := v.Send("poweroff"); err != nil {
		return err
	}
	if err := v.qemu.wait(ctx); err != nil {
		return fmt.Errorf("power off: %w", err)
	}
	return v.swtpm.wait(ctx)
}

// Kill ends everything at once, as a crash would, and removes sockets and logs. It
// may follow Poweroff.
func (v *VM) Kill() error {
	v.qemu.kill()
	v.swtpm.kill()
	if v.serial != nil {
		_ = v.serial.conn.Close()
	}
	if v.qmp != nil {
		_ = v.qmp.conn.Close()
	}
	return os.RemoveAll(v.run)
}

func (v *VM) path(name string) string { return filepath.Join(v.run, name) }
