package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

type restoreFlags struct {
	name, newVM, store, vm, commit, identitySecret string
	inPlace, stop, start, halt, dryRun, noWait     bool
	blankTPM, keepTPM, newUUID, newMACs            bool
	storage                                        map[string]string
	keepReplaced                                   time.Duration
}

const aboutRestore = `Brings a backup back: all of it, or nothing is changed. Everything that would stand in the way is looked for first and
listed at once; --dry-run stops there.

  kubectl vmstate restore db-before-upgrade --in-place --stop --identity-secret restore-key
  kubectl vmstate restore --store main --vm prod/db --new-vm db --identity-secret restore-key

The second form needs no VMStateBackup: it takes the newest backup of that virtual machine in the store, or --commit ID
as kubectl vmstate list --bucket prints it.`

func (a *app) restoreCommand() *cobra.Command {
	f := &restoreFlags{}
	cmd := &cobra.Command{
		Use:   "restore [BACKUP]",
		Short: "Bring a backup back, in place or as a new virtual machine",
		Long:  aboutRestore,
		Args:  cobra.MaximumNArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return a.restore(cmd.Context(), args, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.name, "name", "", "name of the restore; default: the virtual machine's and the time")
	flags.BoolVar(&f.inPlace, "in-place", false, "replace all volumes of the virtual machine that was backed up")
	flags.StringVar(&f.newVM, "new-vm", "", "make a virtual machine of this name")
	flags.StringVar(&f.store, "store", "", "VMStateStore to restore from, with --vm")
	flags.StringVar(&f.vm, "vm", "", "namespace/name of the virtual machine as it was backed up, with --store")
	flags.StringVar(&f.commit, "commit", "", "id of the backup in the store; default: the newest")
	flags.StringVar(&f.identitySecret, "identity-secret", "", "Secret with the age identity; needed where the backup is in a store")
	flags.BoolVar(&f.stop, "stop", false, "stop the virtual machine if it runs, once everything else is ready")
	flags.BoolVar(&f.start, "start", false, "start the virtual machine afterwards; default: as it was")
	flags.BoolVar(&f.halt, "halt", false, "leave the virtual machine stopped")
	flags.BoolVar(&f.keepTPM, "keep-tpm", false, "give the new virtual machine the TPM of the old one, which must not run again")
	flags.BoolVar(&f.blankTPM, "blank-tpm", false, "give the new virtual machine an empty TPM: what was sealed to the old one does not open")
	flags.BoolVar(&f.newUUID, "new-uuid", false, "give the new virtual machine a firmware UUID of its own")
	flags.BoolVar(&f.newMACs, "new-macs", false, "give the new virtual machine MAC addresses of its own")
	flags.StringToStringVar(&f.storage, "storage-class", nil, "storage classes by role: Disk=NAME,FirmwareState=NAME")
	flags.DurationVar(&f.keepReplaced, "keep-replaced", 24*time.Hour, "how long replaced volumes are kept")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only list what would stand in the way")
	flags.BoolVar(&f.noWait, "no-wait", false, "return once the restore is asked for")
	return cmd
}

func (a *app) restore(ctx context.Context, args []string, f *restoreFlags) error {
	spec, err := f.spec(args)
	if err != nil {
		return err
	}
	c, err := a.cluster.connect()
	if err != nil {
		return err
	}
	r := &v1alpha1.VMStateRestore{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: f.restoreName(args)}, Spec: *spec}
	if err := c.Create(ctx, r); err != nil {
		return fmt.Errorf("create restore %q: %w", r.Name, err)
	}
	if f.noWait {
		a.hint("kubectl wait --for=condition=Ready vmstaterestore/%s -n %s", r.Name, r.Namespace)
		return a.printRestore(r)
	}
	err = a.wait(ctx, fmt.Sprintf("restore %s/%s", r.Namespace, r.Name), func(ctx context.Context) (state, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(r), r); err != nil {
			return state{}, err
		}
		return restoreState(r), nil
	})
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, a.printRestore(r))
}

// restoreName is the name asked for, or one that says what it is of.
func (f *restoreFlags) restoreName(args []string) string {
	if f.name != "" {
		return f.name
	}
	of := f.newVM
	if len(args) == 1 {
		of = args[0]
	} else if _, vm, ok := strings.Cut(f.vm, "/"); ok && of == "" {
		of = vm
	}
	return strings.Trim(of[:min(len(of), 46)], "-.") + time.Now().UTC().Format("-20060102-150405")
}

// spec is what the flags ask for. What only the API server can judge is left to it.
func (f *restoreFlags) spec(args []string) (*v1alpha1.VMStateRestoreSpec, error) {
	switch {
	case len(args) == 0 && f.store == "":
		return nil, usagef("name a VMStateBackup, or say --store and --vm")
	case len(args) == 1 && (f.store != "" || f.vm != "" || f.commit != ""):
		return nil, usagef("a backup's name excludes --store, --vm and --commit")
	case f.store != "" && f.vm == "":
		return nil, usagef("--store needs --vm NAMESPACE/NAME, as it was backed up")
	case f.inPlace == (f.newVM != ""):
		return nil, usagef("say either --in-place or --new-vm NAME")
	case f.start && f.halt:
		return nil, usagef("--start and --halt exclude each other")
	case f.keepTPM && f.blankTPM:
		return nil, usagef("--keep-tpm and --blank-tpm exclude each other")
	}
	kept := int64(f.keepReplaced.Seconds())
	spec := &v1alpha1.VMStateRestoreSpec{
		Mode: v1alpha1.RestoreInPlace, StopPolicy: v1alpha1.StopRefuse, StartPolicy: v1alpha1.StartAsBackedUp,
		KeepReplacedSeconds: &kept, DryRun: f.dryRun,
	}
	if len(args) == 1 {
		spec.Source.BackupRef = &v1alpha1.ObjectRef{Name: args[0]}
	} else {
		spec.Source = v1alpha1.RestoreSource{StoreRef: &v1alpha1.ObjectRef{Name: f.store}, VM: f.vm, Commit: f.commit}
	}
	if f.newVM != "" {
		spec.Mode, spec.Target = v1alpha1.RestoreNewVM, &v1alpha1.RestoreTarget{VMName: f.newVM}
	}
	if f.identitySecret != "" {
		spec.IdentitySecretRef = &v1alpha1.ObjectRef{Name: f.identitySecret}
	}
	f.policies(spec)
	for _, role := range slices.Sorted(maps.Keys(f.storage)) {
		spec.Storage = append(spec.Storage, v1alpha1.StorageMapping{Role: v1alpha1.VolumeRole(role), StorageClassName: f.storage[role]})
	}
	return spec, nil
}

func (f *restoreFlags) policies(spec *v1alpha1.VMStateRestoreSpec) {
	if f.stop {
		spec.StopPolicy = v1alpha1.StopStop
	}
	switch {
	case f.start:
		spec.StartPolicy = v1alpha1.StartStart
	case f.halt:
		spec.StartPolicy = v1alpha1.StartHalt
	}
	switch {
	case f.keepTPM:
		spec.TPMPolicy = v1alpha1.TPMKeep
	case f.blankTPM:
		spec.TPMPolicy = v1alpha1.TPMBlank
	}
	if f.newUUID {
		spec.FirmwareUUID = v1alpha1.IdentityNew
	}
	if f.newMACs {
		spec.MACAddresses = v1alpha1.IdentityNew
	}
}

// restoreState turns the percentage that the manager writes back into bytes.
func restoreState(r *v1alpha1.VMStateRestore) state {
	s := stateOf(r.Status.Conditions)
	percent, err := strconv.ParseInt(strings.TrimSuffix(r.Status.Summary.Progress, " %"), 10, 64)
	if err != nil || r.Status.From == nil || (!s.ready && s.reason != v1alpha1.ReasonFilling) {
		return s
	}
	for _, v := range r.Status.From.Volumes {
		s.reading.total += v.SizeBytes
	}
	s.reading.done = s.reading.total * percent / 100
	return s
}
