package controllers

import (
	"fmt"
	"testing"
	"time"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// TestBackupKilled kills the manager at every write to the cluster and every call to the guest,
// just after it took effect and before its answer came: what is also just before the next one. A
// new manager must bring the backup to its end: Ready, with nothing left of it but its commit,
// and no guest frozen.
func TestBackupKilled(t *testing.T) {
	worlds := map[string]func(*testing.T) *backupWorld{
		"RunningWithAgent": func(t *testing.T) *backupWorld {
			w := newBackupWorld(t, "root")
			w.start(true)
			w.backup(nil)
			return w
		},
		"Group": func(t *testing.T) *backupWorld {
			w := newBackupWorld(t, "root", "data")
			w.start(false)
			w.backup(nil)
			return w
		},
		"Halted": func(t *testing.T) *backupWorld {
			w := newBackupWorld(t, "root")
			w.backup(nil)
			return w
		},
		"WithoutStore": func(t *testing.T) *backupWorld {
			w := newBackupWorld(t, "root")
			w.start(false)
			w.changes = 1
			w.backup(func(s *v1alpha1.VMStateBackupSpec) { s.StoreRef = nil })
			return w
		},
	}
	for name, world := range worlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 1; killAt(t, world, n) && !t.Failed(); n++ {
			}
		})
	}
}

// killAt is false if the backup needed fewer writes.
func killAt(t *testing.T, world func(*testing.T) *backupWorld, n int) bool {
	starts := 0
	t.Run(fmt.Sprint(n), func(t *testing.T) {
		w := world(t)
		w.kill = n
		b := w.run(2 * time.Minute)
		if s := said(b); s[:4] != "True" {
			t.Errorf("the backup did not get over the kill: %s", s)
		}
		var kept []string
		if l := b.Status.Local; l != nil {
			kept = []string{l.StateClaimName, l.Snapshots[0].SnapshotName, fmt.Sprintf("vmstate-%s-spec", b.UID)}
		}
		w.clean(b, kept...)
		starts = w.starts
	})
	return starts > 1
}
