// Command guest builds, boots and inspects the test guest; see the documentation of
// package guest.
//
//	guest deps                                   install missing Debian packages (root)
//	guest image -o FILE [-step 3s-10s]           build the disk image; as root after deps
//	guest boot -disk FILE -state DIR [...]       boot it with qemu and swtpm, print its console
//	guest inspect -disk FILE -state DIR [-json]  read the three generations, without booting
//	guest manifest -name NAME [...]              print the KubeVirt VM as YAML
//
// Results go to stdout, everything else to stderr. Exit codes: 0 well; 1 failed;
// 2 usage; 3 the state is not of one moment, or does not open; 4 not found.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"
)

const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitDamaged  = 3
	exitNotFound = 4
)

// errDamaged is a verdict, already printed: no message follows.
var errDamaged = errors.New("state is not of one moment")

// errUsage is returned for flags that make no sense together.
var errUsage = errors.New("usage")

// command is one subcommand. It defines its flags, parses, and works.
type command struct {
	name, use string
	run       func(ctx context.Context, flags *flag.FlagSet, args []string) error
}

var commands = []command{
	{"deps", "install missing Debian packages", runDeps},
	{"image", "build the disk image", runImage},
	{"boot", "boot disk and state with qemu and swtpm", runBoot},
	{"inspect", "read the three generations without booting", runInspect},
	{"manifest", "print the KubeVirt VM as YAML", runManifest},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		usage()
		return exitUsage
	}
	for _, c := range commands {
		if c.name == args[0] {
			flags := flag.NewFlagSet("guest "+c.name, flag.ContinueOnError)
			return exitCode(c.run(ctx, flags, args[1:]))
		}
	}
	usage()
	return exitUsage
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		return exitUsage
	case errors.Is(err, errDamaged):
		return exitDamaged
	}
	fmt.Fprintln(os.Stderr, "guest: error:", err)
	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case errors.Is(err, fs.ErrNotExist):
		return exitNotFound
	default:
		return exitFailed
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: guest COMMAND [flags]; guest COMMAND -h lists the flags")
	for _, c := range commands {
		fmt.Fprintf(os.Stderr, "  %-9s %s\n", c.name, c.use)
	}
}

// parse reads flags; required names those that must not be empty.
func parse(flags *flag.FlagSet, args []string, required ...string) error {
	if err := flags.Parse(args); err != nil {
		return flag.ErrHelp // the flag package has said what is wrong
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("%w: unexpected argument %q", errUsage, flags.Arg(0))
	}
	for _, name := range required {
		if flags.Lookup(name).Value.String() == "" {
			return fmt.Errorf("%w: -%s is required", errUsage, name)
		}
	}
	return nil
}
