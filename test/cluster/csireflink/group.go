package csireflink

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// GroupControllerGetCapabilities says that there are group snapshots.
func (d *Driver) GroupControllerGetCapabilities(context.Context, *csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	rpc := &csi.GroupControllerServiceCapability_RPC{Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT}
	return &csi.GroupControllerGetCapabilitiesResponse{
		Capabilities: []*csi.GroupControllerServiceCapability{{Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: rpc}}},
	}, nil
}

// CreateVolumeGroupSnapshot copies all volumes as they are at one moment. The name is the group's ID, and begins those
// of its members.
func (d *Driver) CreateVolumeGroupSnapshot(ctx context.Context, q *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	if err := checkName(q.GetName()); err != nil {
		return nil, err
	}
	if len(q.GetSourceVolumeIds()) == 0 {
		return nil, invalid("source volumes are needed")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	g, err := d.store.load(groups, q.GetName())
	if errors.Is(err, fs.ErrNotExist) {
		g, err = d.createGroup(ctx, q)
	}
	if err != nil {
		return nil, answer(err)
	}
	if !slices.Equal(g.Members, memberIDs(q.GetName(), q.GetSourceVolumeIds())) {
		return nil, status.Errorf(codes.AlreadyExists, "group %q has other volumes", g.ID)
	}
	group, err := d.group(g)
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: group}, answer(err)
}

func (d *Driver) createGroup(ctx context.Context, q *csi.CreateVolumeGroupSnapshotRequest) (*record, error) {
	ids := memberIDs(q.GetName(), q.GetSourceVolumeIds())
	var members []*record
	for _, source := range q.GetSourceVolumeIds() {
		id := memberID(q.GetName(), source)
		members = append(members, &record{ID: id, Name: id, Source: source, Group: q.GetName()})
	}
	if err := d.cut(ctx, members); err != nil {
		return nil, err
	}
	g := &record{ID: q.GetName(), Name: q.GetName(), Created: members[0].Created, Members: ids}
	return g, d.store.save(groups, g)
}

// memberIDs are sorted, since the order in which volumes are named means nothing.
func memberIDs(group string, sources []string) []string {
	var ids []string
	for _, source := range sources {
		ids = append(ids, memberID(group, source))
	}
	slices.Sort(ids)
	return ids
}

func memberID(group, source string) string { return group + "-" + source }

func (d *Driver) group(g *record) (*csi.VolumeGroupSnapshot, error) {
	group := &csi.VolumeGroupSnapshot{GroupSnapshotId: g.ID, CreationTime: timestamppb.New(g.Created), ReadyToUse: d.ready(g)}
	for _, id := range g.Members {
		r, err := d.store.load(snapshots, id)
		if err != nil {
			return nil, err
		}
		group.Snapshots = append(group.Snapshots, d.snapshot(r))
	}
	return group, nil
}

// GetVolumeGroupSnapshot looks a group up.
func (d *Driver) GetVolumeGroupSnapshot(_ context.Context, q *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	if q.GetGroupSnapshotId() == "" {
		return nil, invalid("group is needed")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	g, err := d.store.load(groups, q.GetGroupSnapshotId())
	if err != nil {
		return nil, answer(err)
	}
	if err := checkMembers(g, q.GetSnapshotIds()); err != nil {
		return nil, err
	}
	group, err := d.group(g)
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: group}, answer(err)
}

// DeleteVolumeGroupSnapshot removes a group and its members.
func (d *Driver) DeleteVolumeGroupSnapshot(_ context.Context, q *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	if q.GetGroupSnapshotId() == "" {
		return nil, invalid("group is needed")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	g, err := d.store.load(groups, q.GetGroupSnapshotId())
	if errors.Is(err, fs.ErrNotExist) {
		return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
	}
	if err != nil {
		return nil, answer(err)
	}
	if err := checkMembers(g, d.told(q.GetSnapshotIds())); err != nil {
		return nil, err
	}
	for _, id := range g.Members {
		if err := d.store.remove(snapshots, id); err != nil {
			return nil, answer(err)
		}
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, answer(d.store.remove(groups, g.ID))
}

// checkMembers refuses a list of members, if one is given, that is not the group's.
func checkMembers(g *record, ids []string) error {
	for _, id := range ids {
		if !slices.Contains(g.Members, id) {
			return invalid("snapshot %q is not of group %q", id, g.ID)
		}
	}
	return nil
}
