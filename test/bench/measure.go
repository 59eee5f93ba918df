package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// figures are what one process cost.
type figures struct {
	cpu  float64 // user and system seconds
	wall float64 // seconds
	rss  float64 // MiB at most
}

// measure runs a command to its end. Its output is shown only if it fails.
func measure(ctx context.Context, env []string, name string, args ...string) (figures, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), env...)
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return figures{}, fmt.Errorf("%s %v: %w\n%s", filepath.Base(name), args, err, out.Bytes())
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return figures{}, fmt.Errorf("%s: the system tells no usage", name)
	}
	return figures{
		cpu:  (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(),
		wall: time.Since(began).Seconds(),
		rss:  float64(usage.Maxrss) / 1024,
	}, nil
}

// least keeps the lower of each figure: a busy neighbour only ever adds.
func least(a, b figures) figures {
	if a.wall == 0 {
		return b
	}
	return figures{min(a.cpu, b.cpu), min(a.wall, b.wall), min(a.rss, b.rss)}
}

// treeBytes is the sum of the sizes of the files under dir, and their number.
func treeBytes(dir string) (size int64, files int, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		size += info.Size()
		files++
		return nil
	})
	return size, files, err
}

func emit(name string, value float64, unit string) { fmt.Printf("%s %.3f %s\n", name, value, unit) }
