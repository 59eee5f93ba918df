package controllers

import (
	"context"
	"errors"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/backup"
	"github.com/vmstate/vmstate/pkg/document"
	"github.com/vmstate/vmstate/pkg/inventory"
)

// observe reads what the stage of a backup needs, and nothing else: between the first reading
// and the cut every request counts.
func (r *BackupReconciler) observe(ctx context.Context, b *v1alpha1.VMStateBackup) (backup.Observed, error) {
	in := backup.Observed{Now: r.now(), Process: r.Process, Backup: b}
	var steps []func(context.Context, *backup.Observed) error
	switch backup.StageOf(b) {
	case backup.StageSettled:
		steps = append(steps, r.observeLater)
	case backup.StageHolding:
		steps = append(steps, r.observeHolding)
	case backup.StageAdopting:
		steps = append(steps, r.observeStore)
	case backup.StageEnding:
		steps = append(steps, r.observeMarks, r.observeChildren, r.observeStored)
	case backup.StageBeginning:
		steps = append(steps, r.observeRemains, r.observeMachine, r.observeStorage, r.observeStore, r.observeBlocker)
	case backup.StagePreparing:
		steps = append(steps, r.observeDocuments, r.observeMembers, r.observeWitness, r.observeBeforeCut)
	case backup.StageCutting:
		steps = append(steps, r.observeCut, r.observeFence)
	case backup.StageProving:
		steps = append(steps, r.observeWitness, r.observeAfterCut)
	case backup.StageExporting:
		steps = append(steps, r.observeMarks, r.observeExport)
	case backup.StageKeeping:
		steps = append(steps, r.observeMarks, r.observeCut, r.observeWitness, r.observeKeep)
	}
	for _, step := range steps {
		if err := step(ctx, &in); err != nil {
			return in, err
		}
	}
	return in, nil
}

func (r *BackupReconciler) observeMachine(ctx context.Context, in *backup.Observed) error {
	reader := machineReader{live: r.Live, guests: r.Guests, namespace: in.Backup.Namespace}
	seen, err := reader.read(ctx, in.Backup.Spec.VMName, backup.Holder(in.Backup))
	if err != nil {
		return err
	}
	inv, refusals := inventory.Of(seen)
	in.Machine = &backup.Machine{Inventory: inv, Refusals: refusals}
	if len(refusals) > 0 {
		return nil
	}
	in.Machine.Documents, err = document.Encode(inventory.Documents(seen, inv))
	return err
}

// observeBeforeCut looks at the whole machine until the first reading is there. From then on
// every request makes the window wider, and the look that counts is the one after the cut.
func (r *BackupReconciler) observeBeforeCut(ctx context.Context, in *backup.Observed) error {
	prepared := in.ReadOnce()
	if backup.Fenced(in.Backup) {
		prepared = in.Ready()
	}
	if !prepared || !in.Documents {
		return errors.Join(r.observeMachine(ctx, in), r.observeBlocker(ctx, in))
	}
	b, inv := in.Backup, backup.Recorded(in.Backup)
	key := types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.VMName}
	if inv.Running {
		vmi, err := get(ctx, r.Live, key, &kubevirtv1.VirtualMachineInstance{})
		if err != nil {
			return err
		}
		if vmi == nil {
			return r.observeMachine(ctx, in)
		}
		inv.VM.InstanceUID = vmi.UID
		inv.Agent, inv.Paused = inventory.Agent(vmi), inventory.Paused(vmi)
		inv.PausedSince, inv.PauseReason = inventory.PausedSince(vmi)
		inv.Frozen = inventory.Frozen(vmi)
		if backup.Fenced(b) {
			return r.observeSnapshotting(ctx, in, inv)
		}
	} else {
		locked, err := r.locked(ctx, b)
		if err != nil {
			return err
		}
		inv.Locked = locked
	}
	in.Machine = &backup.Machine{Inventory: inv}
	return nil
}

// locked says that the VM is the recorded one, and carries our lock.
func (r *BackupReconciler) locked(ctx context.Context, b *v1alpha1.VMStateBackup) (bool, error) {
	vm, err := get(ctx, r.Live, types.NamespacedName{Namespace: b.Namespace, Name: b.Spec.VMName}, &kubevirtv1.VirtualMachine{})
	if err != nil || vm == nil || vm.UID != b.Status.VM.UID {
		return false, err
	}
	return vm.Status.SnapshotInProgress != nil && *vm.Status.SnapshotInProgress == backup.Holder(b), nil
}

// observeAfterCut looks at the machine when the second reading is there: an earlier look would
// have to be taken again.
func (r *BackupReconciler) observeAfterCut(ctx context.Context, in *backup.Observed) error {
	if !in.ReadTwice() {
		return nil
	}
	return r.observeMachine(ctx, in)
}

func (r *BackupReconciler) observeStorage(ctx context.Context, in *backup.Observed) (err error) {
	in.Storage, err = r.storage(ctx)
	return err
}

func (r *BackupReconciler) observeStore(ctx context.Context, in *backup.Observed) (err error) {
	if ref := in.Backup.Spec.StoreRef; ref != nil {
		in.Store, err = get(ctx, r.Live, types.NamespacedName{Namespace: in.Backup.Namespace, Name: ref.Name}, &v1alpha1.VMStateStore{})
	}
	return err
}

// observeStored looks whether what a deleted backup left in its store can be removed, and whether the store has
// noted what an audit found.
func (r *BackupReconciler) observeStored(ctx context.Context, in *backup.Observed) error {
	if in.Backup.DeletionTimestamp == nil && !backup.Untold(in.Backup) {
		return nil
	}
	namespace, err := get(ctx, r.Live, types.NamespacedName{Name: in.Backup.Namespace}, &corev1.Namespace{})
	if err != nil {
		return err
	}
	in.Terminating = namespace == nil || namespace.DeletionTimestamp != nil
	return r.observeStore(ctx, in)
}

// observeBlocker looks for a backup of the same VM whose turn it is.
func (r *BackupReconciler) observeBlocker(ctx context.Context, in *backup.Observed) error {
	list := &v1alpha1.VMStateBackupList{}
	if err := r.Live.List(ctx, list, client.InNamespace(in.Backup.Namespace)); err != nil {
		return fmt.Errorf("list backups: %w", err)
	}
	for i := range list.Items {
		if b := &list.Items[i]; b.UID != in.Backup.UID && b.Spec.VMName == in.Backup.Spec.VMName && backup.GoesFirst(b, in.Backup) {
			in.Blocker = b.Name
		}
	}
	return nil
}

func (r *BackupReconciler) observeDocuments(ctx context.Context, in *backup.Observed) error {
	held, err := get(ctx, r.Live, types.NamespacedName{Namespace: in.Backup.Namespace, Name: backup.DocumentsName(in.Backup)}, &corev1.ConfigMap{})
	in.Documents = held != nil && metav1.IsControlledBy(held, in.Backup)
	return err
}

func (r *BackupReconciler) observeWitness(ctx context.Context, in *backup.Observed) (err error) {
	if last := backup.Last(in.Backup); last != nil {
		in.Witness, err = r.task(ctx, in.Backup, backup.WitnessName(in.Backup, last.Number))
	}
	return err
}

func (r *BackupReconciler) observeCut(ctx context.Context, in *backup.Observed) (err error) {
	if in.Cut, err = r.cut(ctx, r.Client, in.Backup); err != nil {
		return err
	}
	missing := len(in.Cut.Missing) > 0
	if missing && in.Backup.Status.Moment == nil {
		return r.observeStorage(ctx, in)
	}
	if missing || in.Cut.Refused() != "" { // not for ever on the word of a cache
		in.Cut, err = r.cut(ctx, r.Live, in.Backup)
	}
	return err
}

func (r *BackupReconciler) observeExport(ctx context.Context, in *backup.Observed) (err error) {
	if in.Export, err = r.task(ctx, in.Backup, backup.ExportName(in.Backup)); err != nil {
		return err
	}
	if !in.Export.Exists && in.Backup.Status.QueuedAt != nil { // many may wait, each is looked at often
		if err := r.observeStore(ctx, in); err != nil || backup.Queued(in.Backup, in.Store) {
			return err
		}
	}
	steps := []func(context.Context, *backup.Observed) error{r.observeOthers}
	switch {
	case !in.Export.Exists:
		steps = append(steps, r.observeCut, r.observeStore, r.observeWitness, r.observeTrackers)
	case in.Export.Report != nil && in.Export.Report.Outcome == v1alpha1.OutcomeSucceeded:
		steps = append(steps, r.observeCut, r.observeTrackers)
	}
	for _, step := range steps {
		if err := step(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

func (r *BackupReconciler) observeKeep(ctx context.Context, in *backup.Observed) (err error) {
	in.Keep, err = r.task(ctx, in.Backup, backup.KeepName(in.Backup))
	return err
}

// task reads a Job and its report.
func (r *BackupReconciler) task(ctx context.Context, b *v1alpha1.VMStateBackup, name string) (backup.Task, error) {
	seen, err := observeJob(ctx, r.Live, b.Namespace, name)
	if err != nil {
		return backup.Task{}, err
	}
	out := backup.Task{Pending: seen.Pending, NoRoom: seen.NoRoom, Standing: seen.Standing}
	if seen.Report != nil && metav1.IsControlledBy(seen.Report, b) {
		out.Report = &seen.Report.Status
		out.Started = seen.Report.Status.PodUID != ""
	}
	if seen.Job == nil {
		return out, nil
	}
	out.Exists, out.Created = true, seen.Job.CreationTimestamp.Time
	s := seen.Job.Status
	out.Started = out.Started || s.Ready != nil && *s.Ready > 0 || s.Succeeded > 0 || s.Failed > 0
	if !seen.Failed && seen.Pending == "" && (s.Ready == nil || *s.Ready == 0) && (out.Report == nil || out.Report.Outcome == "") {
		if err := diagnose(ctx, r.Live, &seen); err != nil {
			return out, err
		}
		out.Pending, out.NoRoom, out.Standing = seen.Pending, seen.NoRoom, seen.Standing
	}
	if seen.Failed {
		out.Failed = seen.Message
		if out.Failed == "" {
			out.Failed = "its pod failed without a message"
		}
	}
	return out, nil
}

// observeRemains looks for what an earlier attempt left.
func (r *BackupReconciler) observeRemains(ctx context.Context, in *backup.Observed) error {
	if backup.Last(in.Backup) == nil {
		return nil
	}
	if err := r.observeMarks(ctx, in); err != nil {
		return err
	}
	return r.observeChildren(ctx, in)
}

// observeMarks looks for what we left on the VM and its claims.
func (r *BackupReconciler) observeMarks(ctx context.Context, in *backup.Observed) error {
	b := in.Backup
	if backup.Last(b) == nil || b.Status.VM == nil {
		return nil
	}
	if backup.BindingOf(b) == v1alpha1.DisksOffline {
		var err error
		if in.Locked, err = r.locked(ctx, b); err != nil {
			return err
		}
	}
	return r.observeMembers(ctx, in)
}

// observeMembers lists the claims that carry the last attempt's label: all of the namespace,
// since the snapshot controller takes whatever carries it.
func (r *BackupReconciler) observeMembers(ctx context.Context, in *backup.Observed) error {
	if backup.BindingOf(in.Backup) != v1alpha1.DisksGroup {
		return nil
	}
	list := &corev1.PersistentVolumeClaimList{}
	of := client.MatchingLabels{v1alpha1.LabelGroupMember: backup.Member(in.Backup, backup.Last(in.Backup).Number)}
	if err := r.Live.List(ctx, list, client.InNamespace(in.Backup.Namespace), of); err != nil {
		return fmt.Errorf("list claims of the group: %w", err)
	}
	for _, c := range list.Items {
		in.Members = append(in.Members, backup.ClaimRef{Name: c.Name, UID: c.UID})
	}
	return nil
}

// childKinds are listed by their metadata; snapshots are looked at more closely.
var childKinds = []action.Kind{
	action.KindJob, action.KindReport, action.KindClaim, action.KindConfigMap,
	action.KindServiceAccount, action.KindRoleBinding,
}

// observeChildren lists everything that the backup controls.
func (r *BackupReconciler) observeChildren(ctx context.Context, in *backup.Observed) error {
	e := r.executor()
	for _, kind := range childKinds {
		gvk, err := e.kindOf(kind)
		if err != nil {
			return err
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(listKind(gvk))
		if err := r.Live.List(ctx, list, client.InNamespace(in.Backup.Namespace), ofOwner(in.Backup)); err != nil {
			return fmt.Errorf("list objects of kind %s: %w", kind, err)
		}
		for i := range list.Items {
			addChild(in, kind, &list.Items[i], true)
		}
	}
	return r.observeSnapshotChildren(ctx, in)
}

func (r *BackupReconciler) observeSnapshotChildren(ctx context.Context, in *backup.Observed) error {
	snapshots := &snapshotv1.VolumeSnapshotList{}
	if err := r.Live.List(ctx, snapshots, client.InNamespace(in.Backup.Namespace), ofOwner(in.Backup)); err != nil {
		return fmt.Errorf("list VolumeSnapshots: %w", err)
	}
	for i := range snapshots.Items {
		s := &snapshots.Items[i]
		addChild(in, action.KindVolumeSnapshot, s, s.Status != nil && s.Status.BoundVolumeSnapshotContentName != nil)
	}
	gvk, err := groupKind(r.RESTMapper(), "VolumeGroupSnapshot")
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the group snapshot API: %w", err)
	}
	groups := &unstructured.UnstructuredList{}
	groups.SetGroupVersionKind(listKind(gvk))
	if err := r.Live.List(ctx, groups, client.InNamespace(in.Backup.Namespace), ofOwner(in.Backup)); err != nil {
		return fmt.Errorf("list VolumeGroupSnapshots: %w", err)
	}
	for i := range groups.Items {
		if err := r.observeGroupChild(ctx, in, &groups.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *BackupReconciler) observeGroupChild(ctx context.Context, in *backup.Observed, g *unstructured.Unstructured) error {
	name, _, _ := unstructured.NestedString(g.Object, "status", "boundVolumeGroupSnapshotContentName") // absent or no string: not bound
	before := len(in.Children)
	addChild(in, action.KindVolumeGroupSnapshot, g, name != "")
	if name != "" || len(in.Children) == before {
		return nil
	}
	content, err := r.unstructured(ctx, "VolumeGroupSnapshotContent", types.NamespacedName{Name: groupContentName(g.GetUID())})
	in.Children[before].Unnamed = content != nil
	return err
}

func listKind(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	gvk.Kind += "List"
	return gvk
}

func ofOwner(owner client.Object) client.MatchingLabels {
	return client.MatchingLabels{v1alpha1.LabelOwnerUID: string(owner.GetUID())}
}

// addChild takes only what the backup controls: a label can be copied.
func addChild(in *backup.Observed, kind action.Kind, obj client.Object, bound bool) {
	if !metav1.IsControlledBy(obj, in.Backup) {
		return
	}
	child := backup.Child{Kind: kind, Name: obj.GetName(), UID: obj.GetUID(), Created: obj.GetCreationTimestamp().Time, Bound: bound}
	if at := obj.GetDeletionTimestamp(); at != nil {
		child.Deleting, child.DeletedAt = true, at.Time
	}
	in.Children = append(in.Children, child)
}
