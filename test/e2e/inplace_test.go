//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vmstate/vmstate/test/e2e/story"
)

// TestInPlace puts an older moment into the place of a running virtual machine: disks and firmware state
// go back together (FC-008), the run strategy is put back (FC-038), and deleting every object of vmstate's
// leaves the machine alone (FC-083).
func TestInPlace(t *testing.T) {
	ctx := t.Context()
	const ns, vm = "inplace", "db"
	keys := namespace(ctx, t, ns)
	check(t, ns, env.Guest(ctx, ns, vm, story.GuestOptions{Step: "4s", VolumeMode: "Filesystem"}))
	_, err := env.Verdict(ctx, 5*time.Minute, ns, vm)
	check(t, ns, err)
	check(t, ns, env.UntilGeneration(ctx, time.Minute, ns, vm, 2))
	_, err = env.Backup(ctx, ns, "first", vm, nil)
	check(t, ns, err)
	held := isMoment(ctx, t, keys, ns+"/"+vm)
	check(t, ns, env.UntilGeneration(ctx, 2*time.Minute, ns, vm, held.Disk.Generation+3))
	second, err := env.Backup(ctx, ns, "second", vm, nil)
	check(t, ns, err)
	t.Logf("the second backup read %d bytes and sent %d", second.Status.Export.ReadBytes, second.Status.Export.SentBytes)
	if second.Status.Export.SentBytes > 4<<20 {
		t.Errorf("the second backup sent %d bytes: it must send what changed", second.Status.Export.SentBytes)
	}
	spec := story.RestoreSpec{Name: "back", Mode: "InPlace", Source: "{backupRef: {name: first}}", Extra: "  stopPolicy: Stop\n"}
	check(t, ns, env.Restore(ctx, ns, spec, func(m string) { t.Log(m) }))
	verdict, err := env.Verdict(ctx, 5*time.Minute, ns, vm)
	check(t, ns, err)
	if want := fmt.Sprintf("STATE OK gen=%d", held.Disk.Generation); !strings.HasPrefix(verdict, want) {
		t.Errorf("after the restore in place the guest says %q, want %s", verdict, want)
	}
	out, err := env.K(ctx, "-n", ns, "get", "vm", vm, "-o", "jsonpath={.spec.runStrategy}")
	check(t, ns, err)
	if out != "Always" {
		t.Errorf("run strategy %q, want Always as before", out)
	}
	_, err = env.K(ctx, "-n", ns, "delete", "vmstaterestores,vmstatebackups", "--all", "--wait", "--timeout=120s")
	check(t, ns, err)
	check(t, ns, env.UntilGeneration(ctx, time.Minute, ns, vm, held.Disk.Generation+2))
	nothingLeft(ctx, t, ns)
}
