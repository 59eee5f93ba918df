package csireflink

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
)

// TestSanity runs the suite of the CSI project against the driver, on an XFS of its own. It needs root.
func TestSanity(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	socket := serve(t, dir)
	config := sanity.NewTestConfig()
	config.Address = socket
	config.TargetPath = filepath.Join(dir, "target")
	config.StagingPath = filepath.Join(dir, "staging")
	config.TestVolumeSize = 32 << 20
	sanity.Test(t, config)
}

// serve runs a driver on a fresh XFS with reflink until the test ends.
func serve(t *testing.T, dir string) (socket string) {
	t.Helper()
	root := mountXFS(t, dir)
	socket = filepath.Join(dir, "csi.sock")
	driver, err := New(Options{Name: "reflink.csi.test", Node: "node", Root: root, Socket: socket, Control: filepath.Join(dir, "control.json")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- driver.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	return socket
}

// mountXFS mounts a fresh XFS with reflink below dir until the test ends.
func mountXFS(t *testing.T, dir string) (root string) {
	t.Helper()
	root, image := filepath.Join(dir, "store"), filepath.Join(dir, "store.xfs")
	for _, args := range [][]string{
		{"mkdir", root},
		{"truncate", "-s", "4G", image},
		{"mkfs.xfs", "-q", "-m", "reflink=1", image},
		{"mount", "-o", "loop", image, root},
	} {
		if _, err := run(args[0], args[1:]...); err != nil {
			t.Skipf("no XFS with reflink can be mounted here: %v", err)
		}
	}
	t.Cleanup(func() {
		if _, err := run("umount", root); err != nil {
			t.Error(err)
		}
	})
	return root
}
