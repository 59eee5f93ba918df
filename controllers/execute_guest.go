package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/inventory"
)

const (
	// guestTimeout bounds one request to freeze, thaw, pause or unpause, so that a hanging agent cannot
	// keep what is recorded from being released.
	guestTimeout = 15 * time.Second
	// seePause is between two looks at an instance that KubeVirt has paused: its status says so some
	// tenths of a second later, and every one of them is a pause for nothing.
	seePause = 20 * time.Millisecond
)

// doGuest carries out an action on a guest; nil if it is none.
func (e *executor) doGuest(ctx context.Context, owner client.Object, a action.Action) *action.Answer {
	limit := guestTimeout
	switch a := a.(type) {
	case action.Pause:
		limit = min(limit, a.Limit) // the deadline of the fence is kept by who waits here
	case action.Unfreeze, action.Unpause:
		ctx = context.WithoutCancel(ctx) // a release is asked for in any case, by a manager that ends too
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch a := a.(type) {
	case action.Freeze:
		return e.freeze(ctx, owner, a)
	case action.Unfreeze:
		return e.unfreeze(ctx, owner, a)
	case action.Pause:
		return e.pause(ctx, owner, a)
	case action.Unpause:
		return e.unpause(ctx, owner, a)
	default:
		return nil
	}
}

func (e *executor) freeze(ctx context.Context, owner client.Object, a action.Freeze) *action.Answer {
	_, err := e.sameInstance(ctx, owner.GetNamespace(), a.Instance, a.UID)
	if err == nil {
		ctrl.LoggerFrom(ctx).Info("Freezing guest", "VirtualMachineInstance", klog.KRef(owner.GetNamespace(), a.Instance))
		err = e.guests.Freeze(ctx, owner.GetNamespace(), a.Instance, a.Timeout)
	}
	return &action.Answer{Action: a, At: e.now(), Failure: text(err), Refused: refused(err)}
}

// refused says that an error is an answer which leaves nothing under way. A 5xx can come from any
// hop on the way to the guest while the last goes on.
func refused(err error) bool {
	status := apierrors.APIStatus(nil)
	if errors.Is(err, errAnotherInstance) {
		return true
	}
	if !errors.As(err, &status) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError
}

func (e *executor) unfreeze(ctx context.Context, owner client.Object, a action.Unfreeze) *action.Answer {
	vmi, err := e.sameInstance(ctx, owner.GetNamespace(), a.Instance, a.UID)
	if goneInstance(err, a.Instance) || errors.Is(err, errAnotherInstance) {
		return &action.Answer{Action: a, At: e.now()} // what was frozen is gone
	}
	answer := &action.Answer{Action: a}
	if err == nil {
		answer.GuestSeen, answer.GuestStatus = true, vmi.Status.FSFreezeStatus
		ctrl.LoggerFrom(ctx).Info("Thawing guest", "VirtualMachineInstance", klog.KRef(owner.GetNamespace(), a.Instance))
		err = e.guests.Unfreeze(ctx, owner.GetNamespace(), a.Instance)
	}
	if goneInstance(err, a.Instance) {
		err = nil
	}
	if err != nil && !answer.GuestSeen {
		answer.KubeVirtGone = e.guests.Gone(ctx)
	}
	answer.At, answer.Failure = e.now(), text(err)
	return answer
}

// errAlreadyPaused: the owner's pause and one of ours whose answer was lost look the same.
var errAlreadyPaused = errors.New("the instance is paused already")

// pause waits until the status says what was done: an unpause is a conflict until then.
func (e *executor) pause(ctx context.Context, owner client.Object, a action.Pause) *action.Answer {
	vmi, err := e.sameInstance(ctx, owner.GetNamespace(), a.Instance, a.UID)
	if err == nil && inventory.Paused(vmi) {
		err = errAlreadyPaused
	}
	if err == nil {
		ctrl.LoggerFrom(ctx).Info("Pausing guest", "VirtualMachineInstance", klog.KRef(owner.GetNamespace(), a.Instance))
		err = e.guests.Pause(ctx, owner.GetNamespace(), a.Instance)
	}
	answer := &action.Answer{Action: a, Failure: text(err), Refused: refused(err) && !apierrors.IsConflict(err)}
	for err == nil && answer.PausedSince == nil && answer.Failure == "" {
		vmi, err = e.sameInstance(ctx, owner.GetNamespace(), a.Instance, a.UID)
		switch {
		case err != nil:
			answer.Failure = "it was paused, and cannot be looked at: " + err.Error()
		case inventory.Paused(vmi):
			answer.PausedSince, _ = inventory.PausedSince(vmi)
		case !sleep(ctx, seePause):
			answer.Failure = "it was paused, and its status does not say so"
		}
	}
	answer.At = e.now()
	return answer
}

// sleep is false if ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// unpause asks only where the status says that the instance is paused: any other request is a conflict.
func (e *executor) unpause(ctx context.Context, owner client.Object, a action.Unpause) *action.Answer {
	vmi, err := e.sameInstance(ctx, owner.GetNamespace(), a.Instance, a.UID)
	if goneInstance(err, a.Instance) || errors.Is(err, errAnotherInstance) {
		return &action.Answer{Action: a, At: e.now()} // what was paused is gone
	}
	if err == nil && inventory.Paused(vmi) {
		ctrl.LoggerFrom(ctx).Info("Unpausing guest", "VirtualMachineInstance", klog.KRef(owner.GetNamespace(), a.Instance))
		err = e.guests.Unpause(ctx, owner.GetNamespace(), a.Instance)
	}
	if goneInstance(err, a.Instance) {
		err = nil
	}
	return &action.Answer{Action: a, At: e.now(), Failure: text(err), KubeVirtGone: err != nil && vmi == nil && e.guests.Gone(ctx)}
}

// goneInstance: a 404 counts only if it names the instance, since KubeVirt's API itself can be
// what is not found.
func goneInstance(err error, instance string) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Name == instance
}

var errAnotherInstance = errors.New("another instance of that name")

// sameInstance is the instance of that name, if it is the one with this UID, and is not ended.
func (e *executor) sameInstance(ctx context.Context, namespace, name string, uid types.UID) (*kubevirtv1.VirtualMachineInstance, error) {
	vmi := &kubevirtv1.VirtualMachineInstance{}
	if err := e.live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, vmi); err != nil {
		return nil, err
	}
	if vmi.UID != uid || vmi.IsFinal() {
		return nil, fmt.Errorf("%w: %q", errAnotherInstance, name)
	}
	return vmi, nil
}
