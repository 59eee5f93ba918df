package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

func (a *app) listCommand() *cobra.Command {
	var vm string
	var all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List backups: those of a namespace, or those in a bucket or directory",
		Long: `Lists the backups of a namespace, oldest first. With --bucket or --dir and --identity it lists what a store
holds, without a cluster; a record that is damaged is named, and makes the exit code 3.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.store.given() {
				return a.listStore(cmd.Context(), vm)
			}
			return a.listCluster(cmd.Context(), vm, all)
		},
	}
	cmd.Flags().StringVar(&vm, "vm", "", "only of this virtual machine; namespace/name in a store")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "of all namespaces")
	a.store.register(cmd.Flags())
	return cmd
}

func (a *app) listCluster(ctx context.Context, vm string, all bool) error {
	c, err := a.cluster.connect()
	if err != nil {
		return err
	}
	var options []client.ListOption
	if !all {
		options = append(options, client.InNamespace(c.namespace))
	}
	backups := &v1alpha1.VMStateBackupList{}
	if err := c.List(ctx, backups, options...); err != nil {
		return fmt.Errorf("list backups: %w", err)
	}
	slices.SortStableFunc(backups.Items, func(x, y v1alpha1.VMStateBackup) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	var views []backupView
	for i := range backups.Items {
		if b := &backups.Items[i]; vm == "" || vm == b.Spec.VMName || vm == b.Namespace+"/"+b.Spec.VMName {
			views = append(views, viewOf(b))
		}
	}
	return a.printViews(views, false)
}

func (a *app) showCommand() *cobra.Command {
	var vm string
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one backup or restore; in a bucket or directory: show and check one backup",
		Long: `Shows a backup or a restore of a namespace. With --bucket or --dir and --identity it shows a backup in a store by its
id, "latest" together with --vm, and proves that it is complete: every record authentic, every object there.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.store.given() {
				return a.showStore(cmd.Context(), vm, args[0])
			}
			return a.showCluster(cmd.Context(), args[0])
		},
	}
	cmd.Flags().StringVar(&vm, "vm", "", "namespace/name of the virtual machine, in a store")
	a.store.register(cmd.Flags())
	return cmd
}

// showCluster shows the backup of that name, or the restore: both names are in use by whoever types.
func (a *app) showCluster(ctx context.Context, name string) error {
	c, err := a.cluster.connect()
	if err != nil {
		return err
	}
	b := &v1alpha1.VMStateBackup{}
	err = c.Get(ctx, c.key(name), b)
	if err == nil {
		return a.printBackup(b)
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("get backup %q: %w", name, err)
	}
	r := &v1alpha1.VMStateRestore{}
	err = c.Get(ctx, c.key(name), r)
	if apierrors.IsNotFound(err) {
		return &outcome{
			kind: errNotFound, text: fmt.Sprintf("namespace %q has neither a backup nor a restore %q", c.namespace, name), err: err,
			hint: "kubectl vmstate list shows the backups",
		}
	}
	if err != nil {
		return fmt.Errorf("get restore %q: %w", name, err)
	}
	return a.printRestore(r)
}
