package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/vmstate/vmstate/test/cluster/build"
	"github.com/vmstate/vmstate/test/cluster/cluster"
	"github.com/vmstate/vmstate/test/cluster/node"
)

func runDeps(_ *cluster.Cluster, b *build.Builder, args []string) error {
	if len(args) != 0 {
		return errUsage
	}
	return b.InstallPackages()
}

func runBuild(_ *cluster.Cluster, b *build.Builder, args []string) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	only := flags.String("only", "all", "parts, separated by commas")
	if flags.Parse(args) != nil || flags.NArg() != 0 {
		return errUsage
	}
	parts, err := build.Select(strings.Split(*only, ",")...)
	if err != nil {
		return err
	}
	return b.Ensure(parts)
}

func runAssets(_ *cluster.Cluster, b *build.Builder, args []string) error {
	if len(args) != 0 {
		return errUsage
	}
	fmt.Println(b.Assets())
	return nil
}

func runUp(c *cluster.Cluster, b *build.Builder, args []string) error {
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	name := flags.String("level", cluster.KubeVirt.String(), "how much to bring up")
	if flags.Parse(args) != nil || flags.NArg() != 0 {
		return errUsage
	}
	level, err := cluster.ParseLevel(*name)
	if err != nil {
		return err
	}
	if os.Getuid() != 0 {
		return errors.New("root is needed for namespaces, mounts and loop devices")
	}
	if err := b.InstallPackages(); err != nil {
		return err
	}
	parts, err := build.Select(level.Parts()...)
	if err != nil {
		return err
	}
	if err := b.Ensure(parts); err != nil {
		return err
	}
	return c.Up(level)
}

func runDown(c *cluster.Cluster, _ *build.Builder, args []string) error {
	if len(args) != 0 {
		return errUsage
	}
	return c.Down()
}

func runStatus(c *cluster.Cluster, _ *build.Builder, args []string) error {
	if len(args) != 0 {
		return errUsage
	}
	fmt.Printf("level %s\n", c.Level())
	if c.Dir().PID() == 0 {
		return nil
	}
	services, err := node.Services(c.Dir())
	if err != nil {
		return err
	}
	for _, s := range services {
		fmt.Printf("  %-32s  pid %-6d  restarts %d  %s\n", s.Name, s.PID, s.Restarts, c.Dir().Log(s.Name))
	}
	return nil
}

func runEnv(c *cluster.Cluster, b *build.Builder, args []string) error {
	if len(args) != 0 {
		return errUsage
	}
	for _, setting := range []struct{ name, value string }{
		{"KUBECONFIG", c.Kubeconfig()},
		{"KUBEBUILDER_ASSETS", b.Assets()},
		{"VMSTATE_S3_ENDPOINT", cluster.S3Endpoint},
		{"VMSTATE_S3_REGION", cluster.S3Region},
		{"VMSTATE_S3_BUCKET", cluster.S3Bucket},
		{"VMSTATE_S3_ACCESS_KEY", cluster.S3AccessKey},
		{"VMSTATE_S3_SECRET_KEY", cluster.S3SecretKey},
		{"VMSTATE_S3_CA", c.S3CA()},
		{"VMSTATE_CSI_CONTROL", filepath.Dir(c.ControlFile(""))},
		{"VMSTATE_HOST_IP", node.HostIP},
	} {
		fmt.Printf("export %s=%q\n", setting.name, setting.value)
	}
	return nil
}

func runKubectl(c *cluster.Cluster, b *build.Builder, args []string) error {
	kubectl := filepath.Join(b.Assets(), "kubectl")
	environment := append(os.Environ(), "KUBECONFIG="+c.Kubeconfig())
	return syscall.Exec(kubectl, append([]string{"kubectl"}, args...), environment)
}

func runExec(c *cluster.Cluster, _ *build.Builder, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := node.Command(c.Dir(), program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	var failed *exec.ExitError
	if err := cmd.Run(); errors.As(err, &failed) {
		return ended{code: failed.ExitCode()}
	} else if err != nil {
		return err
	}
	return nil
}

func runLoadImage(c *cluster.Cluster, _ *build.Builder, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	return c.LoadImage(strings.Split(args[0], ","), args[1:])
}

func runLoadDisk(c *cluster.Cluster, _ *build.Builder, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	image, err := os.Open(args[2])
	if err != nil {
		return err
	}
	defer image.Close()
	return c.LoadDisk(args[0], args[1], image)
}

func runReadDisk(c *cluster.Cluster, _ *build.Builder, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	out, err := os.Create(args[2])
	if err != nil {
		return err
	}
	return errors.Join(c.ReadDisk(args[0], args[1], out), out.Close())
}

func runReadSnapshot(c *cluster.Cluster, _ *build.Builder, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	out, err := os.Create(args[2])
	if err != nil {
		return err
	}
	return errors.Join(c.ReadSnapshot(args[0], args[1], out), out.Close())
}

func runCSI(c *cluster.Cluster, _ *build.Builder, args []string) error {
	if len(args) != 2 {
		return errUsage
	}
	file := c.ControlFile(args[0])
	if args[1] == "" {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	// The driver reads at any time, so it must find the old settings or the new ones.
	if err := os.WriteFile(file+".new", []byte(args[1]), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
