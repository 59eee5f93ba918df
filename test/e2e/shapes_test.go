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
