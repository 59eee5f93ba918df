// Package image builds the guest's disk image:
//
//	GPT
//	1  ESP   FAT16: systemd-boot as EFI/BOOT/BOOTX64.EFI, kernel, initramfs
//	2  DATA  ext4, empty
//
// Kernel and initramfs are files beside systemd-boot rather than one unified
// image: under emulation the firmware spends 6 to 7 CPU seconds less on them. The
// fallback path needs no boot entry, so blank EFI variables boot too.
//
// The kernel is Debian's cloud kernel, fetched with apt-get (no root needed) and
// kept unpacked in the user's cache folder, one folder a package version.
package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/vmstate/vmstate/test/guest/pace"
	"github.com/vmstate/vmstate/test/guest/tool"
)

// cmdline suits a guest under emulation: quiet, no self tests, no probing of what
// is not there. tsc=reliable is left out: it makes the clock wrong on a busy host.
const cmdline = "console=ttyS0 quiet loglevel=1 mitigations=off nokaslr random.trust_cpu=on " +
	"no_timer_check cryptomgr.notests audit=0 selinux=0 apparmor=0 rcupdate.rcu_expedited=1 " +
	"tpm_tis.interrupts=0 noresume 8250.nr_uarts=1"

// systemdBoot is where Debian's systemd-boot-efi puts it.
const systemdBoot = "/usr/lib/systemd/boot/efi/systemd-bootx64.efi"

// Packages are the Debian packages that Build needs.
var packages = []string{"binutils", "dosfstools", "e2fsprogs", "gdisk", "mtools", "systemd-boot-efi"}

// Packages returns the Debian packages that Build needs.
func Packages() []string { return append([]string(nil), packages...) }

// Options is what an image is built from.
type Options struct {
	Out    string    // the image, replaced if there; a sparse file of about 40 MiB
	Step   pace.Pace // written to the kernel command line; off if zero
	Source string    // folder of this module's source, for init; default: where it was compiled
	// Progress is called before each stage with a line for people. May be nil.
	Progress func(line string)
}

func (o Options) say(format string, a ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, a...))
	}
}

// Build makes the image. On an error Out is not touched.
func Build(ctx context.Context, o Options) error {
	work, err := os.MkdirTemp("", "vmstate-guest-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	kernel, err := fetchKernel(ctx, o)
	if err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	o.say("init: compile")
	initBinary := filepath.Join(work, "init")
	if err := compileInit(ctx, o.Source, initBinary); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	o.say("initramfs: init and %d modules", len(kernel.modules))
	initramfs := filepath.Join(work, "initramfs")
	if err := writeInitramfs(initramfs, initBinary, kernel.modules); err != nil {
		return fmt.Errorf("initramfs: %w", err)
	}
	esp, err := espFiles(work, kernel.path, initramfs, o.Step)
	if err != nil {
		return err
	}
	o.say("disk: partitions ESP and DATA")
	disk := filepath.Join(work, "disk.img")
	if err := writeDisk(ctx, disk, esp); err != nil {
		return err
	}
	if err := moveSparse(ctx, disk, o.Out); err != nil {
		return err
	}
	o.say("image: %s", o.Out)
	return nil
}

func compileInit(ctx context.Context, source, out string) error {
	if source == "" {
		_, file, _, ok := runtime.Caller(0)
		if !ok || !filepath.IsAbs(file) {
			return fmt.Errorf("this binary does not know its source folder: name it")
		}
		source = filepath.Dir(filepath.Dir(file))
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, "./init")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	return tool.Run(cmd)
}

func run(ctx context.Context, name string, args ...string) error {
	return tool.Run(tool.Command(ctx, name, args...))
}

// moveSparse puts the finished image at its place in one rename.
func moveSparse(ctx context.Context, from, to string) error {
	if err := run(ctx, "cp", "--sparse=always", from, to+".new"); err != nil {
		return err
	}
	return os.Rename(to+".new", to)
}
