package controllers

import (
	"context"
	"fmt"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/backup"
	"github.com/vmstate/vmstate/pkg/snapshotset"
)

// +kubebuilder:rbac:groups=snapshot.storage.k8s.io,resources=volumesnapshotclasses,verbs=list;watch
// +kubebuilder:rbac:groups=snapshot.storage.k8s.io,resources=volumesnapshots,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=snapshot.storage.k8s.io,resources=volumesnapshotcontents,verbs=get;list;watch
// +kubebuilder:rbac:groups=groupsnapshot.storage.k8s.io,resources=volumegroupsnapshotclasses,verbs=list
// +kubebuilder:rbac:groups=groupsnapshot.storage.k8s.io,resources=volumegroupsnapshots,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=groupsnapshot.storage.k8s.io,resources=volumegroupsnapshotcontents,verbs=get;list;watch

// storage is what the cluster offers for snapshots. An API that is not there offers nothing.
func (r *BackupReconciler) storage(ctx context.Context) (snapshotset.Storage, error) {
	out := snapshotset.Storage{Knowledge: r.Knowledge}
	classes := &snapshotv1.VolumeSnapshotClassList{}
	err := r.List(ctx, classes)
	if err != nil && !meta.IsNoMatchError(err) {
		return out, fmt.Errorf("list VolumeSnapshotClasses: %w", err)
	}
	out.Served, out.Classes = err == nil, classes.Items
	kind, err := groupKind(r.RESTMapper(), "VolumeGroupSnapshotClass")
	if meta.IsNoMatchError(err) {
		out.GroupTooOld, err = servedGroups(r.RESTMapper())
		return out, err
	}
	if err != nil {
		return out, fmt.Errorf("find the group snapshot API: %w", err)
	}
	out.GroupVersion = kind.Version
	kind.Kind += "List"
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	if err := r.Live.List(ctx, list); err != nil {
		return out, fmt.Errorf("list VolumeGroupSnapshotClasses: %w", err)
	}
	for i := range list.Items {
		class := groupsnapshotv1.VolumeGroupSnapshotClass{}
		if err := fromUnstructured(&list.Items[i], &class); err != nil {
			return out, err
		}
		out.GroupClasses = append(out.GroupClasses, class)
	}
	return out, nil
}

// servedGroups is the version of the group snapshot API that is served, where none is understood; "" if there is none.
func servedGroups(mapper meta.RESTMapper) (string, error) {
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: groupSnapshots, Kind: "VolumeGroupSnapshotClass"})
	if meta.IsNoMatchError(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find the group snapshot API: %w", err)
	}
	return mapping.GroupVersionKind.Version, nil
}

// fromUnstructured reads an object of v1 or v1beta2, whose fields are the same, as one of v1.
func fromUnstructured(u *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into); err != nil {
		return fmt.Errorf("read %s %q: %w", u.GetKind(), u.GetName(), err)
	}
	return nil
}

// cut looks how far the snapshots of the last attempt are.
func (r *BackupReconciler) cut(ctx context.Context, from client.Reader, b *v1alpha1.VMStateBackup) (snapshotset.Progress, error) {
	disks, attempt := backup.Disks(b), backup.Last(b).Number
	if backup.BindingOf(b) == v1alpha1.DisksGroup {
		return r.groupCut(ctx, from, b)
	}
	pairs := make([]snapshotset.Pair, len(disks))
	for i := range disks {
		key := types.NamespacedName{Namespace: b.Namespace, Name: backup.SnapshotName(b, attempt, i)}
		snapshot, err := get(ctx, from, key, &snapshotv1.VolumeSnapshot{})
		if err != nil {
			return snapshotset.Progress{}, err
		}
		if pairs[i], err = pair(ctx, from, snapshot); err != nil {
			return snapshotset.Progress{}, err
		}
	}
	return snapshotset.Single(b.UID, disks, pairs), nil
}

// pair adds the content to a snapshot. Its name follows from the snapshot's UID, so that it is
// found before the snapshot itself names it (external-snapshotter, GetDynamicSnapshotContentNameForSnapshot).
func pair(ctx context.Context, from client.Reader, s *snapshotv1.VolumeSnapshot) (snapshotset.Pair, error) {
	if s == nil {
		return snapshotset.Pair{}, nil
	}
	name := "snapcontent-" + string(s.UID)
	if s.Status != nil && s.Status.BoundVolumeSnapshotContentName != nil {
		name = *s.Status.BoundVolumeSnapshotContentName
	}
	content, err := get(ctx, from, types.NamespacedName{Name: name}, &snapshotv1.VolumeSnapshotContent{})
	if err != nil {
		return snapshotset.Pair{}, err
	}
	earlier, err := earlierContent(ctx, from, content)
	return snapshotset.Pair{Snapshot: s, Content: content, Earlier: earlier}, err
}

// earlierContent names a content, not younger than c, that has the handle of c; "" if there is none. A driver that
// hands out one snapshot twice would have it removed under whoever had it first.
func earlierContent(ctx context.Context, from client.Reader, c *snapshotv1.VolumeSnapshotContent) (string, error) {
	if c == nil || handle(c) == "" {
		return "", nil
	}
	list := &snapshotv1.VolumeSnapshotContentList{}
	if err := from.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil { // only read, and all of the cluster
		return "", fmt.Errorf("list VolumeSnapshotContents: %w", err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.UID != c.UID && other.Spec.Driver == c.Spec.Driver && handle(other) == handle(c) && !c.CreationTimestamp.Before(&other.CreationTimestamp) {
			return other.Name, nil
		}
	}
	return "", nil
}

func handle(c *snapshotv1.VolumeSnapshotContent) string {
	if c.Status == nil || c.Status.SnapshotHandle == nil {
		return ""
	}
	return *c.Status.SnapshotHandle
}

func (r *BackupReconciler) groupCut(ctx context.Context, from client.Reader, b *v1alpha1.VMStateBackup) (snapshotset.Progress, error) {
	var none snapshotset.Progress
	disks := backup.Disks(b)
	g, err := r.group(ctx, types.NamespacedName{Namespace: b.Namespace, Name: backup.GroupName(b, backup.Last(b).Number)})
	if err != nil || g.Snapshot == nil {
		return snapshotset.Of(b.UID, disks, g), err
	}
	members := &snapshotv1.VolumeSnapshotList{}
	if err := from.List(ctx, members, client.InNamespace(b.Namespace)); err != nil {
		return none, fmt.Errorf("list VolumeSnapshots: %w", err)
	}
	for i := range members.Items {
		s := &members.Items[i]
		if !ownedBy(s, g.Snapshot.UID) {
			continue
		}
		p, err := pair(ctx, from, s)
		if err != nil {
			return none, err
		}
		g.Members = append(g.Members, p)
	}
	return snapshotset.Of(b.UID, disks, g), nil
}

func ownedBy(obj client.Object, uid types.UID) bool {
	for _, ref := range obj.GetOwnerReferences() {
		if ref.UID == uid {
			return true
		}
	}
	return false
}

// group reads a group snapshot and its content, in the version that the cluster serves.
func (r *BackupReconciler) group(ctx context.Context, key types.NamespacedName) (snapshotset.Group, error) {
	var out snapshotset.Group
	u, err := r.unstructured(ctx, "VolumeGroupSnapshot", key)
	if err != nil || u == nil {
		return out, err
	}
	snapshot := &groupsnapshotv1.VolumeGroupSnapshot{}
	if err := fromUnstructured(u, snapshot); err != nil {
		return out, err
	}
	out.Snapshot = snapshot
	name := groupContentName(snapshot.UID)
	if snapshot.Status != nil && snapshot.Status.BoundVolumeGroupSnapshotContentName != nil {
		name = *snapshot.Status.BoundVolumeGroupSnapshotContentName
	}
	u, err = r.unstructured(ctx, "VolumeGroupSnapshotContent", types.NamespacedName{Name: name})
	if err != nil || u == nil {
		return out, err
	}
	content := &groupsnapshotv1.VolumeGroupSnapshotContent{}
	if err := fromUnstructured(u, content); err != nil {
		return out, err
	}
	out.Content = content
	return out, nil
}

// groupContentName is the content that the snapshot controller makes for a group (external-snapshotter,
// GetDynamicSnapshotContentNameForGroupSnapshot).
func groupContentName(group types.UID) string { return "groupsnapcontent-" + string(group) }

func (r *BackupReconciler) unstructured(ctx context.Context, kind string, key types.NamespacedName) (*unstructured.Unstructured, error) {
	gvk, err := groupKind(r.RESTMapper(), kind)
	if err != nil {
		return nil, fmt.Errorf("find the group snapshot API: %w", err)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return get(ctx, r.Live, key, u)
}
