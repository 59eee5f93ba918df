package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vmstate/vmstate/test/guest/image"
	"github.com/vmstate/vmstate/test/guest/inspect"
	"github.com/vmstate/vmstate/test/guest/tool"
	"github.com/vmstate/vmstate/test/guest/vm"
)

// runDeps installs what is missing and touches nothing if all is there. The
// package lists are refreshed only if something is missing.
func runDeps(ctx context.Context, flags *flag.FlagSet, args []string) error {
	if err := parse(flags, args); err != nil {
		return err
	}
	return installMissing(ctx)
}

func installMissing(ctx context.Context) error {
	missing := missingPackages(ctx)
	if len(missing) == 0 {
		return nil
	}
	fmt.Fprintf(os.Stderr, "guest: install %v\n", missing)
	wait := []string{"-q", "-o", "DPkg::Lock::Timeout=600"}
	if err := tool.Run(tool.Command(ctx, "apt-get", append(wait, "update")...)); err != nil {
		return err
	}
	install := tool.Command(ctx, "apt-get", slices.Concat(wait, []string{"install", "-y", "--no-install-recommends"}, missing)...)
	install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	return tool.Run(install)
}

func missingPackages(ctx context.Context) []string {
	wanted := slices.Concat(image.Packages(), inspect.Packages(), vm.Packages())
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	query := tool.Command(ctx, "dpkg-query", append([]string{"-W", "-f", "${Package} ${db:Status-Status}\n"}, wanted...)...)
	out, _ := query.Output() // it fails if it knows one package of them not at all
	known := string(out)
	return slices.DeleteFunc(wanted, func(pkg string) bool { return strings.Contains("\n"+known, "\n"+pkg+" installed\n") })
}
