package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// controllers are those of version 1 that the node gets. Hierarchies that the kernel lacks are left out.
var controllers = []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd"}

func unified() bool {
	var s unix.Statfs_t
	return unix.Statfs(cgroupRoot, &s) == nil && s.Type == unix.CGROUP2_SUPER_MAGIC
}

// cgroups lists the node's own groups as the host sees them.
func cgroups() []string {
	if unified() {
		return []string{filepath.Join(cgroupRoot, group)}
	}
	var dirs []string
	for _, c := range controllers {
		if _, err := os.Stat(filepath.Join(cgroupRoot, c)); err == nil {
			dirs = append(dirs, filepath.Join(cgroupRoot, c, group))
		}
	}
	return dirs
}

// makeCgroups makes the node's groups on the host.
func makeCgroups() error {
	if unified() {
		if err := delegate(cgroupRoot); err != nil {
			return err
		}
	}
	for _, dir := range cgroups() {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if unified() {
		return nil
	}
	// A cpuset group takes no process before it has processors and memory.
	set := filepath.Join(cgroupRoot, "cpuset")
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(set, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(set, group, name), value, 0); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(set, group, "cgroup.clone_children"), []byte("1"), 0)
}

// joinCgroups moves the calling process into the node's groups. On version 2 a group with children takes none, so
// a process that joins later goes where the node's init is.
func joinCgroups() error {
	for _, dir := range cgroups() {
		if _, err := os.Stat(filepath.Join(dir, "init")); err == nil && unified() {
			dir = filepath.Join(dir, "init")
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			return fmt.Errorf("join control group: %w", err)
		}
	}
	return nil
}

// mountCgroups mounts the hierarchies, or the one of version 2, inside the node, where the node's groups are their roots.
func mountCgroups(v2 bool) error {
	if v2 {
		return mountUnified()
	}
	if err := unix.Mount("tmpfs", cgroupRoot, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount %q: %w", cgroupRoot, err)
	}
	for _, dir := range hierarchies() {
		options := dir
		if dir == "systemd" {
			options = "none,name=systemd"
		}
		target := filepath.Join(cgroupRoot, dir)
		if err := os.Mkdir(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(dir, target, "cgroup", 0, options); err != nil {
			return fmt.Errorf("mount %q: %w", target, err)
		}
	}
	return nil
}

// hierarchies lists the version 1 hierarchies that this process is in.
func hierarchies() []string {
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var found []string
	for line := range strings.Lines(string(raw)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for name := range strings.SplitSeq(strings.TrimPrefix(fields[1], "name="), ",") {
			if slices.Contains(controllers, name) {
				found = append(found, name)
			}
		}
	}
	return found
}

func mountUnified() error {
	if err := unix.Mount("cgroup2", cgroupRoot, "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount %q: %w", cgroupRoot, err)
	}
	own := filepath.Join(cgroupRoot, "init")
	if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.WriteFile(filepath.Join(own, "cgroup.procs"), []byte("1"), 0); err != nil {
		return err
	}
	// The process that launched init is about to leave the group; until then it is busy.
	var err error
	for range 100 {
		if err = delegate(cgroupRoot); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// delegate hands every controller of a version 2 group to its children.
func delegate(dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(raw)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return fmt.Errorf("delegate controller %q: %w", c, err)
		}
	}
	return nil
}

// dropCgroups removes the node's groups, innermost first. Stale container groups would keep the next kubelet
// busy for minutes.
func dropCgroups() {
	for _, dir := range cgroups() {
		var dirs []string
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			_ = os.Remove(dirs[i]) // a group with processes stays; Clean has ended ours before
		}
	}
}
