package repository_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/repository"
)

const unitBytes = 16 << 10

// noting is a target that notes what is done to it, and can end at a call that changes it.
type noting struct {
	zeroing
	written  []repository.Extent
	changes  int
	killAt   int // the change before which it ends; 0 is never
	syncs    int
	extents  []repository.Extent // what it tells of itself; nil is all
	readInto int64               // bytes read
}

func (n *noting) change() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.changes++; n.killAt > 0 && n.changes >= n.killAt {
		return errKilled
	}
	return nil
}

func (n *noting) WriteAt(p []byte, off int64) (int, error) {
	if err := n.change(); err != nil {
		return 0, err
	}
	n.mu.Lock()
	n.written = append(n.written, repository.Extent{Offset: off, Length: int64(len(p))})
	n.mu.Unlock()
	return n.target.WriteAt(p, off)
}

func (n *noting) Zero(off, length int64) error {
	if err := n.change(); err != nil {
		return err
	}
	return n.zeroing.Zero(off, length)
}

func (n *noting) ReadAt(p []byte, off int64) (int, error) {
	n.mu.Lock()
	n.readInto += int64(len(p))
	n.mu.Unlock()
	return n.target.ReadAt(p, off)
}

func (n *noting) Sync() error { n.syncs++; return nil }

func (n *noting) Extents(from, to int64) iter.Seq2[repository.Extent, error] {
	return func(yield func(repository.Extent, error) bool) {
		if n.extents == nil {
			yield(repository.Extent{Offset: from, Length: to - from}, nil)
			return
		}
		for _, e := range n.extents {
			a, b := max(from, e.Offset), min(to, e.Offset+e.Length)
			if a < b && !yield(repository.Extent{Offset: a, Length: b - a}, nil) {
				return
			}
		}
	}
}

// inPlaceDisks are a disk and what became of it: units that changed, that appeared,
// that became zero, and a short tail.
func inPlaceDisks() (before, after []byte) {
	r := rand.New(rand.NewPCG(3, 3))
	before = randomDisk(r, 12<<20+777)
	copy(before, noise(20, 8*unitBytes))
	copy(before[9<<20:], make([]byte, 2<<20)) // a hole over leaves
	after = bytes.Clone(before)
	copy(after[unitBytes:], noise(21, unitBytes)) // changed
	copy(after[5*unitBytes:], noise(22, 3*unitBytes-100))
	copy(after[10<<20:], noise(23, unitBytes)) // appeared
	clear(after[3<<20 : 3<<20+2*unitBytes])    // became zero
	copy(after[12<<20+700:], noise(24, 77))    // the tail
	return before, after
}

func restoreInPlace(ctx context.Context, r *repository.Repository, ref repository.CommitRef, d repository.WriterAt) (repository.RestoreResult, error) {
	c, err := r.Commit(ctx, ref)
	if err != nil {
		return repository.RestoreResult{}, err
	}
	var last repository.RestoreProgress
	spec := repository.RestoreSpec{Volume: diskName(0), Target: d, InPlace: true, Progress: func(p repository.RestoreProgress) { last = p }}
	out, err := r.RestoreBlock(ctx, c, spec)
	if err == nil && (last.Done != out.Size || last.Verified != out.Size || last.Kept != out.KeptBytes) {
		return out, errors.New("progress does not add up")
	}
	return out, err
}

// differing are the bytes of units that differ and are not zero in want.
func differing(have, want []byte) (n int64) {
	for at := 0; at < len(want); at += unitBytes {
		unit := want[at:min(at+unitBytes, len(want))]
		if !bytes.Equal(unit, have[at:at+len(unit)]) && !bytes.Equal(unit, make([]byte, len(unit))) {
			n += int64(len(unit))
		}
	}
	return n
}

// TestInPlace: forwards and back, only what differs is fetched, written and zeroed;
// once more, nothing is.
func TestInPlace(t *testing.T) {
	before, after := inPlaceDisks()
	w := newWorld(t, nil)
	one := w.backup("one", nil, input{disks: [][]byte{before}})
	two := w.backup("two", one, input{disks: [][]byte{after}})
	reader := w.reader()
	d := &noting{}
	d.data = bytes.Clone(before)
	for _, step := range []struct {
		name       string
		ref        repository.CommitRef
		have, want []byte
		zeroed     []repository.Extent
	}{
		{"Forwards", two.CommitRef, before, after, []repository.Extent{{Offset: 3 << 20, Length: 2 * unitBytes}}},
		{"Again", two.CommitRef, after, after, nil},
		{"Back", one.CommitRef, after, before, []repository.Extent{{Offset: 10 << 20, Length: 1 << 20}}},
		{"AgainBack", one.CommitRef, before, before, nil},
	} {
		d.written, d.zeroed, d.syncs, d.readInto = nil, nil, 0, 0
		out, err := restoreInPlace(t.Context(), reader, step.ref, d)
		must(t, err)
		if !bytes.Equal(d.data, step.want) {
			t.Fatalf("%s: the disk differs", step.name)
		}
		changed, written := differing(step.have, step.want), int64(0)
		for _, e := range d.written {
			written += e.Length
		}
		if written != changed || out.DataBytes != changed {
			t.Errorf("%s: %d bytes written and %d counted, %d differ", step.name, written, out.DataBytes, changed)
		}
		if diff := cmp.Diff(step.zeroed, d.zeroed); diff != "" {
			t.Errorf("%s: zeroed (-want +got):\n%s", step.name, diff)
		}
		if step.name == "Forwards" && out.FetchedByte > changed+changed/20 {
			t.Errorf("%d bytes were fetched for a change of %d", out.FetchedByte, changed)
		}
		if changed == 0 && (out.Requests > 0 || out.KeptBytes != out.Size) {
			t.Errorf("%s: %d requests for no change, %d of %d bytes kept", step.name, out.Requests, out.KeptBytes, out.Size)
		}
		if d.syncs == 0 || d.readInto < out.Size {
			t.Errorf("%s: %d syncs, %d bytes read: what is kept must be durable and seen", step.name, d.syncs, d.readInto)
		}
	}
}

// TestInPlaceKilled ends an in-place restore before each of its writes. Run again on
// what that left, it makes the disk whole, and what was done is not done again.
func TestInPlaceKilled(t *testing.T) {
	before, after := inPlaceDisks()
	w := newWorld(t, nil)
	one := w.backup("one", nil, input{disks: [][]byte{before}})
	two := w.backup("two", one, input{disks: [][]byte{after}})
	reader := w.reader()
	killed := 0
	for n := 1; ; n++ {
		d := &noting{killAt: n}
		d.data = bytes.Clone(before)
		_, err := restoreInPlace(t.Context(), reader, two.CommitRef, d)
		if err == nil {
			break
		}
		if !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		killed++
		left := differing(d.data, after)
		d.killAt, d.written = 0, nil
		out, err := restoreInPlace(t.Context(), reader, two.CommitRef, d)
		must(t, err)
		if !bytes.Equal(d.data, after) || out.DataBytes != left {
			t.Errorf("killed before write %d: %d bytes written by the rerun, %d were left", n, out.DataBytes, left)
		}
	}
	if killed < 5 {
		t.Errorf("only %d writes to be killed at", killed)
	}
}

// TestInPlaceTrustsIDs: bytes that were put where they do not belong, a unit of
// another place, and garbage that is wholly zero or wholly not, are all replaced.
func TestInPlaceTrustsIDs(t *testing.T) {
	before, _ := inPlaceDisks()
	w := newWorld(t, nil)
	one := w.backup("one", nil, input{disks: [][]byte{before}})
	reader := w.reader()
	for name, spoil := range map[string]func([]byte){
		"Swapped":  func(b []byte) { copy(b[:unitBytes], before[unitBytes:2*unitBytes]) },
		"OneBit":   func(b []byte) { b[5*unitBytes+3] ^= 1 },
		"Zeroed":   func(b []byte) { clear(b) },
		"Garbage":  func(b []byte) { copy(b, bytes.Repeat([]byte{0xa5}, len(b))) },
		"OneSpeck": func(b []byte) { b[9<<20+12345] = 1 },
	} {
		d := &noting{}
		d.data = bytes.Clone(before)
		spoil(d.data)
		_, err := restoreInPlace(t.Context(), reader, one.CommitRef, d)
		must(t, err)
		if !bytes.Equal(d.data, before) {
			t.Errorf("%s: the disk differs", name)
		}
	}
}

// TestInPlaceHoles: where the target tells of a hole nothing is read, and what it has
// within one becomes one again.
func TestInPlaceHoles(t *testing.T) {
	const size = 64 << 20
	disk := make([]byte, size)
	copy(disk, noise(31, unitBytes))
	w := newWorld(t, nil)
	one := w.backup("one", nil, input{disks: [][]byte{disk}})
	d := &noting{}
	d.data = bytes.Clone(disk)
	copy(d.data[40<<20:], noise(32, 4096))
	copy(d.data[40<<20+300_000:], noise(33, 4096))
	d.extents = []repository.Extent{{Offset: 0, Length: unitBytes}, {Offset: 40 << 20, Length: 4096}, {Offset: 40<<20 + 299_008, Length: 8192}}
	out, err := restoreInPlace(t.Context(), w.reader(), one.CommitRef, d)
	must(t, err)
	if !bytes.Equal(d.data, disk) || out.Requests > 0 {
		t.Errorf("the disk differs, or was fetched: %+v", out)
	}
	if limit := int64(4 << 20); d.readInto > limit {
		t.Errorf("%d bytes were read of a target that has %d", d.readInto, unitBytes+12288)
	}
	if want := []repository.Extent{{Offset: 40 << 20, Length: 307_200}}; !slices.Equal(d.zeroed, want) {
		t.Errorf("zeroed %v, not %v", d.zeroed, want)
	}
}

// TestInPlaceReadsBack: what is written in place is read back like any other.
func TestInPlaceReadsBack(t *testing.T) {
	before, after := inPlaceDisks()
	w := newWorld(t, nil)
	two := w.backup("two", nil, input{disks: [][]byte{after}})
	reader := w.reader()
	l := &liar{target: target{data: bytes.Clone(before)}, at: unitBytes}
	if _, err := restoreInPlace(t.Context(), reader, two.CommitRef, l); !errors.Is(err, repository.ErrVerify) {
		t.Errorf("lie: %v", err)
	}
	c, err := reader.Commit(t.Context(), two.CommitRef)
	must(t, err)
	_, err = reader.RestoreBlock(t.Context(), c, repository.RestoreSpec{Volume: diskName(0), Target: &target{}, Fresh: true, InPlace: true})
	if !errors.Is(err, repository.ErrInvalid) {
		t.Errorf("fresh and in place: %v", err)
	}
}
