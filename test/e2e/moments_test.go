//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	vmstate "github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/test/e2e/story"
)

// captures is how many moments are taken in each of the two tests below; VMSTATE_E2E_CAPTURES, default 30.
func captures(t *testing.T) int {
	text := os.Getenv("VMSTATE_E2E_CAPTURES")
	if text == "" {
		return 30
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("VMSTATE_E2E_CAPTURES=%q is no number of captures", text)
	}
	return n
}

// TestEveryReadyBackupIsOneMoment captures a guest that steps at random intervals of 3 to 10 s. Every
// backup that is Ready must be a true moment by inspection of what is in the bucket; one that is refused
// because the state changed is allowed. Two of them are booted.
func TestEveryReadyBackupIsOneMoment(t *testing.T) {
	ctx := t.Context()
	const ns, vm = "moments", "counter"
	n := captures(t)
	keys := namespace(ctx, t, ns)
	check(t, ns, env.Guest(ctx, ns, vm, story.GuestOptions{Step: "3s-10s"}))
	_, err := env.Verdict(ctx, 5*time.Minute, ns, vm)
	check(t, ns, err)
	check(t, ns, env.UntilGeneration(ctx, time.Minute, ns, vm, 1))
	var windows []int64
	refused, retried, last := 0, 0, ""
	for i := range n {
		name := fmt.Sprintf("moment-%02d", i+1)
		b, err := env.Backup(ctx, ns, name, vm, nil)
		if err != nil && strings.Contains(err.Error(), vmstate.ReasonStateChanged) {
			refused++
			continue
		}
		check(t, ns, err)
		if b.Status.Moment.Attempts > 1 {
			retried++
		}
		windows = append(windows, b.Status.Moment.WindowMilliseconds)
		isMoment(ctx, t, keys, ns+"/"+vm)
		last = name
	}
	slices.Sort(windows)
	if len(windows) == 0 {
		t.Fatal("not one capture was Ready")
	}
	t.Logf("captures %d, ready %d, all true moments; window median %d ms, max %d ms; needed retries %d; refused as changed %d",
		n, len(windows), windows[len(windows)/2], windows[len(windows)-1], retried, refused)
	nothingLeft(ctx, t, ns)
	bootTwo(ctx, t, ns, last)
}

func bucketOf(ns string) string { return env.Bucket.Prefix + "-" + ns }

// isMoment brings the newest backup of a machine (namespace/name) out of the bucket and inspects it.
func isMoment(ctx context.Context, t *testing.T, keys *story.KeyPair, vm string) *story.Inspection {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "files")
	ns, _, _ := strings.Cut(vm, "/")
	bucket := *env
	bucket.Bucket.Prefix = bucketOf(ns)
	if err := bucket.RestoreFiles(ctx, keys, vm, "latest", dir); err != nil {
		t.Fatal(err)
	}
	seen, err := env.InspectFolder(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	if !seen.Moment {
		t.Errorf("the newest backup of %s is Ready and torn: %s (%+v)", vm, seen.Reason, seen)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
	return seen
}

// bootTwo boots the newest and the first backup under other names.
func bootTwo(ctx context.Context, t *testing.T, ns, newest string) {
	t.Helper()
	if _, err := env.K(ctx, "-n", ns, "delete", "vm", "counter", "--wait"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"moment-01", newest} {
		spec := story.RestoreSpec{
			Name: "boot-" + name, Mode: "NewVM", Source: fmt.Sprintf("{backupRef: {name: %s}}", name),
			Extra: fmt.Sprintf("  target: {vmName: boot-%s}\n  startPolicy: Start\n  tpmPolicy: Keep\n  firmwareUUID: New\n  macAddresses: New\n", name),
		}
		check(t, ns, env.Restore(ctx, ns, spec, nil))
		verdict, err := env.Verdict(ctx, 5*time.Minute, ns, "boot-"+name)
		check(t, ns, err)
		t.Logf("%s boots: %s", name, verdict)
		if !strings.HasPrefix(verdict, "STATE OK") {
			t.Errorf("%s boots with %q", name, verdict)
		}
	}
}

// TestWithoutTheWitnessCopiesAreTorn composes, from the product's own reader and a snapshot, what the
// product never does: state read without proof, 300 ms before the disk's snapshot, of a guest that steps
// without pause. Most of it must be torn, or the test above proves nothing.
func TestWithoutTheWitnessCopiesAreTorn(t *testing.T) {
	ctx := t.Context()
	const ns, vm = "torn", "counter"
	n := captures(t)
	check(t, ns, env.Namespace(ctx, ns))
	check(t, ns, env.Guest(ctx, ns, vm, story.GuestOptions{Step: "fast"}))
	_, err := env.Verdict(ctx, 5*time.Minute, ns, vm)
	check(t, ns, err)
	reader := filepath.Join(env.Work, "readstate")
	if _, err := env.Run(ctx, nil, "go", "build", "-o", reader, "./readstate"); err != nil {
		t.Fatal(err)
	}
	torn := 0
	for i := range n {
		// OVMF's variable store takes some 2,000 writes a boot, which a guest without pause makes in minutes.
		if i > 0 && i%10 == 0 {
			_, err := env.Restart(ctx, 5*time.Minute, ns, vm)
			check(t, ns, err)
		}
		if isTorn(t, reader, ns, vm, fmt.Sprintf("torn-%02d", i+1)) {
			torn++
		}
	}
	t.Logf("captures without a witness %d, torn %d", n, torn)
	if torn*2 <= n {
		t.Errorf("only %d of %d are torn: what is compared does not show a torn moment", torn, n)
	}
	check(t, ns, env.NoNamespace(ctx, ns))
}

// isTorn reads a running guest's state, copies its disk 300 ms later, and says that they do not belong together.
func isTorn(t *testing.T, reader, ns, vm, name string) bool {
	t.Helper()
	ctx := t.Context()
	volume, err := env.StateFolder(ctx, ns, vm)
	check(t, ns, err)
	state := filepath.Join(t.TempDir(), "state")
	if _, err := env.Run(ctx, nil, env.Cluster, "exec", reader, volume, state); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // the gap that is under test
	disk := filepath.Join(t.TempDir(), "disk.img")
	check(t, ns, env.SnapshotToFile(ctx, ns, vm+"-disk", name, disk))
	seen, err := env.Inspect(ctx, disk, state)
	if removing := os.Remove(disk); removing != nil {
		t.Error(removing)
	}
	if err != nil && strings.Contains(err.Error(), "not an OVMF variable store") {
		return true // read in the middle of a write of the firmware's
	}
	check(t, ns, err)
	return !seen.Moment
}
