package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

type backupFlags struct {
	name, store   string
	local, noWait bool
	terms         termFlags
}

// termFlags say what a backup must hold and what it may cost the guest: of backup, and of plan.
type termFlags struct {
	quiesce, firmwareState  string
	freezeTimeout, maxPause time.Duration
}

func (f *termFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.quiesce, "quiesce", string(v1alpha1.QuiesceIfAvailable), "freeze the guest's filesystems for the cut: IfAvailable, Required or Never")
	flags.DurationVar(&f.freezeTimeout, "freeze-timeout", 30*time.Second, "longest time that the guest stays frozen")
	flags.DurationVar(&f.maxPause, "max-pause", 2*time.Second, "longest time that the guest may be paused; 0 never pauses it")
	flags.StringVar(&f.firmwareState, "firmware-state", string(v1alpha1.FirmwareStateIfPersistent), "whether the VM must keep TPM or EFI variables: IfPersistent or Required")
}

// spec is a backup of vm on these terms.
func (f *termFlags) spec(vm string) v1alpha1.VMStateBackupSpec {
	return v1alpha1.VMStateBackupSpec{
		VMName: vm, Quiesce: v1alpha1.QuiescePolicy(f.quiesce), FreezeTimeoutSeconds: int32(f.freezeTimeout.Seconds()),
		Require: v1alpha1.BackupRequirements{
			MaxPause: &metav1.Duration{Duration: f.maxPause}, FirmwareState: v1alpha1.FirmwareStatePolicy(f.firmwareState),
		},
	}
}

const aboutBackup = `Captures one moment of a virtual machine, which may run: every disk and its firmware state. Waits until all of it is
kept, and shows how far it is.

Without --store the namespace's only store is used. --local makes snapshots and a copy of the firmware state in the
cluster instead, which are gone when its storage is.`

func (a *app) backupCommand() *cobra.Command {
	f := &backupFlags{}
	cmd := &cobra.Command{
		Use:   "backup VM",
		Short: "Back up a virtual machine, running or not",
		Long:  aboutBackup,
		Args:  cobra.ExactArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return a.backup(cmd.Context(), args[0], f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "name of the backup; default: the virtual machine's and the time")
	flags.StringVar(&f.store, "store", "", "VMStateStore to export to; default: the only one in the namespace")
	flags.BoolVar(&f.local, "local", false, "keep snapshots in the cluster instead of exporting")
	f.terms.register(flags)
	flags.BoolVar(&f.noWait, "no-wait", false, "return once the backup is asked for")
	return cmd
}

func (a *app) backup(ctx context.Context, vm string, f *backupFlags) error {
	if f.local && f.store != "" {
		return usagef("--local and --store exclude each other")
	}
	c, err := a.cluster.connect()
	if err != nil {
		return err
	}
	if f.name == "" {
		f.name = strings.Trim(vm[:min(len(vm), 46)], "-.") + time.Now().UTC().Format("-20060102-150405")
	}
	b := &v1alpha1.VMStateBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: f.name},
		Spec:       f.terms.spec(vm),
	}
	if !f.local {
		if b.Spec.StoreRef, err = chooseStore(ctx, c, f.store); err != nil {
			return err
		}
	}
	if err := c.Create(ctx, b); err != nil {
		return fmt.Errorf("create backup %q: %w", b.Name, err)
	}
	if f.noWait {
		a.hint("kubectl wait --for=condition=Ready vmstatebackup/%s -n %s", b.Name, b.Namespace)
		return a.printBackup(b)
	}
	what := fmt.Sprintf("backup %s/%s", b.Namespace, b.Name)
	err = a.wait(ctx, what, func(ctx context.Context) (state, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return state{}, err
		}
		return backupState(b), nil
	})
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, a.printBackup(b))
}

// chooseStore is the store named, or the only one that there is.
func chooseStore(ctx context.Context, c *connection, name string) (*v1alpha1.ObjectRef, error) {
	if name != "" {
		return &v1alpha1.ObjectRef{Name: name}, nil
	}
	stores := &v1alpha1.VMStateStoreList{}
	if err := c.List(ctx, stores, client.InNamespace(c.namespace)); err != nil {
		return nil, fmt.Errorf("list stores: %w", err)
	}
	switch len(stores.Items) {
	case 0:
		return nil, usagef("namespace %q has no VMStateStore to export to: create one, or keep the backup in the cluster with --local", c.namespace)
	case 1:
		return &v1alpha1.ObjectRef{Name: stores.Items[0].Name}, nil
	default:
		var names []string
		for _, s := range stores.Items {
			names = append(names, s.Name)
		}
		return nil, usagef("namespace %q has several stores: choose one of %s with --store", c.namespace, strings.Join(names, ", "))
	}
}

func backupState(b *v1alpha1.VMStateBackup) state {
	s := stateOf(b.Status.Conditions)
	if e := b.Status.Export; e != nil {
		s.reading.done, s.reading.total = e.ReadBytes, e.TotalBytes
		s.reading.extra = "sent " + size(e.SentBytes)
	}
	if s.ready { // the last line says the end, not the last progress that was written
		s.reading.done = s.reading.total
	}
	return s
}
