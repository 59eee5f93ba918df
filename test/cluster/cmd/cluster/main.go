// Command cluster runs a real one-node Kubernetes with CSI snapshots, an S3 server and KubeVirt, for tests. It needs
// root on Debian; run it without arguments for its commands.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/vmstate/vmstate/test/cluster/build"
	"github.com/vmstate/vmstate/test/cluster/cluster"
	"github.com/vmstate/vmstate/test/cluster/node"
)

// Exit codes besides 0.
const (
	exitFailed = 1
	exitUsage  = 2
)

var errUsage = errors.New("usage")

// ended is a command inside the node that failed and has said why itself.
type ended struct{ code int }

func (e ended) Error() string { return fmt.Sprintf("exit code %d", e.code) }

type command struct {
	name, args, help string
	run              func(c *cluster.Cluster, b *build.Builder, args []string) error
}

func commands() []command {
	return []command{
		{"deps", "", "Install the Debian packages that are missing", runDeps},
		{"build", "[--only PART,…]", "Build the real parts into the cache folder", runBuild},
		{"assets", "", "Print the folder of the newest binaries (usable as KUBEBUILDER_ASSETS)", runAssets},
		{"up", "[--level LEVEL]", "Build what is missing and bring the cluster up: control-plane, csi or kubevirt", runUp},
		{"down", "", "End the cluster and remove all that it left, also after a crash", runDown},
		{"status", "", "Show the level and the services", runStatus},
		{"env", "", "Print settings for a shell: KUBECONFIG, the S3 server, control files", runEnv},
		{"kubectl", "ARGS…", "Run kubectl as administrator", runKubectl},
		{"exec", "CMD ARGS…", "Run a command inside the node", runExec},
		{"load-image", "NAME[,NAME] FILE…", "Make an image of static files; the first is the entry point", runLoadImage},
		{"load-disk", "NAMESPACE CLAIM FILE", "Write a raw image into an unused claim", runLoadDisk},
		{"read-disk", "NAMESPACE CLAIM FILE", "Write the raw content of a claim to a file", runReadDisk},
		{"read-snapshot", "NAMESPACE SNAPSHOT FILE", "Write what a snapshot of a test driver holds to a file", runReadSnapshot},
		{"csi", "DRIVER JSON", "Set the control file of a CSI driver; empty JSON to behave", runCSI},
	}
}

func main() {
	if handled, err := node.Hook(os.Args[1:]); handled {
		exit(err)
	}
	exit(run(os.Args[1:]))
}

func exit(err error) {
	var said ended
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &said):
		os.Exit(said.code)
	case errors.Is(err, errUsage):
		usage()
		os.Exit(exitUsage)
	default:
		fmt.Fprintln(os.Stderr, "cluster: error:", err)
		os.Exit(exitFailed)
	}
}

func run(args []string) error {
	dir := os.Getenv("VMSTATE_CLUSTER_DIR")
	if len(args) > 1 && args[0] == "--dir" {
		dir, args = args[1], args[2:]
	}
	if len(args) == 0 {
		return errUsage
	}
	cache, err := build.CacheDir()
	if err != nil {
		return err
	}
	if dir == "" {
		dir = filepath.Join(cache, "cluster")
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for _, c := range commands() {
		if c.name == args[0] {
			b := build.New(cache, os.Stdout)
			return c.run(cluster.New(dir, b, program, os.Stdout), b, args[1:])
		}
	}
	return errUsage
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: cluster [--dir FOLDER] COMMAND")
	w := tabwriter.NewWriter(os.Stderr, 0, 0, 2, ' ', 0)
	for _, c := range commands() {
		fmt.Fprintf(w, "  %s %s\t%s\n", c.name, c.args, c.help)
	}
	_ = w.Flush() // stderr
}
