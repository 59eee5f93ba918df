package main

import (
	"bytes"
	"context"
	"crypto/sha256"
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

// calibrate is the CPU seconds that SHA-256 over 1 GiB takes in this process now: on
// the machine that the goals were set on, left alone, it takes 0.7. What a busy
// machine adds to it, it adds to all figures.
func calibrate() (float64, error) {
	before, err := ownCPU()
	if err != nil {
		return 0, err
	}
	block, h := make([]byte, 1<<20), sha256.New()
	for range 1 << 10 {
		h.Write(block)
	}
	after, err := ownCPU()
	return after - before, err
}

func ownCPU() (float64, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("own CPU time: %w", err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9, nil
}
