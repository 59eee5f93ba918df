package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// pollInterval between two looks at an object: the manager writes progress every few seconds.
const pollInterval = time.Second

// state is how far an object is.
type state struct {
	ready, failed   bool
	reason, message string
	reading         reading
}

// stateOf reads the conditions that every kind has.
func stateOf(conditions []metav1.Condition) state {
	s := state{failed: meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionStalled)}
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		s.ready, s.reason, s.message = ready.Status == metav1.ConditionTrue, ready.Reason, ready.Message
	}
	s.reading.step = s.reason
	switch s.reason {
	case "":
		s.reading.step = "Accepted"
	case v1alpha1.ReasonWaitingForMover, v1alpha1.ReasonJobPending:
		s.reading.extra = s.message // the place among those who wait, or why
	}
	return s
}

// wait looks until the object is ready or has failed, and shows how far it is meanwhile. what is the object, for
// messages. A look that fails is an error only if it fails for a minute on end: the API server may restart.
func (a *app) wait(ctx context.Context, what string, look func(context.Context) (state, error)) error {
	progress := newBar(a.err)
	defer progress.end()
	lastGood := time.Now()
	for {
		s, err := look(ctx)
		switch {
		case err != nil && exitCode(err) == exitNotFound:
			return fmt.Errorf("%s is gone: %w", what, err)
		case err != nil && time.Since(lastGood) > time.Minute:
			return fmt.Errorf("watch %s: %w", what, err)
		case err != nil:
			progress.show(reading{step: "Reconnecting", extra: err.Error()})
		case s.failed:
			return failure(what, s)
		default:
			progress.show(s.reading)
			lastGood = time.Now()
			if s.ready {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return &outcome{
				kind: ctx.Err(), text: fmt.Sprintf("stopped waiting; %s goes on in the cluster", what), err: ctx.Err(),
				hint: "kubectl vmstate show follows up",
			}
		case <-time.After(pollInterval):
		}
	}
}

var errFailed = errors.New("failed")

// failure is an object that will not become ready by itself.
func failure(what string, s state) error {
	kind := errFailed
	switch s.reason {
	case v1alpha1.ReasonBackupDamaged, v1alpha1.ReasonNotAuthentic, v1alpha1.ReasonStateDamaged, v1alpha1.ReasonRepositoryDamaged:
		kind = errDamaged
	case v1alpha1.ReasonVMNotFound, v1alpha1.ReasonBackupNotFound, v1alpha1.ReasonStoreNotFound:
		kind = errNotFound
	}
	return &outcome{kind: kind, text: fmt.Sprintf("%s: %s: %s", what, s.reason, s.message), err: kind}
}
