package csireflink

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// late does a method's work at once, or in its own time if the control file says so. Its caller may give up; the
// work does not.
func (c *controls) late(ctx context.Context, method string, q any, work func(context.Context) (any, error)) (any, error) {
	named, ok := q.(interface{ GetName() string })
	takes := time.Duration(c.read().LateMillis[method]) * time.Millisecond
	if !ok || takes == 0 {
		return work(ctx)
	}
	key := method + " " + named.GetName()
	c.mu.Lock()
	done, begun := c.belated[key]
	if !begun {
		done = make(chan struct{})
		c.belated[key] = done
		go func() {
			time.Sleep(takes)
			_, _ = work(context.Background()) // the next call does it again, or finds it done
			close(done)
		}()
	}
	c.mu.Unlock()
	select {
	case <-done:
		return work(ctx)
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	default:
	}
	if begun {
		return nil, status.Errorf(codes.Aborted, "an operation for %q is under way", named.GetName())
	}
	select {
	case <-done:
		return work(ctx)
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// lie changes an answer as the control file says.
func lie(answer any, l Lie) {
	if l == (Lie{}) {
		return
	}
	switch a := answer.(type) {
	case *csi.CreateSnapshotResponse:
		lieSnapshot(a.Snapshot, l)
	case *csi.ListSnapshotsResponse:
		for _, e := range a.Entries {
			lieSnapshot(e.Snapshot, Lie{NoTime: l.NoTime, Size: l.Size})
		}
	case *csi.CreateVolumeGroupSnapshotResponse:
		lieGroup(a.GroupSnapshot, l)
	}
}

func lieSnapshot(s *csi.Snapshot, l Lie) {
	if l.NoHandle {
		s.SnapshotId = ""
	}
	if l.Handle != "" {
		s.SnapshotId = l.Handle
	}
	if l.NoTime {
		s.CreationTime = nil
	}
	if l.Size != nil {
		s.SizeBytes = *l.Size
	}
}

func lieGroup(g *csi.VolumeGroupSnapshot, l Lie) {
	if l.NoHandle {
		g.GroupSnapshotId = ""
	}
	if l.Handle != "" {
		g.GroupSnapshotId = l.Handle
	}
	if l.NoTime {
		g.CreationTime = nil
	}
	g.Snapshots = g.Snapshots[:max(len(g.Snapshots)-l.Forget, 0)]
	for _, s := range g.Snapshots {
		lieSnapshot(s, Lie{NoTime: l.NoTime, Size: l.Size})
		if l.Repeat {
			s.SnapshotId = g.Snapshots[0].SnapshotId
		}
	}
	if l.Invent != "" {
		g.Snapshots = append(g.Snapshots, &csi.Snapshot{
			SnapshotId: memberID(g.GroupSnapshotId, l.Invent), SourceVolumeId: l.Invent, GroupSnapshotId: g.GroupSnapshotId,
			CreationTime: g.CreationTime, ReadyToUse: g.ReadyToUse,
		})
	}
}

// told leaves out of a group's members those that the control file has the driver invent: it believes itself.
func (d *Driver) told(ids []string) []string {
	invented := d.controls.read().Lies["CreateVolumeGroupSnapshot"].Invent
	if invented == "" {
		return ids
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return strings.HasSuffix(id, "-"+invented) })
}
