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

// Releaser thaws every guest whose freeze is recorded and not released, first thing when a
// manager starts to lead. Its backups' own passes go on from there: what it did not reach they
// try again, and they alone record the release.
type Releaser struct{ Backups *BackupReconciler }

// NeedLeaderElection: a manager that does not lead must not thaw what the leader froze.
func (Releaser) NeedLeaderElection() bool { return true }

// Start thaws, then ends.
func (r Releaser) Start(ctx context.Context) error {
	list := &v1alpha1.VMStateBackupList{}
	if err := r.Backups.Live.List(ctx, list); err != nil {
		return fmt.Errorf("list backups to release guests: %w", err)
	}
	var all sync.WaitGroup
	for i := range list.Items {
		b := &list.Items[i]
		thaw, held := backup.Release(b, r.Backups.Process)
		if !held {
			continue
		}
		all.Go(func() {
			answer := r.Backups.executor().unfreeze(ctx, b, thaw)
			ctrl.LoggerFrom(ctx).Info("Released guest at start", "VMStateBackup", klog.KObj(b), "failure", answer.Failure)
		})
	}
	all.Wait()
	return nil
}
