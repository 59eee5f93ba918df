package controllers

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/test/build"
)

// reached is what a story compares.
type reached struct {
	Said     string
	Disks    v1alpha1.DiskBinding
	State    v1alpha1.StateBinding
	Quiesce  v1alpha1.QuiesceOutcome
	Attempts int32
}

func reachedBy(b *v1alpha1.VMStateBackup) reached {
	out := reached{Said: said(b)}
	if m := b.Status.Moment; m != nil {
		out.Disks, out.State, out.Quiesce, out.Attempts = m.Disks, m.State, m.Quiesce, m.Attempts
	}
	return out
}

func (w *backupWorld) expect(want reached) *v1alpha1.VMStateBackup {
	w.t.Helper()
	b := w.run(5 * time.Minute)
	if diff := cmp.Diff(want, reachedBy(b)); diff != "" {
		w.t.Errorf("(-want +got):\n%s", diff)
	}
	return b
}

func TestBackupOfRunningVM(t *testing.T) {
	w := newBackupWorld(t, "root")
	w.start(false)
	w.backup(nil)
	b := w.expect(reached{
		Said:  "True Stored: 2 volumes of 2.0 GiB stored as commit 1",
		Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceNoAgent, Attempts: 1,
	})
	w.clean(b)
}

func TestBackupWithAgent(t *testing.T) {
	w := newBackupWorld(t, "root")
	w.start(true)
	w.backup(nil)
	b := w.expect(reached{
		Said:  "True Stored: 2 volumes of 2.0 GiB stored as commit 1",
		Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceFrozen, Attempts: 1,
	})
	if w.guest.freezes != 1 || w.guest.thaws == 0 {
		t.Errorf("%d freezes and %d thaws", w.guest.freezes, w.guest.thaws)
	}
	w.clean(b)
}

// Three attempts: the state changes during the first two, and what they made goes before the next.
func TestBackupWhileStateChanges(t *testing.T) {
	w := newBackupWorld(t, "root")
	w.start(true)
	w.changes = 2
	w.backup(nil)
	b := w.expect(reached{
		Said:  "True Stored: 2 volumes of 2.0 GiB stored as commit 1",
		Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceFrozen, Attempts: 3,
	})
	w.clean(b)
}

func TestBackupWhoseStateNeverHolds(t *testing.T) {
	w := newBackupWorld(t, "root")
	w.start(false)
	w.changes = 5
	w.backup(func(s *v1alpha1.VMStateBackupSpec) { s.Require.MaxPause = &metav1.Duration{} })
	b := w.expect(reached{Said: "False StateChanged: the firmware state changed during each of 5 attempts " +
		"(last: the firmware state changed during the cut: nvram/db_VARS.fd: contents); try again when the guest is quieter, or stop the VM for the backup"})
	w.clean(b)
}

func TestBackupOfHaltedVM(t *testing.T) {
	w := newBackupWorld(t, "root", "data")
	w.backup(nil)
	b := w.expect(reached{
		Said:  "True Stored: 3 volumes of 3.0 GiB stored as commit 1",
		Disks: v1alpha1.DisksOffline, State: v1alpha1.StateOffline, Quiesce: v1alpha1.QuiesceOffline, Attempts: 1,
	})
	w.clean(b)
}

func TestBackupOfSeveralDisks(t *testing.T) {
	w := newBackupWorld(t, "root", "data")
	w.start(true)
	w.backup(nil)
	b := w.expect(reached{
		Said:  "True Stored: 3 volumes of 3.0 GiB stored as commit 1",
		Disks: v1alpha1.DisksGroup, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceFrozen, Attempts: 1,
	})
	w.clean(b)
}

func TestBackupWithoutStore(t *testing.T) {
	w := newBackupWorld(t, "root")
	w.start(false)
	w.backup(func(s *v1alpha1.VMStateBackupSpec) { s.StoreRef = nil })
	b := w.expect(reached{
		Said:  "True Kept: 2 volumes of 2.0 GiB kept as snapshots on the storage",
		Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceNoAgent, Attempts: 1,
	})
	name := func(suffix string) string { return fmt.Sprintf("vmstate-%s-%s", b.UID, suffix) }
	w.clean(b, name("snap-1-0"), name("spec"), name("state"))
}

// Deleted while the guest is frozen and the storage hangs: the guest is thawed and all goes.
func TestBackupDeletedWhileFrozen(t *testing.T) {
	w := newBackupWorld(t, "root")
	w.start(true)
	w.mute["Driver"] = true
	deleted := false
	w.hook = func(b *v1alpha1.VMStateBackup) {
		if w.guest.frozen() && !deleted {
			deleted = true
			w.must(w.cluster.Client.Delete(t.Context(), b))
			w.mute["Driver"] = false // it answers at last, as a driver may
		}
	}
	b := w.backup(nil)
	w.run(2 * time.Minute)
	if !deleted || w.guest.thaws == 0 {
		t.Errorf("deleted while frozen: %t; thaws: %d", deleted, w.guest.thaws)
	}
	if w.get("nightly", &v1alpha1.VMStateBackup{}) {
		t.Error("the backup is still there")
	}
	w.clean(b)
}

// The storage never cuts: the guest is thawed at its deadline, the backup ends with the reason.
func TestBackupWhoseStorageHangs(t *testing.T) {
	w := newBackupWorld(t, "root")
	w.start(true)
	w.mute["Driver"] = true
	w.hook = func(b *v1alpha1.VMStateBackup) {
		if n := len(b.Status.Attempts); n > 0 && b.Status.Attempts[n-1].Freeze != nil {
			if f := b.Status.Attempts[n-1].Freeze; w.now().After(f.Deadline.Add(5*time.Second)) && w.guest.thaws == 0 {
				t.Error("the deadline passed and nobody thawed the guest")
			}
		}
		if b.Status.Failure != nil {
			w.mute["Driver"] = false
		}
	}
	w.backup(nil)
	b := w.expect(reached{Said: "False SnapshotFailed: the storage did not cut the snapshots in 3m0s"})
	w.clean(b)
}

// The agent does not answer: IfAvailable goes on crash-consistent and says so.
func TestBackupWhoseAgentRefuses(t *testing.T) {
	w := newBackupWorld(t, "root")
	w.start(true)
	w.guest.refuse = errors.New("guest agent is not responding")
	w.backup(nil)
	b := w.expect(reached{
		Said:  "True Stored: 2 volumes of 2.0 GiB stored as commit 1",
		Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceFailed, Attempts: 1,
	})
	w.clean(b)
}

// The guest is frozen and never thaws: nothing says that it has, and nothing waits for it for ever.
func TestBackupOfDeafGuest(t *testing.T) {
	w := newBackupWorld(t, "root")
	w.start(true)
	w.guest.deaf = true
	w.hook = func(b *v1alpha1.VMStateBackup) {
		if w.guest.frozen() {
			w.guest.until = w.now().Add(time.Hour) // nor does KubeVirt's timer help
		}
		if a := b.Status.Attempts; len(a) > 0 && a[0].Freeze != nil && a[0].Freeze.ReleaseFailingSince != nil && a[0].Freeze.UnconfirmedAt == nil {
			w.ahead += 10 * time.Minute
		}
	}
	w.backup(nil)
	b := w.expect(reached{
		Said: "True Stored: 2 volumes of 2.0 GiB stored as commit 1; the guest was asked to thaw for 30m0s and never confirmed it (the agent does not answer); " +
			"KubeVirt does not report its filesystems as frozen, which is no proof: see whether it still writes to its disks, and if it hangs, " +
			"thaw it from its console (fsfreeze --unfreeze), restart its agent, or restart the VM",
		Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceFrozen, Attempts: 1,
	})
	if w.guest.thaws < 2 || b.Status.Attempts[0].Freeze.ReleasedAt != nil {
		t.Errorf("asked %d times, released %v", w.guest.thaws, b.Status.Attempts[0].Freeze.ReleasedAt)
	}
	w.guest.until = time.Time{}
	w.clean(b)
}

// A migration begins before the backup and ends: the backup goes on by itself.
func TestBackupWaitsForMigration(t *testing.T) {
	w := newBackupWorld(t, "root")
	vmi := w.start(false)
	now := metav1.Now()
	vmi.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{StartTimestamp: &now}
	w.must(w.cluster.Client.Update(t.Context(), vmi))
	waited := false
	w.hook = func(b *v1alpha1.VMStateBackup) {
		if waited || !strings.HasPrefix(said(b), "False Migrating: ") {
			return
		}
		waited = true
		w.must(w.cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi))
		vmi.Status.MigrationState.EndTimestamp = &now
		w.must(w.cluster.Client.Update(t.Context(), vmi))
	}
	w.backup(nil)
	b := w.expect(reached{
		Said:  "True Stored: 2 volumes of 2.0 GiB stored as commit 1",
		Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceNoAgent, Attempts: 1,
	})
	if !waited {
		t.Error("it did not wait")
	}
	w.clean(b)
}

// Somebody's instance is on the disk of the halted VM: it is no disk at rest before that ends.
func TestBackupWaitsForOtherInstance(t *testing.T) {
	w := newBackupWorld(t, "root")
	pod := build.Launcher(build.VM("rescue"), "root-db")
	pod.Spec.Containers = []corev1.Container{{Name: "compute", Image: "none"}}
	w.create(pod)
	pod.Status.Phase = corev1.PodRunning
	w.must(w.cluster.Client.Status().Update(t.Context(), pod))
	waited := false
	w.hook = func(b *v1alpha1.VMStateBackup) {
		if waited || !strings.HasPrefix(said(b), `False VolumeShared: claim "root-db" of volume "root" is in use by instance rescue`) {
			return
		}
		waited = true
		w.must(w.cluster.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
	w.backup(nil)
	b := w.expect(reached{
		Said:  "True Stored: 2 volumes of 2.0 GiB stored as commit 1",
		Disks: v1alpha1.DisksOffline, State: v1alpha1.StateOffline, Quiesce: v1alpha1.QuiesceOffline, Attempts: 1,
	})
	if !waited {
		t.Error("it did not wait")
	}
	w.clean(b)
}

func TestBackupOfAbsentVM(t *testing.T) {
	w := newBackupWorld(t, "root")
	w.must(w.cluster.Client.Delete(t.Context(), w.vm))
	w.backup(nil)
	b := w.expect(reached{Said: `False VMNotFound: there is no VirtualMachine "db" in this namespace`})
	if len(b.Status.Attempts) > 0 || w.guest.freezes > 0 {
		t.Error("something was begun")
	}
	w.clean(b)
}

// FC-007, FC-086: what is required and cannot be met is said at once, in one condition, and nothing is made before.
func TestBackupRequires(t *testing.T) {
	w := newBackupWorld(t, "root")
	w.vm.Spec.Template.Spec.Domain.Devices.TPM = nil
	w.vm.Spec.Template.Spec.Domain.Firmware.Bootloader = nil
	w.start(false)
	w.backup(func(s *v1alpha1.VMStateBackupSpec) {
		s.Quiesce, s.Require.FirmwareState = v1alpha1.QuiesceRequired, v1alpha1.FirmwareStateRequired
	})
	b := w.expect(reached{Said: `False StateMissing: 2 obstacles: (1) firmwareState is Required, and VM "db" keeps neither TPM nor EFI variables; ` +
		`make them persistent again (in its spec or its preference), or do not require them (2) quiesce is Required, and no guest agent is connected in VM "db"; ` +
		`start qemu-guest-agent in the guest, or do not require it`})
	if len(b.Status.Attempts) > 0 || w.guest.freezes > 0 {
		t.Error("something was begun")
	}
	if p := b.Spec.Require.MaxPause; p == nil || p.Duration != 2*time.Second {
		t.Errorf("maxPause is %v, want the API server to fill in 2s", p)
	}
	w.clean(b)
}

// While the guest is frozen the manager can see nothing but the backup: the deadline holds.
func TestBackupThawsBlindly(t *testing.T) {
	w := newBackupWorld(t, "root", "data")
	w.start(true)
	w.mute["Driver"] = true
	w.hook = func(*v1alpha1.VMStateBackup) {
		switch {
		case w.blind && w.guest.thaws > 0:
			w.blind, w.mute["Driver"] = false, false
		case w.guest.frozen() && !w.blind:
			w.blind = true
			w.guest.until = w.now().Add(time.Hour) // KubeVirt's own timer is lost
			w.ahead += 31 * time.Second
		}
	}
	w.backup(nil)
	b := w.expect(reached{
		Said:  "True Stored: 3 volumes of 3.0 GiB stored as commit 1",
		Disks: v1alpha1.DisksGroup, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceFailed, Attempts: 1,
	})
	w.clean(b)
}
