package csireflink

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	minimumSize = 16 << 20 // ext4 needs some room
	blockSize   = 4096
	maximumName = 200 // what is left of a file name when a group's name goes before it
)

// ControllerGetCapabilities lists what the controller can do.
func (d *Driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	r := &csi.ControllerGetCapabilitiesResponse{}
	for _, kind := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_LIST_SNAPSHOTS,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		rpc := &csi.ControllerServiceCapability_RPC{Type: kind}
		r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: rpc}})
	}
	return r, nil
}

// ValidateVolumeCapabilities confirms whatever is asked for: both modes are always there.
func (d *Driver) ValidateVolumeCapabilities(_ context.Context, q *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if q.GetVolumeId() == "" || len(q.GetVolumeCapabilities()) == 0 {
		return nil, invalid("volume and capabilities are needed")
	}
	if _, err := d.store.load(volumes, q.GetVolumeId()); err != nil {
		return nil, answer(err)
	}
	confirmed := &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: q.GetVolumeCapabilities()}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: confirmed}, nil
}

// CreateVolume makes an empty volume, or one that begins as a snapshot or another volume. The name is the ID.
func (d *Driver) CreateVolume(_ context.Context, q *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if err := checkName(q.GetName()); err != nil {
		return nil, err
	}
	if len(q.GetVolumeCapabilities()) == 0 {
		return nil, invalid("capabilities are needed")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	size := max(q.GetCapacityRange().GetRequiredBytes(), minimumSize)
	size = (size + blockSize - 1) / blockSize * blockSize
	r, err := d.store.load(volumes, q.GetName())
	switch {
	case err == nil && (r.Size < size || beyond(r.Size, q.GetCapacityRange())):
		return nil, status.Errorf(codes.AlreadyExists, "volume %q has another size", q.GetName())
	case errors.Is(err, fs.ErrNotExist):
		r, err = d.createVolume(q, size)
	}
	if err != nil {
		return nil, answer(err)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: r.ID, CapacityBytes: r.Size, ContentSource: q.GetVolumeContentSource(),
	}}, nil
}

func (d *Driver) createVolume(q *csi.CreateVolumeRequest, size int64) (*record, error) {
	r := &record{ID: q.GetName(), Name: q.GetName(), Size: size, Created: time.Now()}
	image := d.store.image(volumes, r.ID)
	if err := os.RemoveAll(filepath.Dir(image)); err != nil { // what an attempt that was cut short has left
		return nil, err
	}
	var err error
	switch source := q.GetVolumeContentSource(); {
	case source.GetSnapshot() != nil:
		err = d.fill(r, snapshots, source.GetSnapshot().GetSnapshotId())
	case source.GetVolume() != nil:
		err = d.fill(r, volumes, source.GetVolume().GetVolumeId())
	default:
		err = emptyImage(image)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Truncate(image, r.Size); err != nil {
		return nil, err
	}
	return r, d.store.save(volumes, r)
}

// fill makes r's image a copy of another one's, and r at least as large.
func (d *Driver) fill(r *record, kind, id string) error {
	source, err := d.store.load(kind, id)
	if err != nil {
		return err
	}
	release := func() {}
	if kind == volumes {
		release, err = d.store.hold([]string{id})
	}
	if err == nil {
		err = clone(d.store.image(volumes, r.ID), d.store.image(kind, id))
	}
	release()
	r.Source, r.Size = id, max(r.Size, source.Size)
	return err
}

func emptyImage(image string) error {
	if err := os.MkdirAll(filepath.Dir(image), 0o755); err != nil {
		return err
	}
	return os.WriteFile(image, nil, 0o600)
}

// DeleteVolume removes a volume that no node has staged.
func (d *Driver) DeleteVolume(_ context.Context, q *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if q.GetVolumeId() == "" {
		return nil, invalid("volume is needed")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.store.load(volumes, q.GetVolumeId()); errors.Is(err, fs.ErrNotExist) {
		return &csi.DeleteVolumeResponse{}, nil
	}
	device, err := loopOf(d.store.image(volumes, q.GetVolumeId()))
	if err != nil {
		return nil, answer(err)
	}
	if device != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %q is staged", q.GetVolumeId())
	}
	return &csi.DeleteVolumeResponse{}, answer(d.store.remove(volumes, q.GetVolumeId()))
}

// checkName refuses a name that cannot be a file name as well.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > maximumName || strings.ContainsAny(name, "/\x00") {
		return invalid("a name of 1 to %d bytes without a slash is needed", maximumName)
	}
	return nil
}

func beyond(size int64, r *csi.CapacityRange) bool {
	return r.GetLimitBytes() > 0 && size > r.GetLimitBytes()
}
