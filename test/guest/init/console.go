package main

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmstate/vmstate/test/guest/pace"
)

const consoleRetry = 100 * time.Millisecond

// serveConsole reads commands, one a line, for ever:
//
//	ping            PONG
//	status          the three places, read anew
//	step [n]        n steps, default 1
//	pace PACE       change the pace (off, fast, 3s, 3s-10s)
//	fw              change TPM and EFI variables, but not the generation
//	fill [n]        write a scratch EFI variable n times, default 1
//	freeze, thaw    the data file system
//	cmdline         the kernel command line
//	poweroff, reboot
func (m *machine) serveConsole(in io.Reader) {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			time.Sleep(consoleRetry) // nobody is connected
			continue
		}
		if words := strings.Fields(line); len(words) > 0 {
			arg := ""
			if len(words) > 1 {
				arg = words[1]
			}
			m.command(words[0], arg)
		}
	}
}

func (m *machine) command(name, arg string) {
	switch name {
	case "ping":
		say("PONG uptime=%s", uptime())
	case "status":
		say("STATUS %s frozen=%v efi_writes=%d", m.guest.Status(), m.fs.Frozen(), m.efi.writes.Load())
	case "step":
		m.stepTimes(count(arg))
	case "pace":
		p, err := pace.Parse(arg)
		if err != nil {
			say("PACE error=%q", err.Error())
			return
		}
		m.stepper.set(p)
		say("PACE %s", p)
	case "fw":
		n, err := m.tpm.Scratch()
		if err == nil {
			err = m.efi.Scratch(n)
		}
		say("FW scratch=%d frozen=%v err=%v", n, m.fs.Frozen(), err)
	case "fill":
		m.fill(count(arg))
	case "freeze":
		n, err := m.fs.Freeze()
		say("FREEZE n=%d err=%v", n, err)
	case "thaw":
		n, err := m.fs.Thaw()
		say("THAW n=%d err=%v", n, err)
	case "cmdline":
		b, err := os.ReadFile("/proc/cmdline")
		say("CMDLINE %s err=%v", strings.TrimSpace(string(b)), err)
	case "poweroff":
		m.power(unix.LINUX_REBOOT_CMD_POWER_OFF)
	case "reboot":
		m.power(unix.LINUX_REBOOT_CMD_RESTART)
	default:
		say("UNKNOWN %q", name)
	}
}

func (m *machine) stepTimes(n int) {
	var gen uint64
	for range n {
		var err error
		if gen, err = m.stepper.step(); err != nil {
			say("STEP FAILED error=%q", err.Error())
			return
		}
	}
	say("STEP gen=%d", gen)
}

func (m *machine) fill(n int) {
	for i := range n {
		if err := m.efi.Scratch(uint64(i)); err != nil {
			say("FILL writes=%d err=%v", i, err)
			return
		}
	}
	say("FILL writes=%d err=<nil>", n)
}

func count(arg string) int {
	n, err := strconv.Atoi(arg)
	if err != nil || n < 1 {
		return 1
	}
	return n
}
