package csireflink

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	fiFreeze = 0xc0045877 // FIFREEZE
	fiThaw   = 0xc0045878 // FITHAW
)

// hold stops everything that is written through the volumes, and flushes what was written, until release is called. A volume
// that is not attached needs neither.
func (s store) hold(ids []string) (release func(), err error) {
	var releases []func()
	release = func() {
		for _, f := range releases {
			f()
		}
	}
	var devices []uint64
	for _, id := range ids {
		device, err := loopOf(s.image(volumes, id))
		if err != nil {
			return release, err
		}
		if device == "" {
			continue
		}
		if mount := mountOf(device); mount != "" {
			thaw, err := freeze(mount)
			if err != nil {
				return release, err
			}
			releases = append(releases, thaw)
			continue
		}
		var stat unix.Stat_t
		if err := unix.Stat(device, &stat); err != nil {
			return release, err
		}
		devices = append(devices, stat.Rdev)
	}
	releases = append(releases, stopWriters(devices))
	return release, s.flush(ids)
}

// flush writes the cache of every attached Block volume into its image.
func (s store) flush(ids []string) error {
	for _, id := range ids {
		device, err := loopOf(s.image(volumes, id))
		if err != nil || device == "" || mountOf(device) != "" {
			continue
		}
		f, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		err = f.Sync()
		f.Close()
		if err != nil {
			return fmt.Errorf("flush %q: %w", device, err)
		}
	}
	return nil
}

func freeze(mount string) (thaw func(), err error) {
	f, err := os.Open(mount)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetInt(int(f.Fd()), fiFreeze, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("freeze %q: %w", mount, err)
	}
	return func() {
		if err := unix.IoctlSetInt(int(f.Fd()), fiThaw, 0); err != nil {
			log.Printf("thaw %q: %v", mount, err)
		}
		f.Close()
	}, nil
}

// stopWriters stops the processes that have one of the devices open for writing. A raw device has no freeze; what a
// process cannot submit while it is stopped cannot follow a write that another copy has missed.
func stopWriters(devices []uint64) (resume func()) {
	if len(devices) == 0 {
		return func() {}
	}
	var stopped []int
	for _, pid := range writersOf(devices) {
		if unix.Kill(pid, unix.SIGSTOP) == nil {
			stopped = append(stopped, pid)
		}
	}
	return func() {
		for _, pid := range stopped {
			_ = unix.Kill(pid, unix.SIGCONT) // it may have been killed meanwhile
		}
	}
}

// writersOf lists the processes, except this one, with a descriptor that may write to one of the devices.
func writersOf(devices []uint64) []int {
	wanted := map[uint64]bool{}
	for _, d := range devices {
		wanted[d] = true
	}
	descriptors, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return nil
	}
	var pids []int
	for _, name := range descriptors {
		var stat unix.Stat_t
		if unix.Stat(name, &stat) != nil || stat.Mode&unix.S_IFMT != unix.S_IFBLK || !wanted[stat.Rdev] || !writable(name) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(name, "/")[2])
		if err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// writable tells whether a descriptor was opened for writing: its link in /proc then has the owner's write bit.
func writable(descriptor string) bool {
	info, err := os.Lstat(descriptor)
	return err == nil && info.Mode().Perm()&0o200 != 0
}
