package csireflink

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// run runs a program and returns what it printed, without white space around it.
func run(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}
	return text, nil
}

// loopOf is the loop device that an image is attached to, empty if it is not.
func loopOf(image string) (string, error) {
	if _, err := os.Stat(image); err != nil {
		return "", nil // what is not there is not attached
	}
	out, err := run("losetup", "-j", image, "-n", "-O", "NAME")
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(out, "\n")
	return strings.TrimSpace(first), nil
}

func attach(image string) (string, error) {
	device, err := loopOf(image)
	if err != nil || device != "" {
		return device, err
	}
	return run("losetup", "--find", "--show", image)
}

func detach(image string) error {
	device, err := loopOf(image)
	if err != nil || device == "" {
		return err
	}
	_, err = run("losetup", "-d", device)
	return err
}

// mountOf is where a device is mounted, empty if it is not.
func mountOf(device string) string {
	for _, m := range mounts() {
		if m.device == device && m.kind != "devtmpfs" {
			return m.path
		}
	}
	return ""
}

func mounted(path string) bool {
	for _, m := range mounts() {
		if m.path == path {
			return true
		}
	}
	return false
}

type mount struct {
	device, path, kind string
}

func mounts() []mount {
	raw, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil
	}
	var all []mount
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 2 {
			all = append(all, mount{device: f[0], path: f[1], kind: f[2]})
		}
	}
	return all
}

// mountImage attaches an image and mounts its ext4, which it makes if the image has no file system, and grows to the
// size of the image.
func mountImage(device, target string) error {
	kind, _ := run("blkid", "-p", "-s", "TYPE", "-o", "value", device) // it fails where there is none
	if kind == "" {
		if _, err := run("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1,nodiscard", device); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	if _, err := run("mount", "-t", "ext4", device, target); err != nil {
		return err
	}
	_, err := run("resize2fs", device)
	return err
}

func unmount(path string) error {
	if !mounted(path) {
		return nil
	}
	_, err := run("umount", path)
	return err
}
