// Package tool runs the command-line tools that the other packages need.
package tool

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Command prepares a tool. Those of /usr/sbin are found as well: a plain user's
// PATH lacks it on Debian.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, Path(name), args...)
}

// Path returns where a tool is, or its bare name if it is nowhere.
func Path(name string) string {
	for _, candidate := range []string{name, filepath.Join("/usr/sbin", name)} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	return name
}

// Run executes cmd; its output goes into the error. Exit codes in accept are no
// errors.
func Run(cmd *exec.Cmd, accept ...int) error {
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && slices.Contains(accept, exit.ExitCode()) {
		return nil
	}
	return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(string(out)))
}
