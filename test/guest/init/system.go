package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmstate/vmstate/test/guest/generation"
)

const pollInterval = 5 * time.Millisecond

func mountKernel() {
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := mount(m[0], m[1], m[0], 0); err != nil {
			say("MOUNT %s: %v", m[1], err)
		}
	}
}

// mountDevices mounts the EFI variables and the data partition.
func mountDevices() error {
	if err := mount("efivarfs", efiDir, "efivarfs", 0); err != nil {
		return fmt.Errorf("mount EFI variables: %w", err)
	}
	dev, err := findPartition(generation.DataPartition)
	if err != nil {
		return err
	}
	if err := mount(dev, dataDir, "ext4", unix.MS_NOATIME); err != nil {
		return fmt.Errorf("mount %s: %w", dev, err)
	}
	return nil
}

func mount(source, target, kind string, flags uintptr) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	err := unix.Mount(source, target, kind, flags, "")
	if errors.Is(err, unix.EBUSY) {
		return nil // the kernel mounted it before us
	}
	return err
}

// setConsole turns echo and the translation of newlines off: what is printed is
// what a log shall hold.
func setConsole() {
	t, err := unix.IoctlGetTermios(0, unix.TCGETS)
	if err != nil {
		say("CONSOLE %v", err)
		return
	}
	t.Lflag &^= unix.ECHO
	t.Oflag &^= unix.ONLCR
	t.Iflag |= unix.ICRNL
	if err := unix.IoctlSetTermios(0, unix.TCSETS, t); err != nil {
		say("CONSOLE %v", err)
	}
}

// loadModules loads what the image builder put into the initramfs, in its order.
func loadModules() {
	list, err := os.ReadFile("/modules/order")
	if err != nil {
		say("MODULES %v", err)
	}
	for _, name := range strings.Fields(string(list)) {
		if err := loadModule("/modules/" + name); err != nil {
			say("MODULE %s: %v", name, err)
		}
	}
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	err = unix.FinitModule(int(f.Fd()), "", 0)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func waitFor(path string, limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(pollInterval) {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("no %s after %v", path, limit)
		}
	}
}

// findPartition waits for the block device with that GPT partition name.
func findPartition(name string) (string, error) {
	want := []byte("PARTNAME=" + name + "\n")
	for end := time.Now().Add(deviceTimeout); time.Now().Before(end); time.Sleep(pollInterval) {
		events, _ := filepath.Glob("/sys/class/block/*/uevent")
		for _, e := range events {
			if b, err := os.ReadFile(e); err == nil && bytes.Contains(b, want) {
				return "/dev/" + filepath.Base(filepath.Dir(e)), nil
			}
		}
	}
	return "", fmt.Errorf("no partition %s after %v", name, deviceTimeout)
}

// option returns the value of key=value from the SMBIOS chassis asset tag, else
// from the kernel command line; empty if neither has it.
func option(key string) string {
	for _, source := range []string{"/sys/class/dmi/id/chassis_asset_tag", "/proc/cmdline"} {
		b, err := os.ReadFile(source)
		if err != nil {
			continue
		}
		if v, ok := findOption(string(b), key); ok {
			return v
		}
	}
	return ""
}

func findOption(text, key string) (string, bool) {
	for _, word := range strings.Fields(text) {
		if v, ok := strings.CutPrefix(word, key+"="); ok {
			return v, true
		}
	}
	return "", false
}

func uptime() string {
	b, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return "unknown"
	}
	up, _, _ := strings.Cut(string(b), " ")
	return up
}

func tpmDriver() string {
	link, err := os.Readlink("/sys/class/tpm/tpm0/device/driver")
	if err != nil {
		return "unknown"
	}
	return filepath.Base(link)
}
