package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/mover"
)

// progressEvery is how often progress is written at most.
const progressEvery = 5 * time.Second

// finishWithin is how long the result is tried to be written. It may outlast the
// signal to stop: a result that is lost means that the task is done again.
const finishWithin = 2 * time.Minute

// stoppedMessage is no finding: the task is as it was, but for what is done of it.
const stoppedMessage = "told to stop, as when the node is drained or the pod deleted; the next pod goes on with what is there"

// sayWithin is what is left for saying so.
const sayWithin = 5 * time.Second

// reporter writes the status of the Job's VMStateReport.
type reporter struct {
	objects *objects
	name    string
	podUID  types.UID

	mu     sync.Mutex
	latest mover.Progress
}

func newReporter(o *objects, name, podUID string) *reporter {
	return &reporter{objects: o, name: name, podUID: types.UID(podUID)}
}

// begin says which pod is at work, and forgets what an earlier one could not do. It
// returns the outcome if an earlier pod has reached one.
func (r *reporter) begin(ctx context.Context) (v1alpha1.ReportOutcome, error) {
	report, err := r.objects.report(ctx, r.name)
	if err != nil {
		return "", err
	}
	if report.Status.Outcome != "" {
		return report.Status.Outcome, nil
	}
	return "", r.patch(ctx, map[string]any{
		"podUID": r.podUID, "reason": nil, "message": nil, "unlock": nil, "unlocked": nil,
	})
}

// progress is called from the data path: it only takes note.
func (r *reporter) progress(p mover.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latest = p
}

func (r *reporter) read() mover.Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest
}

// writeProgress writes progress until the function that it returns is called. A
// write that fails is made up for by the next one.
func (r *reporter) writeProgress(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		var written mover.Progress
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now := r.read()
			if now == written {
				continue
			}
			if err := r.patch(ctx, v1alpha1.VMStateReportStatus{Progress: reportProgress(now)}); err != nil {
				klog.InfoS("Cannot write progress", "error", err.Error())
				continue
			}
			written = now
		}
	})
	return func() { cancel(); wg.Wait() }
}

func reportProgress(p mover.Progress) *v1alpha1.ReportProgress {
	return &v1alpha1.ReportProgress{TotalBytes: p.Total, DoneBytes: p.Done, ReadBytes: p.Read, SentBytes: p.Sent}
}

// finish writes the result, again and again until it is there.
func (r *reporter) finish(ctx context.Context, status v1alpha1.VMStateReportStatus) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishWithin)
	defer cancel()
	if now := r.read(); now != (mover.Progress{}) {
		status.Progress = reportProgress(now)
	}
	status.PodUID = r.podUID
	for {
		err := r.patch(ctx, status)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(time.Second):
		}
	}
}

// stopped says why the pod ends; the next one takes it back.
func (r *reporter) stopped(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sayWithin)
	defer cancel()
	err := r.patch(ctx, map[string]any{"message": stoppedMessage})
	if err != nil {
		klog.InfoS("Cannot say that the pod was told to stop", "error", err.Error())
	}
}

// patch merges status, which is a status or part of one, into the report's.
func (r *reporter) patch(ctx context.Context, status any) error {
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	_, err = r.objects.reports.Patch(ctx, r.name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("patch report %q: %w", r.name, err)
	}
	return nil
}
