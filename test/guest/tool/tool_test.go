package tool

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

func TestListening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	if Listening(path) {
		t.Error("an absent socket listens")
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if !Listening(path) {
		t.Error("a listening socket does not listen")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if Listening(path) {
		t.Error("a closed socket listens, its file is only left over")
	}
}

func TestRun(t *testing.T) {
	three := func() error { return Run(Command(t.Context(), "sh", "-c", "echo why >&2; exit 3")) }
	if err := three(); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("exit 3: got %v, want an error with the tool's words", err)
	}
	if err := Run(Command(t.Context(), "sh", "-c", "exit 3"), 1, 3); err != nil {
		t.Errorf("accepted exit code: got %v", err)
	}
}
