package node

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if handled, err := Hook(os.Args[1:]); handled {
		if err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestLeavesNothing starts a node, puts a stack of loop devices and mounts into it as a CSI driver and a kubelet do, ends it
// in several ways and looks for what is left on the host.
func TestLeavesNothing(t *testing.T) {
	needNode(t)
	cases := map[string]struct {
		reason string
		end    func(t *testing.T, d Dir)
	}{
		"Clean": {"the usual end", func(*testing.T, Dir) {}},
		"Killed": {"a crash must leave nothing that the next start does not remove", func(t *testing.T, d Dir) {
			if err := unix.Kill(d.PID(), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}},
		"Frozen": {"a driver that was killed while it held a volume", func(t *testing.T, d Dir) {
			inNode(t, d, "fsfreeze", "--freeze", d.Path("mounted"))
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := traces(t)
			d := Dir(t.TempDir())
			if err := Start(d, self(t)); err != nil {
				t.Fatal(err)
			}
			stackVolumes(t, d)
			if during := traces(t); cmp.Equal(before, during) {
				t.Fatal("the running node has left no trace: this test cannot tell")
			}
			tc.end(t, d)
			if err := Clean(d); err != nil {
				t.Errorf("%s\nClean() = %v", tc.reason, err)
			}
			if diff := cmp.Diff(before, traces(t)); diff != "" {
				t.Errorf("%s\ntraces mismatch (-before +after):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestHasOwnGroups makes a group in the node, as kubelet does, and looks for it on the host, below the node's group.
func TestHasOwnGroups(t *testing.T) {
	needNode(t)
	d := Dir(t.TempDir())
	if err := Start(d, self(t)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := Clean(d); err != nil {
			t.Error(err)
		}
	}()
	for _, dir := range cgroups() {
		inNode(t, d, "mkdir", filepath.Join(filepath.Dir(dir), "probe"))
		if _, err := os.Stat(filepath.Join(dir, "probe")); err != nil {
			t.Errorf("a group that was made in the node: %v", err)
		}
	}
	if !unified() {
		return
	}
	host, err := os.ReadFile(filepath.Join(cgroupRoot, "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	inside, err := os.ReadFile(filepath.Join(cgroupRoot, group, "probe", "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(host), string(inside)); diff != "" {
		t.Errorf("controllers mismatch (-host +group in the node):\n%s", diff)
	}
}

// TestSupervisorStartsAgain kills a service and waits for the next one.
func TestSupervisorStartsAgain(t *testing.T) {
	needNode(t)
	d := Dir(t.TempDir())
	if err := Start(d, self(t)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := Clean(d); err != nil {
			t.Error(err)
		}
	}()
	if err := StartService(d, Service{Name: "sleep", Argv: []string{"/bin/sleep", "1000"}}); err != nil {
		t.Fatal(err)
	}
	inNode(t, d, "pkill", "--exact", "sleep")
	deadline := time.Now().Add(10 * time.Second)
	for {
		services, err := Services(d)
		if err != nil {
			t.Fatal(err)
		}
		if services[0].Restarts == 1 && services[0].PID != 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after 10 s: %+v", services)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func needNode(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("namespaces need root")
	}
	if _, err := exec.LookPath("mkfs.xfs"); err != nil {
		t.Skip("the package xfsprogs is not installed")
	}
	if _, err := net.InterfaceByName(hostLink); err == nil {
		t.Skip("a cluster runs, and there can be only one")
	}
}

func self(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// stackVolumes attaches an image on the store, mounts its ext4 shared, and attaches a device on top of another.
func stackVolumes(t *testing.T, d Dir) {
	t.Helper()
	script := strings.NewReplacer("STORE", d.Store(), "MOUNT", d.Path("mounted")).Replace(`set -e
		mkdir -p MOUNT
		truncate -s 32M STORE/a.img STORE/b.img
		mkfs.ext4 -q STORE/a.img
		mount -o loop STORE/a.img MOUNT
		losetup --find $(losetup --find --show STORE/b.img)`)
	inNode(t, d, "sh", "-c", script)
}

func inNode(t *testing.T, d Dir, args ...string) {
	t.Helper()
	if out, err := Command(d, self(t), args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// traces lists what a node can leave on the host.
func traces(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/sys/block/loop*/loop", "/sys/fs/cgroup/*/" + group, "/sys/fs/cgroup/" + group, "/sys/class/net/*"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, names...)
	}
	for _, name := range binds {
		if _, err := os.Stat(name); err == nil {
			found = append(found, name)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	return append(found, strings.Split(string(mounts), "\n")...)
}
