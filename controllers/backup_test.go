package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/api/v1alpha1"
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
	b := w.run(2 * time.Minute)
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
	w.backup(nil)
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
