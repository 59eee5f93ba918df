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
	unpauses chan error // the same, of an unpause
}

func newRunner(task config.Config, self identity, calls *api) *runner {
	return &runner{task: task, self: self, api: calls, nonce: newNonce(), seen: witness.Observed{Config: task}, thaws: make(chan error, 1), unpauses: make(chan error, 1)}
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

// lastThaw leaves no paused or frozen guest behind a report that somebody deleted: the
// manager deletes it only after the release.
func (r *runner) lastThaw(ctx context.Context) error {
	if !r.seen.GuestHeld() {
		return nil
	}
	var err error
	if witness.FenceHeld(witness.Attempt(r.seen.Backup, r.task.Attempt), r.report.Status) {
		err = r.api.unpause(ctx, r.task.Machine.VMName, r.instance())
	}
	return errors.Join(err, r.api.thaw(ctx, r.task.Machine.VMName))
}

// instance is the UID of the instance that the manager recorded.
func (r *runner) instance() types.UID {
	if r.seen.Backup == nil || r.seen.Backup.Status.VM == nil {
		return ""
	}
	return r.seen.Backup.Status.VM.InstanceUID
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
		answered(&r.seen.Freeze, err)
	case err := <-r.unpauses:
		answered(&r.seen.Fence, err)
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
	if attempt != nil && attempt.Fence != nil && r.seen.Fence.At.IsZero() {
		r.seen.Fence.At, r.seen.Fence.Live = s.at, s.live
	}
}

func (r *runner) act(ctx context.Context, d witness.Decision) error {
	switch d.Step {
	case witness.StepGuard:
		return r.guard(ctx)
	case witness.StepReadFirst, witness.StepReadOnce:
		return r.readFirst(ctx, d.Step)
	case witness.StepReadFenced:
		if !d.WakeAt.IsZero() {
			within, stop := context.WithDeadline(ctx, d.WakeAt)
			defer stop()
			ctx = within
		}
		return r.readFirst(ctx, d.Step)
	case witness.StepFinish:
		return r.record(ctx, func(s *v1alpha1.VMStateReportStatus) { s.Outcome = v1alpha1.OutcomeSucceeded })
	case witness.StepReadSecond:
		return r.readSecond(ctx)
	case witness.StepThaw:
		r.thaw(ctx)
		return nil
	case witness.StepRecordRelease:
		return r.record(ctx, func(s *v1alpha1.VMStateReportStatus) {
			s.Witness.ReleasedAt = microTime(r.seen.Freeze.LastTry)
		})
	case witness.StepUnpause:
		r.unpause(ctx)
		return nil
	case witness.StepRecordUnpause:
		return r.record(ctx, func(s *v1alpha1.VMStateReportStatus) {
			s.Witness.UnpausedAt = microTime(r.seen.Fence.LastTry)
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
	try(&r.seen.Freeze)
	go func() { r.thaws <- r.api.thaw(ctx, r.task.Machine.VMName) }()
}

// unpause does not wait for the answer either.
func (r *runner) unpause(ctx context.Context) {
	klog.InfoS("Unpausing the guest: the deadline of its pause has passed", "VirtualMachineInstance", klog.KRef(r.self.namespace, r.task.Machine.VMName))
	try(&r.seen.Fence)
	uid := r.instance()
	go func() { r.unpauses <- r.api.unpause(ctx, r.task.Machine.VMName, uid) }()
}

func try(h *witness.Held) { h.LastTry, h.Trying, h.Answered = time.Now(), true, false }

func answered(h *witness.Held, err error) {
	h.Trying, h.Answered = false, err == nil
	if err != nil {
		klog.ErrorS(err, "The guest is not released; it is tried again")
	}
}

// guard records that the dead man's switch works. A guest that cannot be unpaused now may be reachable in a
// moment, so only a missing right ends it; the manager waits for the record, and not for ever.
func (r *runner) guard(ctx context.Context) error {
	for _, right := range []string{unpause, unfreeze} {
		err := r.checkRight(ctx, right)
		if no, ok := errors.AsType[refusal](err); ok {
			return r.fail(ctx, no.reason, no.message)
		}
		if err != nil {
			return err
		}
	}
	if err := r.api.reachesKubeVirt(ctx, r.task.Machine.VMName); err != nil {
		return err
	}
	return r.record(ctx, func(s *v1alpha1.VMStateReportStatus) { s.Witness.Guarding = true })
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
