package csireflink

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// CreateSnapshot copies one volume as it is at one moment. The name is the ID.
func (d *Driver) CreateSnapshot(ctx context.Context, q *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := checkName(q.GetName()); err != nil {
		return nil, err
	}
	if q.GetSourceVolumeId() == "" {
		return nil, invalid("source volume is needed")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r, err := d.store.load(snapshots, q.GetName())
	if errors.Is(err, fs.ErrNotExist) {
		r = &record{ID: q.GetName(), Name: q.GetName(), Source: q.GetSourceVolumeId()}
		err = d.cut(ctx, []*record{r})
	}
	if err != nil {
		return nil, answer(err)
	}
	if r.Source != q.GetSourceVolumeId() {
		return nil, status.Errorf(codes.AlreadyExists, "snapshot %q is of another volume", q.GetName())
	}
	return &csi.CreateSnapshotResponse{Snapshot: d.snapshot(r)}, nil
}

// cut copies the sources of all records at one moment, and saves the records with it.
func (d *Driver) cut(ctx context.Context, all []*record) error {
	var sources []string
	for _, r := range all {
		source, err := d.store.load(volumes, r.Source)
		if err != nil {
			return err
		}
		r.Size = source.Size
		sources = append(sources, r.Source)
	}
	err := d.copyHeld(ctx, all, sources)
	for _, r := range all {
		if err == nil {
			err = d.store.save(snapshots, r)
		}
	}
	if err == nil {
		return nil
	}
	// Nothing stays of a cut that failed: nobody would know of it, and so nobody remove it.
	errs := []error{err}
	for _, r := range all {
		errs = append(errs, d.store.drop(snapshots, r.ID))
	}
	return errors.Join(errs...)
}

func (d *Driver) copyHeld(ctx context.Context, all []*record, sources []string) error {
	control := d.controls.read()
	if !control.NoHold {
		release, err := d.store.hold(sources)
		defer release()
		if err != nil {
			return err
		}
	}
	now := time.Now()
	for i, r := range all {
		if i > 0 {
			if err := d.controls.failure("half a group", control.HalfGroup); err != nil {
				return err
			}
			if err := pause(ctx, control.GapMillis); err != nil {
				return err
			}
		}
		r.Created = now
		if err := clone(d.store.image(snapshots, r.ID), d.store.image(volumes, r.Source)); err != nil {
			return err
		}
	}
	return nil
}

// DeleteSnapshot removes a snapshot that belongs to no group.
func (d *Driver) DeleteSnapshot(_ context.Context, q *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	if q.GetSnapshotId() == "" {
		return nil, invalid("snapshot is needed")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r, err := d.store.load(snapshots, q.GetSnapshotId())
	if errors.Is(err, fs.ErrNotExist) {
		return &csi.DeleteSnapshotResponse{}, nil
	}
	if err != nil {
		return nil, answer(err)
	}
	if r.Group != "" {
		return nil, invalid("snapshot %q is a member of group %q", r.ID, r.Group)
	}
	return &csi.DeleteSnapshotResponse{}, answer(d.store.remove(snapshots, r.ID))
}

// ListSnapshots lists in order of IDs; a token is the number of entries to pass over.
func (d *Driver) ListSnapshots(_ context.Context, q *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all, err := d.store.list(snapshots)
	if err != nil {
		return nil, answer(err)
	}
	var matching []*record
	for _, r := range all {
		if matches(q.GetSnapshotId(), r.ID) && matches(q.GetSourceVolumeId(), r.Source) {
			matching = append(matching, r)
		}
	}
	start := 0
	if token := q.GetStartingToken(); token != "" {
		if start, err = strconv.Atoi(token); err != nil || start < 0 || start > len(matching) {
			return nil, status.Errorf(codes.Aborted, "starting token %q is not one of ours", token)
		}
	}
	end := len(matching)
	r := &csi.ListSnapshotsResponse{}
	if most := int(q.GetMaxEntries()); most > 0 && start+most < end {
		end = start + most
		r.NextToken = strconv.Itoa(end)
	}
	for _, m := range matching[start:end] {
		r.Entries = append(r.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: d.snapshot(m)})
	}
	return r, nil
}

func matches(wanted, value string) bool { return wanted == "" || wanted == value }

// snapshot is a record as CSI tells it.
func (d *Driver) snapshot(r *record) *csi.Snapshot {
	return &csi.Snapshot{
		SnapshotId: r.ID, SourceVolumeId: r.Source, SizeBytes: r.Size, GroupSnapshotId: r.Group,
		CreationTime: timestamppb.New(r.Created), ReadyToUse: d.ready(r),
	}
}

func (d *Driver) ready(r *record) bool {
	return time.Since(r.Created) >= time.Duration(d.controls.read().UnreadyMillis)*time.Millisecond
}
