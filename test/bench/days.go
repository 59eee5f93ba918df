package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	guestDays  = 4
	guestSuite = "bookworm"
	guestSize  = "6G"
	guestHas   = "systemd,systemd-sysv,openssh-server,ca-certificates,curl,less,vim-tiny,python3,rsyslog,iproute2"
)

// guestScripts are what happens in the guest.
//
//go:embed guest
var guestScripts embed.FS

// days are four backups of a real guest's disk: installed and with a database of
// 400 MB, after a day with new packages, a common day, and a quiet one.
func (r *runner) days(ctx context.Context) error {
	images, err := r.bench.guestImages(ctx)
	if err != nil {
		return err
	}
	if err := r.fresh(ctx); err != nil {
		return err
	}
	began, sum := r.bytes, 0.0
	for day, image := range images {
		before := r.bytes
		c, err := r.engine.backup(ctx, image)
		if err != nil {
			return err
		}
		if r.bytes, r.objects, err = r.place.stored(); err != nil {
			return err
		}
		sum += c.cpu
		r.add(fmt.Sprintf("day%d", day), "cpu", c.cpu, "s")
		r.add(fmt.Sprintf("day%d", day), "stored", float64(r.bytes-before)/1e6, "MB")
	}
	r.add("days", "cpu", sum, "s")
	r.add("days", "stored", float64(r.bytes-began)/1e6, "MB")
	return r.place.empty()
}

// guestImages makes the images of the days, unless they are there: as root, with
// packages from the Debian mirror of this machine. They are not the same everywhere;
// within one run they are for all engines.
func (b *bench) guestImages(ctx context.Context) ([]string, error) {
	var images []string
	missing := false
	for day := range guestDays {
		path := filepath.Join(b.cache, fmt.Sprintf("guest-day%d.img", day))
		_, err := os.Stat(path)
		missing = missing || err != nil
		images = append(images, path)
	}
	if !missing {
		return images, nil
	}
	if os.Getuid() != 0 {
		return nil, errors.New("making the guest's images needs root: run as root once, or leave out -only days")
	}
	b.say("making the images of the guest's days")
	dir := filepath.Join(b.work, "days")
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, guestScripts); err != nil {
		return nil, err
	}
	disk := filepath.Join(dir, "disk.img")
	if err := b.installGuest(ctx, dir, disk); err != nil {
		return nil, err
	}
	for day, path := range images {
		script := filepath.Join(dir, "guest", "day.sh")
		if err := private(ctx, "sh", script, disk, filepath.Join(dir, "mnt"), fmt.Sprint(day)); err != nil {
			return nil, fmt.Errorf("day %d: %w", day, err)
		}
		if err := copySparse(ctx, disk, path+".part"); err != nil {
			return nil, err
		}
		if err := os.Rename(path+".part", path); err != nil {
			return nil, err
		}
	}
	return images, nil
}

// installGuest makes a disk with a small Debian.
func (b *bench) installGuest(ctx context.Context, dir, disk string) error {
	from, err := mirror(ctx)
	if err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	if err := private(ctx, "debootstrap", "--variant=minbase", "--include="+guestHas, guestSuite, root, from); err != nil {
		return err
	}
	return private(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-d", root, disk, guestSize)
}

// private runs a command whose mounts and processes end with it.
func private(ctx context.Context, args ...string) error {
	all := append([]string{"--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"}, args...)
	cmd := exec.CommandContext(ctx, "unshare", all...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", args[0], err, out[max(0, len(out)-2000):])
	}
	return nil
}

// mirror is where this machine takes its Debian from.
func mirror(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("ask apt for its mirror: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		release, uri, ok := strings.Cut(strings.TrimSpace(line), " ")
		if ok && !strings.Contains(release, "-") {
			return strings.TrimSuffix(uri, "/"), nil
		}
	}
	return "", errors.New("apt has no index of a Debian release: run apt-get update")
}
