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

// cost is what one process took.
type cost struct {
	cpu  float64 // user and system seconds
	wall float64 // seconds
	rss  float64 // MiB at most
	out  []byte  // what it printed
}

// measure runs a command to its end. What it says of errors is shown only if it fails.
func measure(ctx context.Context, env []string, name string, args ...string) (cost, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.Env = append(os.Environ(), env...)
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return cost{}, fmt.Errorf("%s %v: %w\n%s%s", filepath.Base(name), args, err, out.Bytes(), said.Bytes())
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return cost{}, fmt.Errorf("%s: the system tells no usage", name)
	}
	return cost{
		cpu:  (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(),
		wall: time.Since(began).Seconds(),
		rss:  float64(usage.Maxrss) / 1024,
		out:  out.Bytes(),
	}, nil
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

// blocks is what a file takes on its file system, in bytes.
func blocks(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s: the system tells no blocks", path)
	}
	return stat.Blocks * 512, nil
}

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

// load is the machine's load average over the last minute.
func load() (float64, error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, err
	}
	var one float64
	_, err = fmt.Sscan(string(text), &one)
	return one, err
}

// ownRSS is the most memory that this process has had, in MiB.
func ownRSS() (float64, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("own memory: %w", err)
	}
	return float64(u.Maxrss) / 1024, nil
}
