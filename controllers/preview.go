package controllers

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/pkg/inventory"
	"github.com/vmstate/vmstate/pkg/snapshotset"
)

// Preview reads what a backup of a virtual machine would be decided by, for somebody who is no
// manager: kubectl vmstate plan. It sees what the manager would see, and writes nothing.
func Preview(ctx context.Context, live client.Client, guests Guests, key client.ObjectKey) (inventory.Seen, snapshotset.Storage, error) {
	seen, err := machineReader{live: live, guests: guests, namespace: key.Namespace}.read(ctx, key.Name, "")
	if err != nil {
		return seen, snapshotset.Storage{}, err
	}
	r := &BackupReconciler{Client: live, Live: live, Knowledge: snapshotset.NewKnowledge(nil)}
	storage, err := r.storage(ctx)
	return seen, storage, err
}
