package main

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// sighting is one look at the backup.
type sighting struct {
	backup *v1alpha1.VMStateBackup // nil: it does not exist
	live   bool                    // it came as an event
	at     time.Time               // when it came
}

const (
	firstPause = 100 * time.Millisecond
	longPause  = 2 * time.Second
)

// follow sends what becomes of the backup until ctx ends. What it cannot read it
// does not send: unreachable is not gone.
func (r *runner) follow(ctx context.Context, news chan<- sighting) {
	send := func(live bool) func(*v1alpha1.VMStateBackup) {
		return func(b *v1alpha1.VMStateBackup) {
			select {
			case news <- sighting{backup: b, live: live, at: time.Now()}:
			case <-ctx.Done():
			}
		}
	}
	for pause := firstPause; ctx.Err() == nil; {
		err := r.followOnce(ctx, send)
		if err == nil {
			pause = firstPause
			continue
		}
		if ctx.Err() == nil {
			klog.ErrorS(err, "Lost sight of the backup", "VMStateBackup", klog.KRef(r.self.namespace, r.task.BackupName))
		}
		sleep(ctx, pause)
		pause = min(2*pause, longPause)
	}
}

// followOnce reads the backup and watches it until the watch ends.
func (r *runner) followOnce(ctx context.Context, send func(live bool) func(*v1alpha1.VMStateBackup)) error {
	b, err := r.api.backup(ctx, r.task.BackupName)
	if apierrors.IsNotFound(err) {
		send(false)(nil)
		sleep(ctx, longPause)
		return nil
	}
	if err != nil {
		return err
	}
	send(false)(b)
	return r.api.watchBackup(ctx, r.task.BackupName, b.ResourceVersion, send(true))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
