//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	vmstate "github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/test/e2e/story"
)

// TestOfflineAndLocal backs up a stopped virtual machine to the store, and a running one to snapshots
// alone; both come back.
func TestOfflineAndLocal(t *testing.T) {
	ctx := t.Context()
	const ns, vm = "offline", "db"
	namespace(ctx, t, ns)
	check(t, ns, env.Guest(ctx, ns, vm, story.GuestOptions{Step: "4s"}))
	_, err := env.Verdict(ctx, 5*time.Minute, ns, vm)
	check(t, ns, err)
	check(t, ns, env.UntilGeneration(ctx, time.Minute, ns, vm, 1))

	check(t, ns, env.Apply(ctx, "apiVersion: vmstate.io/v1alpha1\nkind: VMStateBackup\nmetadata: {name: local, namespace: offline}\nspec: {vmName: db}\n"))
	check(t, ns, env.UntilReady(ctx, 5*time.Minute, ns, "vmstatebackup/local", nil))

	check(t, ns, halt(ctx, ns, vm))
	b, err := env.Backup(ctx, ns, "stopped", vm, nil)
	check(t, ns, err)
	if b.Status.Moment.Disks != vmstate.DisksOffline || b.Status.Moment.State != vmstate.StateOffline {
		t.Errorf("the moment of a stopped machine is %+v", b.Status.Moment)
	}
	for _, name := range []string{"stopped", "local"} {
		spec := story.RestoreSpec{Name: "from-" + name, Mode: "InPlace", Source: "{backupRef: {name: " + name + "}}", Extra: "  startPolicy: Start\n  stopPolicy: Stop\n"}
		check(t, ns, env.Restore(ctx, ns, spec, nil))
		verdict, err := env.Verdict(ctx, 5*time.Minute, ns, vm)
		check(t, ns, err)
		t.Logf("%s boots: %s", name, verdict)
		if !strings.HasPrefix(verdict, "STATE OK") {
			t.Errorf("restored from %s the guest says %q", name, verdict)
		}
	}
}

// halt stops a virtual machine and waits until its instance is gone.
func halt(ctx context.Context, ns, vm string) error {
	if _, err := env.K(ctx, "-n", ns, "patch", "vm", vm, "--type=merge", "-p", `{"spec":{"runStrategy":"Halted"}}`); err != nil {
		return err
	}
	_, err := env.K(ctx, "-n", ns, "wait", "--for=delete", "vmi/"+vm, "--timeout=120s")
	return err
}

// TestGroupAndStateWithoutSnapshots backs up a running machine with two disks, whose firmware state is on
// storage that cannot make snapshots (FC-002, FC-017), and brings it back under another name with another
// UUID (FC-003, FC-004, FC-027).
func TestGroupAndStateWithoutSnapshots(t *testing.T) {
	ctx := t.Context()
	const ns, vm = "group", "db"
	namespace(ctx, t, ns)
	check(t, ns, env.Guest(ctx, ns, vm, story.GuestOptions{Step: "4s", SecondDisk: true, StateClass: "nosnap"}))
	_, err := env.Verdict(ctx, 5*time.Minute, ns, vm)
	check(t, ns, err)
	b, err := env.Backup(ctx, ns, "both", vm, nil)
	check(t, ns, err)
	if b.Status.Moment.Disks != vmstate.DisksGroup || b.Status.Moment.State != vmstate.StateWitness {
		t.Errorf("the moment of two disks is %+v", b.Status.Moment)
	}
	t.Logf("group: window %d ms, quiesce %s, frozen %d ms", b.Status.Moment.WindowMilliseconds, b.Status.Moment.Quiesce, b.Status.Moment.FrozenMilliseconds)
	_, err = env.K(ctx, "-n", ns, "delete", "vm", vm, "--wait")
	check(t, ns, err)
	spec := story.RestoreSpec{Name: "renamed", Mode: "NewVM", Source: "{backupRef: {name: both}}",
		Extra: "  target: {vmName: other}\n  tpmPolicy: Keep\n  firmwareUUID: New\n  macAddresses: New\n  startPolicy: Start\n" +
			"  storage: [{role: FirmwareState, storageClassName: reflink}]\n"}
	check(t, ns, env.Restore(ctx, ns, spec, nil))
	verdict, err := env.Verdict(ctx, 5*time.Minute, ns, "other")
	check(t, ns, err)
	t.Logf("under another name: %s", verdict)
	if !strings.HasPrefix(verdict, "STATE OK") {
		t.Errorf("under another name and UUID the guest says %q", verdict)
	}
	nothingLeft(ctx, t, ns)
}
