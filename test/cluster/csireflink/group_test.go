package csireflink

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// writerDevices tells a second process of this test which two devices to write to.
const writerDevices = "CSIREFLINK_TEST_WRITER"

func TestMain(m *testing.M) {
	if devices := os.Getenv(writerDevices); devices != "" {
		writeForever(filepath.SplitList(devices))
	}
	os.Exit(m.Run())
}

// writeForever counts: each number goes to the first device, then to the second, so that no moment has more than one
// step between them.
func writeForever(devices []string) {
	var files []*os.File
	for _, name := range devices {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_SYNC, 0)
		if err != nil {
			panic(err)
		}
		files = append(files, f)
	}
	block := make([]byte, blockSize)
	for n := uint64(1); ; n++ {
		binary.LittleEndian.PutUint64(block, n)
		for _, f := range files {
			if _, err := f.WriteAt(block, 0); err != nil {
				panic(err)
			}
		}
	}
}

// TestGroupIsOneMoment cuts groups while another process writes to two Block volumes by turns. With the volumes held
// the two copies must always fit together; without, and with a gap between the copies, they must not.
func TestGroupIsOneMoment(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("loop devices need root")
	}
	d, control := newDriver(t)
	ids := []string{"first", "second"}
	var devices string
	for _, id := range ids {
		device := stage(t, d, id)
		devices += string(os.PathListSeparator) + device
	}
	writer := exec.Command("/proc/self/exe")
	writer.Env = append(os.Environ(), writerDevices+"="+devices[1:])
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = writer.Process.Kill()
		_ = writer.Wait()
	}()

	before := uint64(0)
	for i := range 8 {
		first, second := cutGroup(t, d, fmt.Sprintf("held-%d", i), ids)
		if first != second && first != second+1 {
			t.Errorf("group %d is torn: %d and %d", i, first, second)
		}
		if first <= before && i > 0 {
			t.Errorf("group %d: the writer stands still at %d", i, first)
		}
		before = first
		time.Sleep(20 * time.Millisecond)
	}

	if err := os.WriteFile(control, []byte(`{"noHold": true, "gapMillis": 500}`), 0o644); err != nil {
		t.Fatal(err)
	}
	first, second := cutGroup(t, d, "loose", ids)
	if first == second || first == second+1 {
		t.Errorf("copies 500 ms apart fit together (%d and %d): this test cannot tell", first, second)
	}
}

// newDriver is a driver on a fresh XFS that is called directly.
func newDriver(t *testing.T) (d *Driver, control string) {
	t.Helper()
	dir := t.TempDir()
	root := mountXFS(t, dir)
	control = filepath.Join(dir, "control.json")
	d, err := New(Options{Name: "reflink.csi.test", Node: "node", Root: root, Control: control})
	if err != nil {
		t.Fatal(err)
	}
	return d, control
}

// stage makes and attaches a Block volume and returns its device.
func stage(t *testing.T, d *Driver, id string) string {
	t.Helper()
	ctx := context.Background()
	block := &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}}
	_, err := d.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: id, VolumeCapabilities: []*csi.VolumeCapability{block}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: t.TempDir(), VolumeCapability: block}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := detach(d.store.image(volumes, id)); err != nil {
			t.Errorf("detach: %v", err)
		}
	})
	device, err := loopOf(d.store.image(volumes, id))
	if err != nil {
		t.Fatal(err)
	}
	return device
}

// cutGroup makes a group snapshot and reads the number in each of its two members.
func cutGroup(t *testing.T, d *Driver, name string, ids []string) (first, second uint64) {
	t.Helper()
	_, err := d.CreateVolumeGroupSnapshot(context.Background(), &csi.CreateVolumeGroupSnapshotRequest{Name: name, SourceVolumeIds: ids})
	if err != nil {
		t.Fatal(err)
	}
	var numbers []uint64
	for _, id := range ids {
		raw, err := os.ReadFile(d.store.image(snapshots, memberID(name, id)))
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, binary.LittleEndian.Uint64(raw))
	}
	return numbers[0], numbers[1]
}
