package controllers

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// vmMark is a field of a VirtualMachine's status whose value, while there is one, has admission
// deny starts.
type vmMark struct {
	// field of the status, and what has it in progress.
	field, what string
	value       func(*kubevirtv1.VirtualMachine) *string
}

var (
	snapshotMark = vmMark{"snapshotInProgress", "snapshot", func(vm *kubevirtv1.VirtualMachine) *string { return vm.Status.SnapshotInProgress }}
	restoreMark  = vmMark{"restoreInProgress", "restore", func(vm *kubevirtv1.VirtualMachine) *string { return vm.Status.RestoreInProgress }}
)

// holding is who marks which VM.
type holding struct {
	VM     string
	UID    types.UID
	Holder string
}

// mark sets a mark that nobody else has set.
func (e *executor) mark(ctx context.Context, owner client.Object, m vmMark, h holding) error {
	vm, err := e.vm(ctx, owner.GetNamespace(), h.VM, h.UID)
	if err != nil {
		return err
	}
	if holder := m.value(vm); holder != nil {
		if *holder == h.Holder {
			return nil
		}
		return fmt.Errorf("VM %q has another %s in progress: %q", h.VM, m.what, *holder)
	}
	ctrl.LoggerFrom(ctx).Info("Denying starts of VM", "VirtualMachine", klog.KObj(vm), "mark", m.field)
	return e.patchVMStatus(ctx, vm, map[string]any{m.field: h.Holder})
}

// unmark takes a mark off that is still ours. A VM that is gone, or another one by now, has none.
func (e *executor) unmark(ctx context.Context, owner client.Object, m vmMark, h holding) error {
	vm, err := e.vm(ctx, owner.GetNamespace(), h.VM, h.UID)
	if errors.Is(err, errAnotherVM) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if holder := m.value(vm); holder == nil || *holder != h.Holder {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Allowing starts of VM", "VirtualMachine", klog.KObj(vm), "mark", m.field)
	return e.patchVMStatus(ctx, vm, map[string]any{m.field: nil})
}
