package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/vmstate/vmstate/pkg/backup"
	"github.com/vmstate/vmstate/pkg/inventory"
	"github.com/vmstate/vmstate/pkg/snapshotset"
)

// Where config/manager mounts the manager's configuration from, in the manager's namespace.
const (
	configName = "vmstate-config"
	configKey  = "config.yaml"
)

// Preview is what a backup of a virtual machine would be decided by, for somebody who is no manager.
type Preview struct {
	Machine backup.Machine
	Storage snapshotset.Storage
	// Unattested is why it is not known what an administrator says of drivers; "" if it is.
	Unattested string
}

// ReadPreview reads what the manager would read, for kubectl vmstate plan, and writes nothing. The manager's
// configuration is looked for in its namespace; who may not read it is told so in Unattested.
func ReadPreview(ctx context.Context, live client.Client, guests Guests, key client.ObjectKey, managerNamespace string) (Preview, error) {
	var out Preview
	seen, err := machineReader{live: live, guests: guests, namespace: key.Namespace}.read(ctx, key.Name, "")
	if err != nil {
		return out, err
	}
	out.Machine.Inventory, out.Machine.Refusals = inventory.Of(seen)
	attested, err := readAttested(ctx, live, managerNamespace)
	if apierrors.IsForbidden(err) {
		out.Unattested = fmt.Sprintf("ConfigMap %s/%s cannot be read with your rights", managerNamespace, configName)
	} else if err != nil {
		return out, err
	}
	r := &BackupReconciler{Client: live, Live: live, Knowledge: snapshotset.NewKnowledge(attested)}
	out.Storage, err = r.storage(ctx)
	return out, err
}

// readAttested is what an administrator says of drivers. The ConfigMap is optional; what else it says is the manager's.
func readAttested(ctx context.Context, live client.Reader, namespace string) ([]snapshotset.Driver, error) {
	config, err := get(ctx, live, types.NamespacedName{Namespace: namespace, Name: configName}, &corev1.ConfigMap{})
	if err != nil || config == nil {
		return nil, err
	}
	var out struct {
		Drivers []snapshotset.Driver `json:"drivers"`
	}
	if err := yaml.Unmarshal([]byte(config.Data[configKey]), &out); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", namespace, configName, err)
	}
	return out.Drivers, nil
}
