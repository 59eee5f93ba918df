package csireflink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func TestDiffering(t *testing.T) {
	all := cmp.AllowUnexported(piece{})
	for name, tc := range map[string]struct {
		base, target []extent
		want         []piece
	}{
		"Nothing":     {},
		"Same":        {base: []extent{{0, 8, 100}}, target: []extent{{0, 8, 100}}},
		"SplitButOne": {base: []extent{{0, 8, 100}}, target: []extent{{0, 4, 100}, {4, 4, 104}}},
		"Moved":       {base: []extent{{0, 8, 100}}, target: []extent{{0, 8, 200}}, want: []piece{{0, 8}}},
		"Middle": {
			base: []extent{{0, 12, 100}}, target: []extent{{0, 4, 100}, {4, 4, 300}, {8, 4, 108}}, want: []piece{{4, 4}},
		},
		"New":       {target: []extent{{4, 4, 100}}, want: []piece{{4, 4}}},
		"Discarded": {base: []extent{{4, 8, 100}}, target: []extent{{4, 4, 100}}, want: []piece{{8, 4}}},
		"Apart": {
			base: []extent{{0, 4, 100}, {20, 4, 104}}, target: []extent{{8, 4, 200}, {20, 8, 104}}, want: []piece{{0, 4}, {8, 4}, {24, 4}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, differing(tc.base, tc.target), all); diff != "" {
				t.Errorf("differing() mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

// What the driver tells of two snapshots is what differs between their bytes, on a real XFS; and what it does on cue.
func TestMetadata(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	client := dial(t, serve(t, dir))
	image := filepath.Join(dir, "store", volumes, "v", "disk.img")
	block := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
	_, err := csi.NewControllerClient(client).CreateVolume(t.Context(), &csi.CreateVolumeRequest{
		Name: "v", VolumeCapabilities: []*csi.VolumeCapability{block}, CapacityRange: &csi.CapacityRange{RequiredBytes: 16 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	snapshot := func(name string) []byte {
		scatter(t, rng, image)
		q := &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: "v"}
		if _, err := csi.NewControllerClient(client).CreateSnapshot(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		body, err := os.ReadFile(filepath.Join(dir, "store", snapshots, name, "disk.img"))
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	before, after := snapshot("one"), snapshot("two")
	want := changedBlocks(before, after)
	got, err := delta(t.Context(), client, 0)
	if err != nil || !covers(got, want) || total(got) > 3*4096*int64(len(want)) {
		t.Errorf("tells of %d bytes in %d ranges for %d blocks that differ: %v", total(got), len(got), len(want), err)
	}
	if rest, err := delta(t.Context(), client, got[2].GetByteOffset()); err != nil || len(rest) != len(got)-2 {
		t.Errorf("from the third range on there are %d of %d: %v", len(rest), len(got), err)
	}
	for name, tc := range map[string]struct {
		control string
		ranges  int
		code    codes.Code
	}{
		"Lie":         {`{"metadata": {"lie": true}}`, 0, codes.OK},
		"EndAfter":    {`{"metadata": {"endAfter": 3}}`, 3, codes.OK},
		"BreakAt":     {fmt.Sprintf(`{"metadata": {"breakAt": %d}}`, got[4].GetByteOffset()), 4, codes.Unavailable},
		"Reverse":     {`{"metadata": {"reverse": true}}`, len(got), codes.OK},
		"Unsupported": {`{"fail": {"GetMetadataDelta": {"code": 9}}}`, 0, codes.FailedPrecondition},
	} {
		if err := os.WriteFile(filepath.Join(dir, "control.json"), []byte(tc.control), 0o644); err != nil {
			t.Fatal(err)
		}
		ranges, err := delta(t.Context(), client, 0)
		if len(ranges) != tc.ranges || status.Code(err) != tc.code {
			t.Errorf("%s: %d ranges, want %d; %v", name, len(ranges), tc.ranges, err)
		}
		if name == "Reverse" && ranges[0].GetByteOffset() < ranges[1].GetByteOffset() {
			t.Error("ranges are in order")
		}
	}
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// scatter writes some pieces into an image.
func scatter(t *testing.T, rng *rand.Rand, image string) {
	t.Helper()
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	piece := make([]byte, 10_000)
	for range 12 {
		for i := range piece {
			piece[i] = byte(rng.Uint32())
		}
		if _, err := f.WriteAt(piece, rng.Int64N(16<<20-10_000)); err != nil {
			t.Fatal(err)
		}
	}
}

func changedBlocks(a, b []byte) (blocks []int64) {
	for at := 0; at < len(a); at += 4096 {
		if !slices.Equal(a[at:at+4096], b[at:at+4096]) {
			blocks = append(blocks, int64(at))
		}
	}
	return blocks
}

func covers(ranges []*csi.BlockMetadata, blocks []int64) bool {
	for _, at := range blocks {
		if !slices.ContainsFunc(ranges, func(r *csi.BlockMetadata) bool {
			return r.GetByteOffset() <= at && r.GetByteOffset()+r.GetSizeBytes() >= at+4096
		}) {
			return false
		}
	}
	return true
}

func total(ranges []*csi.BlockMetadata) (n int64) {
	for _, r := range ranges {
		n += r.GetSizeBytes()
	}
	return n
}

func delta(ctx context.Context, client *grpc.ClientConn, from int64) ([]*csi.BlockMetadata, error) {
	stream, err := csi.NewSnapshotMetadataClient(client).GetMetadataDelta(ctx, &csi.GetMetadataDeltaRequest{
		BaseSnapshotId: "one", TargetSnapshotId: "two", StartingOffset: from, MaxResults: 2,
	})
	if err != nil {
		return nil, err
	}
	var all []*csi.BlockMetadata
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, m.GetBlockMetadata()...)
	}
}
