//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	vmstate "github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
	"github.com/vmstate/vmstate/test/e2e/story"
)

const (
	trackedDriver = "reflink.csi.test"
	trackedBytes  = 128 << 20
)

// tracked is a stopped machine with one disk in Block mode, whose driver tells what its snapshots hold, and what is
// on the disk.
type tracked struct {
	t    *testing.T
	keys *story.KeyPair
	disk []byte
}

const trackedNS = "tracked"

// TestChangedBlocks backs one disk up again and again by what the storage says has changed: no more is read than
// that, what it does not say in full is read instead, and an audit finds out a driver that lies.
func TestChangedBlocks(t *testing.T) {
	ctx := t.Context()
	d := &tracked{t: t, disk: make([]byte, trackedBytes)}
	d.keys = namespace(ctx, t, trackedNS)
	check(t, trackedNS, env.Apply(ctx, trackedMachine))
	d.write(ctx, 4<<20, 24<<20)
	first := d.backup(ctx, "first", vmstate.ChangedBlocksIfAvailable)
	d.expect(first, vmstate.ReadAllocated, "", 24<<20)

	d.write(ctx, 64<<20, 3<<20)
	second := d.backup(ctx, "second", vmstate.ChangedBlocksIfAvailable)
	d.expect(second, vmstate.ReadChanged, "", 3<<20)
	d.same(ctx)
	d.oneBase(ctx, "second")

	// A stream that ends early without an error is taken up; one that stays broken is none.
	d.write(ctx, 8<<20, 1<<20)
	d.write(ctx, 80<<20, 1<<20)
	d.cue(ctx, `{"metadata": {"endAfter": 1}}`)
	d.expect(d.backup(ctx, "ends-early", vmstate.ChangedBlocksIfAvailable), vmstate.ReadChanged, "", 2<<20)
	d.same(ctx)
	d.write(ctx, 96<<20, 1<<20)
	d.cue(ctx, `{"metadata": {"breakAt": 16777216}}`)
	d.expect(d.backup(ctx, "broken", vmstate.ChangedBlocksIfAvailable), vmstate.ReadAll, "changes are not known: snapshot metadata is incomplete", trackedBytes)
	d.same(ctx)

	// A driver that tells of no change makes a backup that lacks it. The audit says so, and has it.
	d.write(ctx, 32<<20, 1<<20)
	d.cue(ctx, `{"metadata": {"lie": true}}`)
	d.expect(d.backup(ctx, "lied-about", vmstate.ChangedBlocksIfAvailable), vmstate.ReadChanged, "", 0)
	audit := d.backup(ctx, "audit", vmstate.ChangedBlocksAudit)
	d.expect(audit, vmstate.ReadAudited, "an audit was asked for", trackedBytes)
	if got := audit.Status.Export.Readings[0].UntoldBytes; got != 1<<20 {
		t.Errorf("the audit found %d bytes, want 1 MiB", got)
	}
	d.same(ctx)
	d.condition(ctx, "audit", vmstate.ConditionDriverTrusted, "False")
	d.condition(ctx, "lied-about", vmstate.ConditionSuspect, "True")
	d.remembered(ctx)

	// Until an audit is without fault everything is read and compared; then the driver is believed again. What it
	// had done is known when the backup that found it is gone.
	d.cue(ctx, "")
	after := d.backup(ctx, "after", vmstate.ChangedBlocksIfAvailable)
	d.expect(after, vmstate.ReadAudited, `the audit of backup "audit" found`, trackedBytes)
	if r := after.Status.Export.Readings[0]; r.UntoldBytes != 0 || r.FullyReadAt == nil {
		t.Errorf("the audit after the repair: %+v", r)
	}
	_, err := env.K(ctx, "-n", trackedNS, "delete", "vmstatebackup", "audit")
	check(t, trackedNS, err)
	d.write(ctx, 48<<20, 1<<20)
	d.expect(d.backup(ctx, "trusted", vmstate.ChangedBlocksIfAvailable), vmstate.ReadChanged, "", 1<<20)
	d.remembered(ctx)
	d.condition(ctx, "lied-about", vmstate.ConditionSuspect, "True")
	d.oneBase(ctx, "trusted")
	d.backup(ctx, "last", vmstate.ChangedBlocksNever)
	d.oneBase(ctx, "")
	d.same(ctx)
	nothingLeft(ctx, t, trackedNS)
}

const trackedMachine = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: db-disk, namespace: tracked}
spec: {accessModes: [ReadWriteOnce], volumeMode: Block, storageClassName: reflink, resources: {requests: {storage: 128Mi}}}
---
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: db, namespace: tracked}
spec:
  runStrategy: Halted
  template:
    spec:
      domain:
        memory: {guest: 64Mi}
        devices: {disks: [{name: root, disk: {bus: virtio}}]}
      volumes: [{name: root, persistentVolumeClaim: {claimName: db-disk}}]
`

// write puts new data on the disk. What is zero in the image is not written, so the rest of the disk stays as it is.
func (d *tracked) write(ctx context.Context, offset, length int) {
	d.t.Helper()
	image := make([]byte, offset+length)
	copy(image[offset:], storetest.Bytes(uint64(time.Now().UnixNano()), length))
	copy(d.disk[offset:], image[offset:])
	file := filepath.Join(env.Work, "tracked.img")
	check(d.t, trackedNS, os.WriteFile(file, image, 0o600))
	_, err := env.Run(ctx, nil, env.Cluster, "load-disk", trackedNS, "db-disk", file)
	check(d.t, trackedNS, err)
}

// cue tells the driver how to behave from now on.
func (d *tracked) cue(ctx context.Context, control string) {
	d.t.Helper()
	_, err := env.Run(ctx, nil, env.Cluster, "csi", trackedDriver, control)
	check(d.t, trackedNS, err)
	d.t.Cleanup(func() { _, _ = env.Run(context.WithoutCancel(ctx), nil, env.Cluster, "csi", trackedDriver, "") })
}

func (d *tracked) backup(ctx context.Context, name string, policy vmstate.ChangedBlocksPolicy) *vmstate.VMStateBackup {
	d.t.Helper()
	begun := time.Now()
	check(d.t, trackedNS, env.Apply(ctx, fmt.Sprintf(`apiVersion: vmstate.io/v1alpha1
kind: VMStateBackup
metadata: {name: %s, namespace: tracked}
spec: {vmName: db, storeRef: {name: main}, changedBlocks: %s}
`, name, policy)))
	check(d.t, trackedNS, env.UntilReady(ctx, 3*time.Minute, trackedNS, "vmstatebackup/"+name, nil))
	b := &vmstate.VMStateBackup{}
	check(d.t, trackedNS, env.Get(ctx, b, "-n", trackedNS, "vmstatebackup/"+name))
	d.t.Logf("%s (%.0f s): read %d bytes, %+v", name, time.Since(begun).Seconds(), b.Status.Export.ReadBytes, b.Status.Export.Readings)
	return b
}

// documentBytes are at most read besides the disk: the documents of the machine.
const documentBytes = 64 << 10

// expect compares how the disk was read. What has changed may be read 1.1 times.
func (d *tracked) expect(b *vmstate.VMStateBackup, way vmstate.ReadingWay, reason string, changed int64) {
	d.t.Helper()
	r := b.Status.Export.Readings[0]
	if r.Way != way || !strings.Contains(r.Reason, reason) || reason == "" && r.Reason != "" {
		d.t.Errorf("backup %q read %s (%s), want %s (%s)", b.Name, r.Way, r.Reason, way, reason)
	}
	if read := b.Status.Export.ReadBytes; read < changed || read > changed+changed/10+documentBytes {
		d.t.Errorf("backup %q read %d bytes for %d that had changed", b.Name, read, changed)
	}
}

// same brings the newest backup back and compares it with the disk.
func (d *tracked) same(ctx context.Context) {
	d.t.Helper()
	own := *env
	own.Bucket.Prefix += "-" + trackedNS
	dir := d.t.TempDir()
	check(d.t, trackedNS, own.RestoreFiles(ctx, d.keys, trackedNS+"/db", "latest", dir))
	images, err := filepath.Glob(filepath.Join(dir, "*.img"))
	if err != nil || len(images) != 1 {
		d.t.Fatalf("restored %v, %v", images, err)
	}
	got, err := os.ReadFile(images[0])
	check(d.t, trackedNS, err)
	if !bytes.Equal(got, d.disk) {
		d.t.Error("the newest backup does not hold what is on the disk")
	}
}

// oneBase waits until the snapshots of that backup, and no others, are kept on the storage; "" for none.
func (d *tracked) oneBase(ctx context.Context, name string) {
	d.t.Helper()
	check(d.t, trackedNS, story.Until(ctx, time.Minute, time.Second, func(ctx context.Context) (bool, string, error) {
		var list vmstate.VMStateBackupList
		if err := env.Get(ctx, &list, "-n", trackedNS, "vmstatebackups"); err != nil {
			return false, "", err
		}
		kept := ""
		for _, b := range list.Items {
			if b.Status.Export != nil && b.Status.Export.Base != nil {
				kept += b.Name
			}
		}
		out, err := env.K(ctx, "-n", trackedNS, "get", "volumesnapshots", "-o", "name")
		one := strings.Count(out, "volumesnapshot") == min(1, len(name))
		return kept == name && one, kept + ": " + out, err
	}))
}

// remembered: the store says what the audit found.
func (d *tracked) remembered(ctx context.Context) {
	d.t.Helper()
	s := &vmstate.VMStateStore{}
	check(d.t, trackedNS, env.Get(ctx, s, "-n", trackedNS, "vmstatestore/main"))
	if f := s.Status.DriverFindings; len(f) != 1 || f[0].Driver != trackedDriver || f[0].BackupName != "audit" || f[0].UntoldBytes != 1<<20 {
		d.t.Errorf("the store remembers %+v", f)
	}
}

func (d *tracked) condition(ctx context.Context, backup, kind, status string) {
	d.t.Helper()
	check(d.t, trackedNS, story.Until(ctx, 30*time.Second, time.Second, func(ctx context.Context) (bool, string, error) {
		b := &vmstate.VMStateBackup{}
		err := env.Get(ctx, b, "-n", trackedNS, "vmstatebackup/"+backup)
		c := apimeta.FindStatusCondition(b.Status.Conditions, kind)
		if c == nil {
			return false, "no condition " + kind, err
		}
		return string(c.Status) == status, c.Message, err
	}))
}
