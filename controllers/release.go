package controllers

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/backup"
)

// Releaser lets every guest go whose fence or freeze is recorded and not released, first thing when a
// manager starts to lead. Its backups' own passes go on from there: what it did not reach they
// try again, and they alone record the release.
type Releaser struct{ Backups *BackupReconciler }

// NeedLeaderElection: a manager that does not lead must not release what the leader holds.
func (Releaser) NeedLeaderElection() bool { return true }

// Start releases, then ends.
func (r Releaser) Start(ctx context.Context) error {
	list := &v1alpha1.VMStateBackupList{}
	if err := r.Backups.Live.List(ctx, list); err != nil {
		return fmt.Errorf("list backups to release guests: %w", err)
	}
	var all sync.WaitGroup
	for i := range list.Items {
		b := &list.Items[i]
		owed := backup.Release(b, r.Backups.Process)
		if len(owed) == 0 {
			continue
		}
		all.Go(func() {
			answers, err := r.Backups.executor().run(ctx, b, owed)
			if err != nil { // none of its actions comes to one
				ctrl.LoggerFrom(ctx).Error(err, "Releasing guest at start", "VMStateBackup", klog.KObj(b))
			}
			for _, answer := range answers {
				ctrl.LoggerFrom(ctx).Info("Released guest at start", "VMStateBackup", klog.KObj(b), "failure", answer.Failure)
			}
		})
	}
	all.Wait()
	return nil
}
