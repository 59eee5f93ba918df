package controllers

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/pkg/backup"
	"github.com/vmstate/vmstate/pkg/inventory"
)

// observeSnapshotting looks for a VirtualMachineSnapshot of the VM: KubeVirt unpauses no guest before its end.
func (r *BackupReconciler) observeSnapshotting(ctx context.Context, in *backup.Observed, inv inventory.Inventory) error {
	b := in.Backup
	vm, err := get(ctx, r.Live, types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.VMName}, &kubevirtv1.VirtualMachine{})
	if err != nil {
		return err
	}
	if vm == nil || vm.Status.SnapshotInProgress != nil {
		return r.observeMachine(ctx, in)
	}
	in.Machine = &backup.Machine{Inventory: inv}
	return nil
}

// observeFence looks at the witness, and then at the guest, when the snapshots are cut: what is seen paused
// last was paused during both.
func (r *BackupReconciler) observeFence(ctx context.Context, in *backup.Observed) error {
	b := in.Backup
	if !backup.Fenced(b) || !in.Cut.Cut || len(in.Cut.Missing) > 0 {
		return nil
	}
	if err := r.observeWitness(ctx, in); err != nil {
		return err
	}
	vmi, err := get(ctx, r.Live, types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.VMName}, &kubevirtv1.VirtualMachineInstance{})
	if err != nil || vmi == nil || vmi.UID != b.Status.VM.InstanceUID {
		return err
	}
	in.PausedSince, _ = inventory.PausedSince(vmi)
	return nil
}
