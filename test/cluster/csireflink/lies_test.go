package csireflink

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// volumesOf makes volumes that are on no node.
func volumesOf(t *testing.T, d *Driver, ids ...string) {
	t.Helper()
	for _, id := range ids {
		q := &csi.CreateVolumeRequest{Name: id, VolumeCapabilities: []*csi.VolumeCapability{{}}}
		if _, err := d.CreateVolume(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
}

// createGroup calls the driver like its server does, at most for the time given.
func createGroup(ctx context.Context, d *Driver, timeout time.Duration, name string, sources ...string) (*csi.VolumeGroupSnapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	info := &grpc.UnaryServerInfo{FullMethod: "/csi.v1.GroupController/CreateVolumeGroupSnapshot"}
	q := &csi.CreateVolumeGroupSnapshotRequest{Name: name, SourceVolumeIds: sources}
	answer, err := d.intercept(ctx, q, info, func(ctx context.Context, q any) (any, error) {
		return d.CreateVolumeGroupSnapshot(ctx, q.(*csi.CreateVolumeGroupSnapshotRequest))
	})
	if err != nil {
		return nil, err
	}
	return answer.(*csi.CreateVolumeGroupSnapshotResponse).GetGroupSnapshot(), nil
}

func control(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func onStorage(t *testing.T, d *Driver) []string {
	t.Helper()
	entries, err := os.ReadDir(d.store.folder(snapshots, ""))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// TestLate: the caller gives up, the storage does not: what it makes is there later on.
func TestLate(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	d, file := newDriver(t)
	volumesOf(t, d, "a", "b")
	control(t, file, `{"lateMillis": {"CreateVolumeGroupSnapshot": 500}}`)
	var got []codes.Code
	for range 2 {
		_, err := createGroup(t.Context(), d, 50*time.Millisecond, "g", "a", "b")
		got = append(got, status.Code(err))
	}
	if diff := cmp.Diff([]codes.Code{codes.DeadlineExceeded, codes.Aborted}, got); diff != "" {
		t.Errorf("codes mismatch (-want +got):\n%s", diff)
	}
	if there := onStorage(t, d); len(there) > 0 {
		t.Errorf("the snapshots %v are there already: it is not late", there)
	}
	for deadline := time.Now().Add(10 * time.Second); len(onStorage(t, d)) < 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing was made after the caller had given up")
		}
	}
	if _, err := createGroup(t.Context(), d, time.Minute, "g", "a", "b"); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// TestHalfGroup: a group that fails half-way leaves nothing that nobody knows of.
func TestHalfGroup(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	d, file := newDriver(t)
	volumesOf(t, d, "a", "b")
	control(t, file, `{"halfGroup": {"code": 9, "times": 1}}`)
	if _, err := createGroup(t.Context(), d, time.Minute, "g", "a", "b"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("code = %v", status.Code(err))
	}
	if there := onStorage(t, d); len(there) > 0 {
		t.Errorf("%v was left", there)
	}
	if _, err := createGroup(t.Context(), d, time.Minute, "g", "a", "b"); err != nil || len(onStorage(t, d)) != 2 {
		t.Errorf("the second call: %v, %v", err, onStorage(t, d))
	}
}

func TestLies(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	d, file := newDriver(t)
	volumesOf(t, d, "a", "b")
	size := int64(minimumSize)
	type told struct {
		Group   string
		Members []string // volume=snapshot
		Size    int64
		Time    bool
	}
	truth := told{"g", []string{"a=g-a", "b=g-b"}, size, true}
	tests := map[string]struct {
		control string
		want    told
	}{
		"Truth":    {`{}`, truth},
		"NoHandle": {`{"lies": {"CreateVolumeGroupSnapshot": {"noHandle": true}}}`, told{"", truth.Members, size, true}},
		"Handle":   {`{"lies": {"CreateVolumeGroupSnapshot": {"handle": "x"}}}`, told{"x", truth.Members, size, true}},
		"Forget":   {`{"lies": {"CreateVolumeGroupSnapshot": {"forget": 1}}}`, told{"g", truth.Members[:1], size, true}},
		"Invent":   {`{"lies": {"CreateVolumeGroupSnapshot": {"invent": "c"}}}`, told{"g", append(slices.Clone(truth.Members), "c=g-c"), size, true}},
		"Repeat":   {`{"lies": {"CreateVolumeGroupSnapshot": {"repeat": true}}}`, told{"g", []string{"a=g-a", "b=g-a"}, size, true}},
		"Size":     {`{"lies": {"CreateVolumeGroupSnapshot": {"size": 0, "noTime": true}}}`, told{"g", truth.Members, 0, false}},
		"Other":    {`{"lies": {"CreateSnapshot": {"noHandle": true}}}`, truth},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			control(t, file, tc.control)
			g, err := createGroup(t.Context(), d, time.Minute, "g", "a", "b")
			if err != nil {
				t.Fatal(err)
			}
			got := told{Group: g.GroupSnapshotId, Size: g.Snapshots[0].SizeBytes, Time: g.CreationTime != nil}
			for _, s := range g.Snapshots {
				got.Members = append(got.Members, s.SourceVolumeId+"="+s.SnapshotId)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
