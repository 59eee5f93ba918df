package csireflink

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// mostPieces bounds the ranges of a message.
const mostPieces = 256

// GetMetadataAllocated streams what a snapshot holds.
func (d *Driver) GetMetadataAllocated(q *csi.GetMetadataAllocatedRequest, out csi.SnapshotMetadata_GetMetadataAllocatedServer) error {
	if q.GetSnapshotId() == "" {
		return invalid("snapshot is needed")
	}
	target, extents, err := d.snapshotExtents(q.GetSnapshotId())
	if err != nil {
		return err
	}
	var pieces []piece
	for _, e := range extents {
		pieces = appendPiece(pieces, e.offset, e.length)
	}
	s := stream{control: d.controls.read().Metadata, size: target.Size, from: q.GetStartingOffset(), most: q.GetMaxResults()}
	return s.play(out.Context(), pieces, func(blocks []*csi.BlockMetadata) error {
		return out.Send(&csi.GetMetadataAllocatedResponse{
			BlockMetadataType: csi.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: target.Size, BlockMetadata: blocks,
		})
	})
}

// GetMetadataDelta streams where a snapshot does not share its data with an older one.
func (d *Driver) GetMetadataDelta(q *csi.GetMetadataDeltaRequest, out csi.SnapshotMetadata_GetMetadataDeltaServer) error {
	if q.GetBaseSnapshotId() == "" || q.GetTargetSnapshotId() == "" {
		return invalid("both snapshots are needed")
	}
	base, old, err := d.snapshotExtents(q.GetBaseSnapshotId())
	if err != nil {
		return err
	}
	target, now, err := d.snapshotExtents(q.GetTargetSnapshotId())
	if err != nil {
		return err
	}
	if base.Source != target.Source {
		return invalid("snapshots %q and %q are of two volumes", base.ID, target.ID)
	}
	control := d.controls.read().Metadata
	pieces := differing(old, now)
	if control.Lie {
		pieces = nil
	}
	s := stream{control: control, size: target.Size, from: q.GetStartingOffset(), most: q.GetMaxResults()}
	return s.play(out.Context(), pieces, func(blocks []*csi.BlockMetadata) error {
		return out.Send(&csi.GetMetadataDeltaResponse{
			BlockMetadataType: csi.BlockMetadataType_VARIABLE_LENGTH, VolumeCapacityBytes: target.Size, BlockMetadata: blocks,
		})
	})
}

func (d *Driver) snapshotExtents(id string) (*record, []extent, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, err := d.store.load(snapshots, id)
	if err != nil {
		return nil, nil, answer(err)
	}
	extents, err := extentsOf(d.store.image(snapshots, id), r.Size)
	return r, extents, answer(err)
}

// Metadata makes snapshot metadata misbehave, as drivers do.
type Metadata struct {
	// Lie makes the driver tell of no change.
	Lie bool `json:"lie"`
	// EndAfter ends a stream after so many ranges, without an error; 0 does not.
	EndAfter int `json:"endAfter"`
	// BreakAt ends every stream with Unavailable where it would tell of this offset or one behind it; 0 does not.
	BreakAt int64 `json:"breakAt"`
	// Reverse tells ranges in the wrong order.
	Reverse bool `json:"reverse"`
}

// stream is one answer.
type stream struct {
	control Metadata
	size    int64
	from    int64
	most    int32
}

// play sends the pieces that end behind the offset asked for. The first message has none: it tells the capacity even
// where nothing follows.
func (s stream) play(ctx context.Context, pieces []piece, send func([]*csi.BlockMetadata) error) error {
	if s.from < 0 || s.from > s.size {
		return status.Errorf(codes.OutOfRange, "offset %d of a volume of %d bytes", s.from, s.size)
	}
	blocks, failure := s.blocks(pieces)
	if err := send(nil); err != nil {
		return err
	}
	most := mostPieces
	if s.most > 0 {
		most = min(most, int(s.most))
	}
	for len(blocks) > 0 {
		n := min(most, len(blocks))
		if err := send(blocks[:n]); err != nil {
			return err
		}
		blocks = blocks[n:]
	}
	if failure != nil {
		return failure
	}
	return status.FromContextError(ctx.Err()).Err()
}

func (s stream) blocks(pieces []piece) (blocks []*csi.BlockMetadata, failure error) {
	for _, p := range pieces {
		if p.offset+p.length <= s.from {
			continue
		}
		if s.control.BreakAt > 0 && p.offset >= s.control.BreakAt {
			failure = status.Errorf(codes.Unavailable, "broken at %d on cue", p.offset)
			break
		}
		if s.control.EndAfter > 0 && len(blocks) == s.control.EndAfter {
			break
		}
		block := &csi.BlockMetadata{ByteOffset: p.offset, SizeBytes: p.length}
		if s.control.Reverse {
			blocks = append([]*csi.BlockMetadata{block}, blocks...)
		} else {
			blocks = append(blocks, block)
		}
	}
	return blocks, failure
}
