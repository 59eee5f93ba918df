package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// memoryFS freezes nothing.
type memoryFS struct{ frozen bool }

func (f *memoryFS) Frozen() bool { return f.frozen }

func (f *memoryFS) Freeze() (int, error) {
	if f.frozen {
		return 0, errFrozen
	}
	f.frozen = true
	return 1, nil
}

func (f *memoryFS) Thaw() (int, error) {
	if !f.frozen {
		return 0, nil
	}
	f.frozen = false
	return 1, nil
}

// port is what the host wrote and what the guest answered.
type port struct {
	io.Reader
	bytes.Buffer
}

func (p *port) Read(b []byte) (int, error) { return p.Reader.Read(b) }

func TestServeAgent(t *testing.T) {
	commands := map[string]agentCommand{}
	addProtocolCommands(commands)
	addFreezeCommands(commands, &memoryFS{})
	commands["silent"] = agentCommand{silent: true, run: constant(nil).run}
	commands["broken"] = agentCommand{silent: true, run: func(json.RawMessage) (any, error) { return nil, errors.New("no") }}
	host := strings.Join([]string{
		`{"execute":"guest-ping"}`,
		"\xff" + `{"execute":"guest-sync-delimited","arguments":{"id":18446744073709551615}}`,
		`{"execute":"guest-sync","arguments":{"id":7}}`,
		`cut off request {`,
		`{"execute":"guest-fsfreeze-status"}`,
		`{"execute":"guest-fsfreeze-freeze"}`,
		`{"execute":"guest-fsfreeze-freeze"}`,
		`{"execute":"guest-fsfreeze-status"}`,
		`{"execute":"guest-fsfreeze-thaw"}`,
		`{"execute":"guest-fsfreeze-thaw"}`,
		`{"execute":"guest-exec"}`,
		`{"execute":"silent"}`,
		`{"execute":"broken"}`,
		`{"execute":"guest-ping"}`, // without newline: never complete
	}, "\n")
	want := strings.Join([]string{
		`{"return":{}}`,
		"\xff" + `{"return":18446744073709551615}`,
		`{"return":7}`,
		`{"return":"thawed"}`,
		`{"return":1}`,
		`{"error":{"class":"GenericError","desc":"file system is frozen already"}}`,
		`{"return":"frozen"}`,
		`{"return":1}`,
		`{"return":0}`,
		`{"error":{"class":"CommandNotFound","desc":"The command guest-exec has not been found"}}`,
		`{"error":{"class":"GenericError","desc":"no"}}`,
		"",
	}, "\n")
	p := &port{Reader: strings.NewReader(host)}
	serveAgent(p, commands)
	if diff := cmp.Diff(want, p.String()); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
}

func TestInfoNamesEveryCommand(t *testing.T) {
	commands := map[string]agentCommand{}
	addProtocolCommands(commands)
	commands["guest-shutdown"] = agentCommand{silent: true}
	want := agentInfo{Version: agentVersion, Commands: []commandInfo{
		{"guest-info", true, true},
		{"guest-ping", true, true},
		{"guest-shutdown", true, false},
		{"guest-sync", true, true},
		{"guest-sync-delimited", true, true},
	}}
	if diff := cmp.Diff(want, info(commands)); diff != "" {
		t.Errorf("guest-info (-want +got):\n%s", diff)
	}
}
