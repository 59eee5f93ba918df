package csireflink

import (
	"context"
	"os"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// NodeGetInfo names the node.
func (d *Driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.options.Node}, nil
}

// NodeGetCapabilities says that volumes are staged.
func (d *Driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, kind := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		rpc := &csi.NodeServiceCapability_RPC{Type: kind}
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: rpc}})
	}
	return r, nil
}

// NodeStageVolume attaches the volume's image, and mounts its file system if it is to have one.
func (d *Driver) NodeStageVolume(_ context.Context, q *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if q.GetVolumeId() == "" || q.GetStagingTargetPath() == "" || q.GetVolumeCapability() == nil {
		return nil, invalid("volume, staging path and capability are needed")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.store.load(volumes, q.GetVolumeId()); err != nil {
		return nil, answer(err)
	}
	device, err := attach(d.store.image(volumes, q.GetVolumeId()))
	if err != nil {
		return nil, answer(err)
	}
	if q.GetVolumeCapability().GetBlock() == nil && !mounted(q.GetStagingTargetPath()) {
		err = mountImage(device, q.GetStagingTargetPath())
	}
	return &csi.NodeStageVolumeResponse{}, answer(err)
}

// NodeUnstageVolume undoes NodeStageVolume.
func (d *Driver) NodeUnstageVolume(_ context.Context, q *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if q.GetVolumeId() == "" || q.GetStagingTargetPath() == "" {
		return nil, invalid("volume and staging path are needed")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := unmount(q.GetStagingTargetPath()); err != nil {
		return nil, answer(err)
	}
	return &csi.NodeUnstageVolumeResponse{}, answer(detach(d.store.image(volumes, q.GetVolumeId())))
}

// NodePublishVolume binds a staged volume to where a pod looks for it.
func (d *Driver) NodePublishVolume(_ context.Context, q *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if q.GetVolumeId() == "" || q.GetTargetPath() == "" || q.GetVolumeCapability() == nil {
		return nil, invalid("volume, target path and capability are needed")
	}
	if q.GetStagingTargetPath() == "" {
		return nil, status.Error(codes.FailedPrecondition, "staging path is needed")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.store.load(volumes, q.GetVolumeId()); err != nil {
		return nil, answer(err)
	}
	if err := d.claim(q); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, answer(d.publish(q))
}

// claim keeps a volume of one writer to one target. What was published before the driver started is not known.
func (d *Driver) claim(q *csi.NodePublishVolumeRequest) error {
	single := q.GetVolumeCapability().GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	for target, volume := range d.published {
		if single && volume == q.GetVolumeId() && target != q.GetTargetPath() {
			return status.Errorf(codes.FailedPrecondition, "volume %q is published at %q", volume, target)
		}
	}
	d.published[q.GetTargetPath()] = q.GetVolumeId()
	return nil
}

func (d *Driver) publish(q *csi.NodePublishVolumeRequest) error {
	target := q.GetTargetPath()
	if mounted(target) {
		return nil
	}
	source := q.GetStagingTargetPath()
	if q.GetVolumeCapability().GetBlock() != nil {
		device, err := loopOf(d.store.image(volumes, q.GetVolumeId()))
		if err != nil {
			return err
		}
		if device == "" {
			return status.Errorf(codes.FailedPrecondition, "volume %q is not staged", q.GetVolumeId())
		}
		source = device
		if err := emptyImage(target); err != nil {
			return err
		}
	} else if err := os.MkdirAll(target, 0o750); err != nil {
		return err
	}
	if _, err := run("mount", "--bind", source, target); err != nil {
		return err
	}
	if !q.GetReadonly() {
		return nil
	}
	_, err := run("mount", "-o", "remount,bind,ro", target)
	return err
}

// NodeUnpublishVolume undoes NodePublishVolume and removes the target.
func (d *Driver) NodeUnpublishVolume(_ context.Context, q *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if q.GetVolumeId() == "" || q.GetTargetPath() == "" {
		return nil, invalid("volume and target path are needed")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	target := filepath.Clean(q.GetTargetPath())
	delete(d.published, q.GetTargetPath())
	if err := unmount(target); err != nil {
		return nil, answer(err)
	}
	if err := os.Remove(target); err != nil && !os.IsNotExist(err) {
		return nil, answer(err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
