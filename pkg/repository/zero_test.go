package repository_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/repository"
)

// zeroing notes which ranges are zeroed.
type zeroing struct {
	target
	zeroed []repository.Extent
}

func (z *zeroing) Zero(off, length int64) error {
	z.zeroed = append(z.zeroed, repository.Extent{Offset: off, Length: length})
	return z.target.Zero(off, length)
}

// TestZerosAreJoined: what is zero in a row is zeroed at once, within leaves and over
// their borders.
func TestZerosAreJoined(t *testing.T) {
	const unit, leaf = 16 << 10, 1 << 20
	disk := make([]byte, 4*leaf+unit/2)
	copy(disk[2*unit:], noise(8, unit))
	copy(disk[3*leaf:], noise(9, unit))
	w := newWorld(t, nil)
	one := w.backup("one", nil, input{disks: [][]byte{disk}})
	r := w.reader()
	c, err := r.Commit(t.Context(), one.CommitRef)
	must(t, err)
	z := &zeroing{target: target{data: bytes.Repeat([]byte{0xa5}, len(disk))}}
	_, err = r.RestoreBlock(t.Context(), c, repository.RestoreSpec{Volume: diskName(0), Target: z})
	must(t, err)
	want := []repository.Extent{
		{Offset: 0, Length: 2 * unit},
		{Offset: 3 * unit, Length: 3*leaf - 3*unit},
		{Offset: 3*leaf + unit, Length: leaf - unit/2},
	}
	if diff := cmp.Diff(want, z.zeroed); diff != "" {
		t.Errorf("zeroed (-want +got):\n%s", diff)
	}
	if !bytes.Equal(z.data, disk) {
		t.Error("the disk differs")
	}
}

// holes counts ranges and keeps nothing.
type holes struct {
	target
	calls int
}

func (h *holes) Zero(int64, int64) error { h.calls++; return nil }

// TestScatteredZeros: holes that a guest scatters do not gather in memory.
func TestScatteredZeros(t *testing.T) {
	h := &holes{}
	most, err := repository.RestoreHoles(t.Context(), h, 200_000)
	must(t, err)
	if h.calls != 200_000 || most > 1<<16 {
		t.Errorf("%d ranges zeroed, %d held at most", h.calls, most)
	}
}
