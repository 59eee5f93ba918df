package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// empty is JSON's {}: the answer of commands that return nothing.
type empty struct{}

func constant(v any) agentCommand {
	return agentCommand{run: func(json.RawMessage) (any, error) { return v, nil }}
}

func addProtocolCommands(commands map[string]agentCommand) {
	commands["guest-ping"] = constant(empty{})
	echo := agentCommand{run: func(args json.RawMessage) (any, error) {
		var a struct {
			ID json.Number `json:"id"`
		}
		if err := json.Unmarshal(args, &a); err != nil {
			return nil, fmt.Errorf("argument id: %w", err)
		}
		return a.ID, nil
	}}
	commands["guest-sync"] = echo
	commands["guest-sync-delimited"] = echo
	commands["guest-info"] = agentCommand{run: func(json.RawMessage) (any, error) {
		return info(commands), nil
	}}
}

// commandInfo is one entry of guest-info.
type commandInfo struct {
	Name            string `json:"name"`
	Enabled         bool   `json:"enabled"`
	SuccessResponse bool   `json:"success-response"`
}

type agentInfo struct {
	Version  string        `json:"version"`
	Commands []commandInfo `json:"supported_commands"`
}

func info(commands map[string]agentCommand) agentInfo {
	i := agentInfo{Version: agentVersion}
	for name, c := range commands {
		i.Commands = append(i.Commands, commandInfo{name, true, !c.silent})
	}
	slices.SortFunc(i.Commands, func(a, b commandInfo) int { return strings.Compare(a.Name, b.Name) })
	return i
}

func addFreezeCommands(commands map[string]agentCommand, fs freezer) {
	commands["guest-fsfreeze-status"] = agentCommand{run: func(json.RawMessage) (any, error) {
		if fs.Frozen() {
			return "frozen", nil
		}
		return "thawed", nil
	}}
	freeze := agentCommand{run: func(json.RawMessage) (any, error) {
		n, err := fs.Freeze()
		if err == nil {
			say("FROZEN")
		}
		return n, err
	}}
	commands["guest-fsfreeze-freeze"] = freeze
	commands["guest-fsfreeze-freeze-list"] = freeze
	commands["guest-fsfreeze-thaw"] = agentCommand{run: func(json.RawMessage) (any, error) {
		n, err := fs.Thaw()
		if n > 0 {
			say("THAWED")
		}
		return n, err
	}}
}

// addInfoCommands adds what KubeVirt polls; an agent without these is reported as
// too old for it.
func addInfoCommands(commands map[string]agentCommand) {
	commands["guest-get-host-name"] = constant(map[string]string{"host-name": "vmstate-guest"})
	commands["guest-get-users"] = constant([]empty{})
	commands["guest-get-timezone"] = constant(map[string]any{"zone": "UTC", "offset": 0})
	commands["guest-get-fsinfo"] = constant([]empty{})
	commands["guest-network-get-interfaces"] = constant([]empty{})
	commands["guest-get-time"] = agentCommand{run: func(json.RawMessage) (any, error) { return time.Now().UnixNano(), nil }}
	commands["guest-get-osinfo"] = agentCommand{run: func(json.RawMessage) (any, error) {
		var u unix.Utsname
		if err := unix.Uname(&u); err != nil {
			return nil, fmt.Errorf("uname: %w", err)
		}
		return map[string]string{
			"id": "vmstate-guest", "name": "vmstate test guest", "pretty-name": "vmstate test guest", "version": "1", "version-id": "1",
			"kernel-release": unix.ByteSliceToString(u.Release[:]),
			"kernel-version": unix.ByteSliceToString(u.Version[:]),
			"machine":        unix.ByteSliceToString(u.Machine[:]),
		}, nil
	}}
}
