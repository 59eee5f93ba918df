package controllers

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
)

// doRestore carries out the actions of a restore.
func (e *executor) doRestore(ctx context.Context, owner client.Object, a action.Action) error {
	switch a := a.(type) {
	case action.CreateVM:
		return denied(e.createVM(ctx, owner, a))
	case action.WriteVM:
		return denied(e.writeVM(ctx, owner, a))
	case action.SetRunStrategy:
		return denied(e.setRunStrategy(ctx, owner, a))
	case action.RequestStart:
		return e.requestStart(ctx, owner, a)
	case action.HoldVM:
		return denied(e.mark(ctx, owner, restoreMark, holding(a)))
	case action.ReleaseVM:
		return e.unmark(ctx, owner, restoreMark, holding(a))
	case action.DeleteVM:
		return e.deleteMade(ctx, owner, &kubevirtv1.VirtualMachine{}, a.VM, a.UID)
	case action.DeleteInstance:
		return e.deleteInstance(ctx, owner, a)
	}
	return e.doRestoredClaims(ctx, owner, a)
}

// denied marks the answers of an API server that understood and refused: admission, a
// quota, a schema. A conflict or a time-out is none.
func denied(err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
		return fmt.Errorf("%w: %w", action.ErrDenied, err)
	}
	return err
}

// createVM meets its own object after a crash by the label, not by an owner reference:
// the virtual machine outlives the restore.
func (e *executor) createVM(ctx context.Context, owner client.Object, a action.CreateVM) error {
	vm := &unstructured.Unstructured{Object: a.Object}
	vm = vm.DeepCopy()
	if a.DryRun {
		return wrap(e.client.Create(ctx, vm, client.DryRunAll), "try VM %q", vm.GetName())
	}
	ctrl.LoggerFrom(ctx).Info("Creating VM", "VirtualMachine", klog.KObj(vm))
	err := e.client.Create(ctx, vm)
	if !apierrors.IsAlreadyExists(err) {
		return wrap(err, "create VM %q", vm.GetName())
	}
	found := &kubevirtv1.VirtualMachine{}
	if err := e.live.Get(ctx, client.ObjectKeyFromObject(vm), found); err != nil {
		return fmt.Errorf("get VM %q: %w", vm.GetName(), err)
	}
	if found.Labels[v1alpha1.LabelOwnerUID] != string(owner.GetUID()) {
		return fmt.Errorf("VM %q exists and was not made by %q", found.Name, owner.GetName())
	}
	return nil
}

// writeVM replaces the spec as a whole, of a machine that is still as it was planned for.
func (e *executor) writeVM(ctx context.Context, owner client.Object, a action.WriteVM) error {
	vm := &unstructured.Unstructured{}
	vm.SetGroupVersionKind(kubevirtv1.VirtualMachineGroupVersionKind)
	key := types.NamespacedName{Namespace: owner.GetNamespace(), Name: a.VM}
	if err := e.live.Get(ctx, key, vm); err != nil {
		return fmt.Errorf("get VM %q: %w", a.VM, err)
	}
	if vm.GetUID() != a.UID {
		return fmt.Errorf("%w: %q", errAnotherVM, a.VM)
	}
	vm.SetResourceVersion(a.ResourceVersion)
	if err := unstructured.SetNestedMap(vm.Object, a.Spec, "spec"); err != nil {
		return fmt.Errorf("set spec of VM %q: %w", a.VM, err)
	}
	var options []client.UpdateOption
	if a.DryRun {
		options = append(options, client.DryRunAll)
	} else {
		ctrl.LoggerFrom(ctx).Info("Writing spec of VM", "VirtualMachine", klog.KObj(vm))
	}
	return wrap(e.client.Update(ctx, vm, options...), "write spec of VM %q", a.VM)
}

func (e *executor) setRunStrategy(ctx context.Context, owner client.Object, a action.SetRunStrategy) error {
	vm, err := e.vm(ctx, owner.GetNamespace(), a.VM, a.UID)
	if err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Setting run strategy of VM", "VirtualMachine", klog.KObj(vm), "runStrategy", a.Strategy)
	patch, err := mergePatch(map[string]any{
		"metadata": map[string]any{"uid": string(vm.UID)},
		"spec":     map[string]any{"running": nil, "runStrategy": a.Strategy},
	})
	if err != nil {
		return err
	}
	return wrap(e.client.Patch(ctx, vm, patch), "set run strategy of VM %q", a.VM)
}

// requestStart does what the start subresource does for a machine that is started by hand:
// it leaves a request in the status (kubevirt.io/kubevirt, pkg/virt-api/rest).
func (e *executor) requestStart(ctx context.Context, owner client.Object, a action.RequestStart) error {
	vm, err := e.vm(ctx, owner.GetNamespace(), a.VM, a.UID)
	if err != nil {
		return err
	}
	if len(vm.Status.StateChangeRequests) > 0 {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Requesting start of VM", "VirtualMachine", klog.KObj(vm))
	request := []any{map[string]any{"action": string(kubevirtv1.StartRequest)}}
	return e.patchVMStatus(ctx, vm, map[string]any{"stateChangeRequests": request})
}

func (e *executor) deleteInstance(ctx context.Context, owner client.Object, a action.DeleteInstance) error {
	vmi := &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: owner.GetNamespace(), Name: a.Instance}}
	ctrl.LoggerFrom(ctx).Info("Deleting VMI", "VirtualMachineInstance", klog.KObj(vmi))
	return wrap(unlessGone(e.client.Delete(ctx, vmi, client.Preconditions{UID: &a.UID})), "delete VMI %q", a.Instance)
}

// deleteMade removes an object that carries the owner's label, whoever controls it by now.
func (e *executor) deleteMade(ctx context.Context, owner, obj client.Object, name string, uid types.UID) error {
	err := e.live.Get(ctx, types.NamespacedName{Namespace: owner.GetNamespace(), Name: name}, obj)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get %T %q: %w", obj, name, err)
	}
	if obj.GetUID() != uid || obj.GetLabels()[v1alpha1.LabelOwnerUID] != string(owner.GetUID()) {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting object", "type", fmt.Sprintf("%T", obj), "object", klog.KObj(obj))
	return wrap(unlessGone(e.client.Delete(ctx, obj, client.Preconditions{UID: &uid})), "delete %T %q", obj, name)
}

// patchVMStatus changes fields of a status that is still as it was read, and leaves those
// that our types do not know. Another version is a conflict, not a refusal, which a JSON
// patch with a test could not tell apart.
func (e *executor) patchVMStatus(ctx context.Context, vm *kubevirtv1.VirtualMachine, fields map[string]any) error {
	patch, err := mergePatch(map[string]any{
		"metadata": map[string]any{"uid": string(vm.UID), "resourceVersion": vm.ResourceVersion},
		"status":   fields,
	})
	if err != nil {
		return err
	}
	return wrap(e.client.Status().Patch(ctx, vm, patch), "patch status of VM %q", vm.Name)
}

// mergePatch is a JSON merge patch (RFC 7386); nil removes a field.
func mergePatch(fields map[string]any) (client.Patch, error) {
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return client.RawPatch(types.MergePatchType, raw), nil
}

// unlessGone takes an object that is gone, or another one by now, for deleted.
func unlessGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// wrap says what was attempted, if it went wrong.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
