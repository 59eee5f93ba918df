// Command cluster runs a real one-node Kubernetes with snapshots, an S3 server and KubeVirt, for tests.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/vmstate/vmstate/test/cluster/build"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster: error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	only := flags.String("only", "all", "part")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	source, err := build.SourceDir()
	if err != nil {
		return err
	}
	cache, err := build.CacheDir()
	if err != nil {
		return err
	}
	parts, err := build.Select(*only)
	if err != nil {
		return err
	}
	return build.New(source, cache, os.Stdout).Ensure(parts)
}
