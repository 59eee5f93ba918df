// Package swtpm opens a connection to a software TPM on the host, to look into a
// state or to make one. It does not serve virtual machines; package vm does.
package swtpm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-tpm/tpm2/transport"
	"github.com/google/go-tpm/tpm2/transport/linuxudstpm"

	"github.com/vmstate/vmstate/test/guest/tool"
)

const (
	socketPoll = 2 * time.Millisecond
	startLimit = 10 * time.Second
)

var errEnded = errors.New("swtpm ended before it listened")

// Installed says whether the tool is there.
func Installed() bool {
	_, err := exec.LookPath(tool.Path("swtpm"))
	return err == nil
}

// With runs swtpm on the state in the folder dir, started up as after a power
// cycle, and calls use with a connection to it. An empty folder becomes a new TPM.
// The path of dir is to be short: a Unix socket in it holds 107 bytes.
func With(ctx context.Context, dir string, use func(transport.TPM) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	socket := filepath.Join(dir, "s")
	defer func() { _ = os.Remove(socket) }()
	var stderr bytes.Buffer
	cmd := tool.Command(ctx, "swtpm", "socket", "--tpm2", "--tpmstate", "dir="+dir,
		"--server", "type=unixio,path="+socket, "--flags", "not-need-init,startup-clear")
	cmd.Stdout, cmd.Stderr = &stderr, &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // its output says why
		close(exited)
	}()
	conn, err := dial(ctx, socket, exited)
	if err != nil {
		cancel()
		<-exited
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	err = errors.Join(use(conn), conn.Close())
	cancel() // ends swtpm; its state file is complete after every command
	<-exited
	return err
}

func dial(ctx context.Context, socket string, exited <-chan struct{}) (transport.TPMCloser, error) {
	limit := time.After(startLimit)
	for !tool.Listening(socket) {
		select {
		case <-exited:
			return nil, errEnded
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-limit:
			return nil, fmt.Errorf("no answer from swtpm in %v", startLimit)
		case <-time.After(socketPoll):
		}
	}
	return linuxudstpm.Open(socket)
}
