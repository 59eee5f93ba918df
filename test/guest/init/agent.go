package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The part of the QEMU guest agent's protocol that libvirt and KubeVirt use:
// https://qemu-project.gitlab.io/qemu/interop/qemu-ga-ref.html

const (
	agentPort    = "org.qemu.guest_agent.0"
	agentVersion = "7.2.0"
	agentRetry   = 100 * time.Millisecond

	// syncMark precedes the answer to guest-sync-delimited, and may precede requests.
	syncMark = 0xFF
)

// request is one line from the host.
type request struct {
	Execute   string          `json:"execute"`
	Arguments json.RawMessage `json:"arguments"`
}

// reply is one line to the host: "return" or "error", never both.
type reply struct {
	Return any         `json:"return,omitempty"`
	Error  *agentError `json:"error,omitempty"`
}

type agentError struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

// serveAgentPort serves the agent's virtio port for ever; it returns at once if
// the machine has none. The port stays open: closing it tells the host that the
// agent is gone.
func serveAgentPort(m *machine) {
	device := findAgentPort()
	if device == "" {
		return
	}
	port, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		say("AGENT %v", err)
		return
	}
	commands := agentCommands(m)
	for {
		serveAgent(port, commands)
		time.Sleep(agentRetry) // end of file: the host side is not connected
	}
}

func findAgentPort() string {
	names, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
	for _, n := range names {
		if b, err := os.ReadFile(n); err == nil && strings.TrimSpace(string(b)) == agentPort {
			return "/dev/" + filepath.Base(filepath.Dir(n))
		}
	}
	return ""
}

// serveAgent answers requests until the port reads an error or its end.
func serveAgent(port io.ReadWriter, commands map[string]agentCommand) {
	in := bufio.NewReader(port)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var q request
		line = bytes.TrimLeft(line, string([]byte{syncMark}))
		if json.Unmarshal(line, &q) != nil {
			continue // remains of a request that the host gave up; it syncs next
		}
		if answer := answerTo(q, commands); answer != nil {
			_, _ = port.Write(answer) // a host that went away asks again
		}
	}
}

func answerTo(q request, commands map[string]agentCommand) []byte {
	command, ok := commands[q.Execute]
	if !ok {
		return encodeReply(reply{Error: &agentError{"CommandNotFound", fmt.Sprintf("The command %s has not been found", q.Execute)}})
	}
	ret, err := command.run(q.Arguments)
	switch {
	case err != nil:
		return encodeReply(reply{Error: &agentError{"GenericError", err.Error()}})
	case command.silent:
		return nil
	case q.Execute == "guest-sync-delimited":
		return append([]byte{syncMark}, encodeReply(reply{Return: ret})...)
	default:
		return encodeReply(reply{Return: ret})
	}
}

func encodeReply(r reply) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		b = []byte(`{"error":{"class":"GenericError","desc":"answer cannot be encoded"}}`)
	}
	return append(b, '\n')
}

// agentCommand is one command. A silent one answers only with an error.
type agentCommand struct {
	run    func(args json.RawMessage) (any, error)
	silent bool
}

// freezer is the part of dataFS that the agent uses.
type freezer interface {
	Frozen() bool
	Freeze() (int, error)
	Thaw() (int, error)
}

func agentCommands(m *machine) map[string]agentCommand {
	commands := map[string]agentCommand{}
	addProtocolCommands(commands)
	addFreezeCommands(commands, m.fs)
	addInfoCommands(commands)
	commands["guest-shutdown"] = agentCommand{silent: true, run: func(args json.RawMessage) (any, error) {
		var a struct {
			Mode string `json:"mode"`
		}
		_ = json.Unmarshal(args, &a) // no arguments: power down
		cmd := unix.LINUX_REBOOT_CMD_POWER_OFF
		if a.Mode == "reboot" {
			cmd = unix.LINUX_REBOOT_CMD_RESTART
		}
		go m.power(cmd)
		return nil, nil
	}}
	return commands
}
