package controllers

import (
	"context"
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/backup"
)

// +kubebuilder:rbac:groups=cbt.storage.k8s.io,resources=snapshotmetadataservices,verbs=list

// observeOthers lists the other backups of the namespace, finds the newest commit of the same
// VM in the same store, and reads what stores remember of CSI drivers.
func (r *BackupReconciler) observeOthers(ctx context.Context, in *backup.Observed) error {
	return listOthers(ctx, r.Live, in)
}

// observeLater does the same from the cache, for a backup that is done: there may be thousands, and what the cache
// does not know yet wakes them again.
func (r *BackupReconciler) observeLater(ctx context.Context, in *backup.Observed) error {
	return listOthers(ctx, r.Client, in, client.UnsafeDisableDeepCopy)
}

func listOthers(ctx context.Context, from client.Reader, in *backup.Observed, o ...client.ListOption) error {
	list := &v1alpha1.VMStateBackupList{}
	if err := from.List(ctx, list, append(o, client.InNamespace(in.Backup.Namespace))...); err != nil {
		return fmt.Errorf("list backups: %w", err)
	}
	for i := range list.Items {
		if b := &list.Items[i]; b.UID != in.Backup.UID {
			in.Others = append(in.Others, b)
		}
	}
	if newest := backup.Newest(in.Backup, in.Others); newest != nil {
		in.Parent = newest.Status.Export.Commit.DeepCopy()
	}
	stores := &v1alpha1.VMStateStoreList{}
	if err := from.List(ctx, stores, append(o, client.InNamespace(in.Backup.Namespace))...); err != nil {
		return fmt.Errorf("list stores: %w", err)
	}
	for i := range stores.Items {
		in.Remembered = append(in.Remembered, stores.Items[i].Status.DriverFindings...)
	}
	return nil
}

// observeHolding looks whether snapshots are still kept for anything.
func (r *BackupReconciler) observeHolding(ctx context.Context, in *backup.Observed) error {
	if err := r.observeLater(ctx, in); err != nil {
		return err
	}
	if err := r.observeStore(ctx, in); err != nil {
		return err
	}
	key := types.NamespacedName{Namespace: in.Backup.Namespace, Name: in.Backup.Spec.VMName}
	vm, err := get(ctx, r.Live, key, &kubevirtv1.VirtualMachine{})
	if err != nil {
		return err
	}
	in.MachineGone = vm == nil || in.Backup.Status.VM == nil || vm.UID != in.Backup.Status.VM.UID
	if backup.Useless(*in) == "" {
		return nil
	}
	return r.observeSnapshotChildren(ctx, in)
}

// metadataServices is the kind by which a driver tells where its snapshot metadata is served.
var metadataServices = schema.GroupVersionKind{Group: "cbt.storage.k8s.io", Version: "v1beta1", Kind: "SnapshotMetadataServiceList"}

// observeTrackers lists the drivers that tell what their snapshots hold. One whose service
// cannot be read tells nothing.
func (r *BackupReconciler) observeTrackers(ctx context.Context, in *backup.Observed) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(metadataServices)
	err := r.Live.List(ctx, list)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list SnapshotMetadataServices: %w", err)
	}
	in.Trackers = map[string]backup.Tracker{}
	for i := range list.Items {
		u := &list.Items[i]
		address, _, _ := unstructured.NestedString(u.Object, "spec", "address") // absent or no string: of no use
		audience, _, _ := unstructured.NestedString(u.Object, "spec", "audience")
		encoded, _, _ := unstructured.NestedString(u.Object, "spec", "caCert")
		ca, err := base64.StdEncoding.DecodeString(encoded)
		if err == nil && address != "" && audience != "" && len(ca) > 0 {
			in.Trackers[u.GetName()] = backup.Tracker{Address: address, Audience: audience, CA: ca}
		}
	}
	return nil
}
