package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/witness"
	"github.com/vmstate/vmstate/pkg/witness/config"
)

// identity is what the Job's environment says of this pod.
type identity struct {
	namespace string
	report    string
	podUID    string
}

// runner does what witness.Plan says, one step at a time.
type runner struct {
	task   config.Config
	self   identity
	api    *api
	nonce  string
	report *v1alpha1.VMStateReport // as recorded
	seen   witness.Observed
	// captured is what this process has put into Secrets; recorded or not.
	captured *capture
	sets     int        // sets of Secrets that this process has begun
	thaws    chan error // the answer to the try that is under way
}

func newRunner(task config.Config, self identity, calls *api) *runner {
	return &runner{task: task, self: self, api: calls, nonce: newNonce(), seen: witness.Observed{Config: task}, thaws: make(chan error, 1)}
}

// run returns when the report has an outcome and no guest is held frozen, or with
// an error when ctx ends before.
func (r *runner) run(ctx context.Context) error {
	if err := r.loadReport(ctx); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	news := make(chan sighting, 16) // so that the time of a sighting is that of its arrival
	go r.follow(ctx, news)
	for ctx.Err() == nil {
		r.seen.Now, r.seen.Report = time.Now(), r.report.Status
		d := witness.Plan(r.seen)
		switch d.Step {
		case witness.StepExit:
			return r.verdict()
		case witness.StepWait:
			r.wait(ctx, news, d.WakeAt)
			continue
		}
		if err := r.act(ctx, d); errors.Is(err, errReportGone) {
			return errors.Join(err, r.lastThaw(ctx))
		} else if err != nil {
			klog.ErrorS(err, "Step did not succeed; it is tried again", "step", d.Step)
			r.wait(ctx, news, time.Now().Add(retryPause))
		}
	}
	return fmt.Errorf("stopped before the readings were complete: %w", context.Cause(ctx))
}

const retryPause = 500 * time.Millisecond

// errReportGone: nothing can be recorded any more, so nothing that is read counts.
var errReportGone = errors.New("the report of this witness does not exist")

// lastThaw leaves no frozen guest behind a report that somebody deleted: the manager
// deletes it only after the release.
func (r *runner) lastThaw(ctx context.Context) error {
	if !r.seen.FreezeHeld() {
		return nil
	}
	return r.api.thaw(ctx, r.task.Machine.VMName)
}

func (r *runner) verdict() error {
	if r.report.Status.Outcome == v1alpha1.OutcomeFailed {
		return fmt.Errorf("%w: %s: %s", errFinal, r.report.Status.Reason, r.report.Status.Message)
	}
	return nil
}

// loadReport waits for the API to answer: without the report nothing can be recorded.
func (r *runner) loadReport(ctx context.Context) error {
	for {
		report, err := r.api.report(ctx, r.self.report)
		if err == nil {
			r.report = report
			return nil
		}
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%w: %w", errReportGone, err)
		}
		if ctx.Err() != nil {
			return err
		}
		klog.ErrorS(err, "Report cannot be read; it is tried again")
		sleep(ctx, retryPause)
	}
}

// wait ends with news of the backup, with the answer to a thaw, or at the given time.
func (r *runner) wait(ctx context.Context, news <-chan sighting, until time.Time) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case s := <-news:
		r.see(s)
	case err := <-r.thaws:
		r.thawed(err)
	}
}

func (r *runner) see(s sighting) {
	if s.backup == nil || s.backup.UID != types.UID(r.task.BackupUID) {
		r.seen.Gone = true
		return
	}
	r.seen.Backup = s.backup
	attempt := witness.Attempt(s.backup, r.task.Attempt)
	if attempt != nil && attempt.Freeze != nil && r.seen.Freeze.At.IsZero() {
		r.seen.Freeze.At, r.seen.Freeze.Live = s.at, s.live
	}
}

func (r *runner) act(ctx context.Context, d witness.Decision) error {
	switch d.Step {
	case witness.StepReadFirst, witness.StepReadOnce:
		return r.readFirst(ctx, d.Step)
	case witness.StepReadSecond:
		return r.readSecond(ctx)
	case witness.StepThaw:
		r.thaw(ctx)
		return nil
	case witness.StepRecordRelease:
		return r.record(ctx, func(s *v1alpha1.VMStateReportStatus) {
			s.Witness.ReleasedAt = microTime(r.seen.Freeze.LastThaw)
		})
	case witness.StepFail:
		return r.fail(ctx, d.Reason, d.Message)
	default:
		return fmt.Errorf("unknown step %q", d.Step)
	}
}

// thaw asks to thaw and does not wait for the answer: an agent may take its time.
func (r *runner) thaw(ctx context.Context) {
	klog.InfoS("Thawing the guest: the deadline of its freeze has passed", "VirtualMachineInstance", klog.KRef(r.self.namespace, r.task.Machine.VMName))
	r.seen.Freeze.LastThaw, r.seen.Freeze.Thawing, r.seen.Freeze.ThawAnswered = time.Now(), true, false
	go func() { r.thaws <- r.api.thaw(ctx, r.task.Machine.VMName) }()
}

func (r *runner) thawed(err error) {
	r.seen.Freeze.Thawing, r.seen.Freeze.ThawAnswered = false, err == nil
	if err != nil {
		klog.ErrorS(err, "The guest is not thawed; it is tried again")
	}
}

func (r *runner) fail(ctx context.Context, reason, message string) error {
	return r.record(ctx, func(s *v1alpha1.VMStateReportStatus) {
		s.Outcome, s.Reason, s.Message = v1alpha1.OutcomeFailed, reason, message
	})
}

// record writes the report. If another pod of the Job wrote meanwhile, its report
// is taken as it is and the plan is made anew from it.
func (r *runner) record(ctx context.Context, edit func(*v1alpha1.VMStateReportStatus)) error {
	status := r.report.Status.DeepCopy()
	status.PodUID = types.UID(r.self.podUID)
	if status.Witness == nil {
		status.Witness = &v1alpha1.WitnessResult{}
	}
	edit(status)
	written, err := r.api.writeReport(ctx, r.report, *status)
	if err != nil {
		// Also after a time-out: the write may have happened.
		return errors.Join(err, r.loadReport(ctx))
	}
	r.report = written
	return nil
}

func microTime(t time.Time) *metav1.MicroTime {
	m := metav1.NewMicroTime(t)
	return &m
}
