package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmstate/vmstate/test/guest/pace"
	"github.com/vmstate/vmstate/test/guest/statefolder"
	"github.com/vmstate/vmstate/test/guest/tool"
	"github.com/vmstate/vmstate/test/guest/vm"
)

const (
	defaultName = "guest"
	defaultUUID = "5d307ca9-b3ef-428c-8861-06e72d69f223"

	readyLine = "^(READY|FATAL) "
)

// bootFlags are the flags of boot.
type bootFlags struct {
	disk, state, name, uuid, step string
	copied, stay                  bool
	run, timeout                  time.Duration
}

func runBoot(ctx context.Context, flags *flag.FlagSet, args []string) error {
	var f bootFlags
	flags.StringVar(&f.disk, "disk", "", "raw image or block device; changed by the run")
	flags.StringVar(&f.state, "state", "", "state folder in KubeVirt's layout; what is not there starts blank")
	flags.StringVar(&f.name, "name", "", "VM name in the state folder (default: the one that is there)")
	flags.StringVar(&f.uuid, "uuid", "", "firmware UUID in the state folder (default: the one that is there)")
	flags.StringVar(&f.step, "step", "", "pace of the guest's own steps, over the image's")
	flags.BoolVar(&f.copied, "copy", false, "boot private copies and leave disk and state as they are")
	flags.BoolVar(&f.stay, "stay", false, "keep running until the guest powers off; stdin goes to its console")
	flags.DurationVar(&f.run, "run", 0, "keep running for this long after the verdict")
	flags.DurationVar(&f.timeout, "timeout", 3*time.Minute, "limit until the verdict")
	if err := parse(flags, args, "disk", "state"); err != nil {
		return err
	}
	if _, err := pace.Parse(f.step); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if _, err := os.Stat(f.disk); err != nil {
		return err
	}
	if f.copied {
		dir, err := f.useCopies(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
	}
	paths, err := f.statePaths()
	if err != nil {
		return err
	}
	return f.boot(ctx, paths)
}

// useCopies replaces disk and state by private copies in the folder it returns.
func (f *bootFlags) useCopies(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "vmstate-boot-")
	if err != nil {
		return "", err
	}
	disk, state := filepath.Join(dir, "disk.img"), filepath.Join(dir, "state")
	err = tool.Run(tool.Command(ctx, "cp", "--sparse=always", f.disk, disk))
	if _, statErr := os.Stat(f.state); err == nil && statErr == nil {
		err = tool.Run(tool.Command(ctx, "cp", "-r", f.state, state))
	}
	f.disk, f.state = disk, state
	return dir, err
}

// statePaths takes the state that is there, unless flags name another: then, as
// under KubeVirt, what is not there under these names starts blank.
func (f *bootFlags) statePaths() (statefolder.Paths, error) {
	found, err := statefolder.Find(f.state)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && (f.name == "" || f.uuid == "") {
		return statefolder.Paths{}, err
	}
	name, uuid := defaultName, defaultUUID
	if found.Vars != "" {
		name = found.VMName()
	}
	if found.TPMDir != "" {
		uuid = found.FirmwareUUID()
	}
	if f.name != "" {
		name = f.name
	}
	if f.uuid != "" {
		uuid = f.uuid
	}
	return statefolder.For(f.state, name, uuid), nil
}

func (f *bootFlags) boot(ctx context.Context, paths statefolder.Paths) (err error) {
	config := vm.Config{Disk: f.disk, TPMDir: paths.TPMDir, Vars: paths.Vars, OnLine: printLine}
	if f.step != "" {
		config.Asset = "vmstate.step=" + f.step
	}
	v, err := vm.Start(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.Kill()) }()
	bootCtx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	ready, err := v.Expect(bootCtx, readyLine)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "guest: verdict after %.1f s, %.1f s of CPU\n", ready.At.Seconds(), ready.CPU.Seconds())
	if err := f.linger(ctx, v); err != nil {
		return err
	}
	if !strings.Contains(ready.Text, "ok=true") {
		return errDamaged
	}
	return nil
}

// linger keeps the guest running as the flags say, then shuts it down.
func (f *bootFlags) linger(ctx context.Context, v *vm.VM) error {
	if f.stay {
		go func() {
			for in := bufio.NewScanner(os.Stdin); in.Scan(); {
				_ = v.Send(in.Text()) // the guest is gone: Expect ends too
			}
		}()
		if _, err := v.Expect(ctx, "^BYE$"); err != nil {
			return err
		}
	}
	select {
	case <-time.After(f.run):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	down, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	return v.Poweroff(down)
}

func printLine(l vm.Line) {
	fmt.Fprintf(os.Stderr, "%6.1f s  ", l.At.Seconds())
	fmt.Println(l.Text)
}
