package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// binds are the folders that the parts insist on; the node has its own of each.
var binds = []string{
	"/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/lib/kubevirt", "/var/log/pods", "/var/log/containers",
	"/etc/kubernetes",
}

const (
	storeSize = 64 << 30 // sparse
	// ready is the file that tells the host that the node is up, or what stopped it.
	readyFile = "init.ready"
)

// RunInit is the life of the node's init. It must be process 1 of fresh namespaces; Start sees to that.
func RunInit(d Dir) error {
	err := setUp(d)
	report := "ok"
	if err != nil {
		report = err.Error()
	}
	if writing := os.WriteFile(d.Path(readyFile), []byte(report), 0o644); err == nil {
		err = writing
	}
	if err != nil {
		return err
	}
	return supervise(d)
}

func setUp(d Dir) error {
	steps := []struct {
		name string
		do   func(Dir) error
	}{
		{"mounts", setUpMounts},
		{"folders", setUpFolders},
		{"store", setUpStore},
		{"network", setUpNetwork},
	}
	for _, s := range steps {
		if err := s.do(d); err != nil {
			return fmt.Errorf("set up %s: %w", s.name, err)
		}
	}
	return nil
}

func setUpMounts(Dir) error {
	v2 := unified() // of the host; the node's own /sys has nothing mounted that would tell
	if err := unix.Sethostname([]byte(Name)); err != nil {
		return err
	}
	// What the node mounts stays in it; kubelet and virt-handler need propagation inside.
	for _, flag := range []uintptr{unix.MS_SLAVE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", flag|unix.MS_REC, ""); err != nil {
			return err
		}
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	if err := unix.Unmount("/sys", unix.MNT_DETACH); err != nil {
		return err
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return err
	}
	if err := mountCgroups(v2); err != nil {
		return err
	}
	if err := hideResolver(); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	return os.Mkdir("/run/lock", 0o755)
}

// hideResolver leaves the node without name servers: none can be reached, and a look-up fails at once.
func hideResolver() error {
	file, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return unix.Mount("/dev/null", file, "", unix.MS_BIND, "")
}

func setUpFolders(d Dir) error {
	for _, name := range binds {
		own := d.Path("root", name)
		if err := os.MkdirAll(own, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(own, name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind %q: %w", name, err)
		}
		if err := unix.Mount("", name, "", unix.MS_SHARED, ""); err != nil {
			return err
		}
	}
	return nil
}

// setUpStore mounts the file system of the CSI driver: XFS with reflink on a sparse file.
func setUpStore(d Dir) error {
	if err := os.MkdirAll(d.Store(), 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(d.storeImage()); err != nil {
		if err := os.WriteFile(d.storeImage(), nil, 0o600); err != nil {
			return err
		}
		if err := os.Truncate(d.storeImage(), storeSize); err != nil {
			return err
		}
		if err := command("mkfs.xfs", "-q", "-m", "reflink=1", d.storeImage()); err != nil {
			return err
		}
	}
	return command("mount", "-o", "loop", d.storeImage(), d.Store())
}

func setUpNetwork(Dir) error {
	if err := waitForLink(nodeLink); err != nil {
		return err
	}
	for _, line := range []string{
		"link set lo up",
		"addr add " + IP + "/24 dev " + nodeLink,
		"link set " + nodeLink + " up",
		"link add " + podBridge + " type bridge",
		"addr add " + podGateway + " dev " + podBridge,
		"link set " + podBridge + " up",
		// The kernel wants a route before kube-proxy's rules give a service another address.
		"route add " + ServiceCIDR + " via " + HostIP,
		"route add unreachable default",
	} {
		if err := command("ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0)
}

// waitForLink waits for the host to put the node's end of the link into the network namespace.
func waitForLink(name string) error {
	var err error
	for range 100 {
		if _, err = net.InterfaceByName(name); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("wait for %q: %w", name, err)
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
