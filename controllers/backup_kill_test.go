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
	for n := 1; killAt(t, n) && !t.Failed(); n++ {
	}
}

// killAt is false if the backup needed fewer writes.
func killAt(t *testing.T, n int) bool {
	starts := 0
	t.Run(fmt.Sprint(n), func(t *testing.T) {
		w := newBackupWorld(t, "root")
		w.start(true)
		w.kill = n
		w.backup(nil)
		w.survives()
		starts = w.starts
	})
	return starts > 1
}

// survives runs the backup and compares what is left with what it may keep.
func (w *backupWorld) survives() {
	w.t.Helper()
	b := w.run(3 * time.Minute)
	if s := said(b); s[:4] != "True" {
		w.t.Errorf("the backup did not get over it: %s", s)
	}
	var kept []string
	if l := b.Status.Local; l != nil {
		kept = []string{l.StateClaimName, l.Snapshots[0].SnapshotName, fmt.Sprintf("vmstate-%s-spec", b.UID)}
	}
	w.clean(b, kept...)
}

// TestBackupKilledAllTheTime: no manager lives longer than one write. A guest that is frozen
// would be thawed by each next manager, so there is none here.
func TestBackupKilledAllTheTime(t *testing.T) {
	worlds := map[string]func(*testing.T) *backupWorld{
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
			w := world(t)
			w.kill = everyWrite
			w.survives()
			if w.starts < 20 {
				t.Errorf("only %d managers were needed: they were not killed", w.starts)
			}
		})
	}
}
