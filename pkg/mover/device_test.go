package mover

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
)

// device puts a loop device with body on it where a Block volume is mounted.
func (p *pod) device(t *testing.T, name string, body []byte) string {
	t.Helper()
	backing := filepath.Join(t.TempDir(), name)
	write(t, backing, body)
	out, err := exec.Command("losetup", "--find", "--show", backing).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach %s: %v: %s", device, err, out)
		}
	})
	folder(t, p.Paths.Devices)
	if err := os.Symlink(device, filepath.Join(p.Paths.Devices, name)); err != nil {
		t.Fatal(err)
	}
	return device
}

// A Block volume, restored onto a larger device that holds something else: what the
// backup has is there, and nothing else.
func TestBlockVolumes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("loop devices need root")
	}
	p := newPod(t, newStore())
	task, disks := p.exportTask(t, p.set(t))
	body := disks["root"][:5<<20]
	p.device(t, "root", body)
	task.Disks = []config.Disk{{Name: "root", Mode: config.Block, SizeBytes: int64(len(body))}}
	task.State = nil
	tooLarge := task
	tooLarge.Disks = []config.Disk{{Name: "root", Mode: config.Block, SizeBytes: int64(len(body)) + 1}}
	if _, err := Export(t.Context(), p.Env, tooLarge); !errors.Is(err, ErrVolume) {
		t.Errorf("device smaller than its claim: got %v, want ErrVolume", err)
	}
	done, err := Export(t.Context(), p.Env, task)
	if err != nil {
		t.Fatal(err)
	}
	q := newPod(t, p.Store)
	q.Paths.Identities = p.Paths.Identities
	device := q.device(t, "root", storetest.Bytes(99, 7<<20))
	fill := config.Import{Commit: &config.Commit{Key: done.Key, Digest: done.Digest}, Disks: task.Disks}
	if _, err := Import(t.Context(), q.Env, fill, nil); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(got, append(bytes.Clone(body), make([]byte, 2<<20)...)) {
		t.Errorf("the device does not hold the backup and zeros: %d bytes, %v", len(got), err)
	}
	small := newPod(t, p.Store)
	small.Paths.Identities = p.Paths.Identities
	small.device(t, "root", make([]byte, 4<<20))
	if _, err := Import(t.Context(), small.Env, fill, nil); !errors.Is(err, ErrVolume) {
		t.Errorf("smaller device: got %v, want ErrVolume", err)
	}
}
