package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-tpm/tpm2/transport"
	"github.com/google/go-tpm/tpm2/transport/linuxudstpm"

	"github.com/vmstate/vmstate/test/guest/generation"
	"github.com/vmstate/vmstate/test/guest/statefolder"
	"github.com/vmstate/vmstate/test/guest/tool"
	"github.com/vmstate/vmstate/test/guest/tpmnv"
)

const (
	socketPoll  = 2 * time.Millisecond
	socketLimit = 10 * time.Second
)

var errEnded = errors.New("ended before it listened")

// readTPM starts swtpm on a copy of a state file and reads the NV memory.
func readTPM(ctx context.Context, work, permall string) (*generation.Mark, error) {
	dir := filepath.Join(work, "tpm")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(permall)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, statefolder.TPMFile), b, 0o600); err != nil {
		return nil, err
	}
	var mark *generation.Mark
	err = withTPM(ctx, dir, func(conn transport.TPM) error {
		mark, err = tpmnv.New(conn).Mark()
		return err
	})
	return mark, err
}

// withTPM runs swtpm on the state in dir and calls use with a connection to it.
func withTPM(ctx context.Context, dir string, use func(transport.TPM) error) error {
	ctx, cancel := context.WithTimeout(ctx, socketLimit)
	defer cancel()
	socket := filepath.Join(dir, "s")
	var stderr bytes.Buffer
	cmd := tool.Command(ctx, "swtpm", "socket", "--tpm2", "--tpmstate", "dir="+dir,
		"--server", "type=unixio,path="+socket, "--flags", "not-need-init,startup-clear")
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	conn, err := dialTPM(socket, exited)
	if err != nil {
		cancel()
		return fmt.Errorf("swtpm: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	err = errors.Join(use(conn), conn.Close())
	cancel() // ends swtpm
	<-exited
	return err
}

func dialTPM(socket string, exited chan error) (transport.TPMCloser, error) {
	for {
		_, err := os.Stat(socket)
		if err == nil {
			return linuxudstpm.Open(socket)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		select {
		case err := <-exited:
			if err == nil {
				err = errEnded
			}
			return nil, err
		case <-time.After(socketPoll):
		}
	}
}
