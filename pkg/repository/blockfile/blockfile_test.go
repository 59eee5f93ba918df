package blockfile

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func sparse(t *testing.T, size int64, at ...int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for _, off := range at {
		if _, err := f.WriteAt([]byte("data"), off); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// TestExtents: every byte outside the extents is zero, and a large hole is one.
func TestExtents(t *testing.T) {
	const size = 1 << 40
	places := []int64{0, 5 << 20, size - 4}
	s, err := Open(sparse(t, size, places...))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	covered, total, end := 0, int64(0), int64(0)
	for e, err := range s.Extents() {
		if err != nil {
			t.Fatal(err)
		}
		if e.Offset < end {
			t.Errorf("extent %+v is out of order", e)
		}
		for _, p := range places {
			if p >= e.Offset && p < e.Offset+e.Length {
				covered++
			}
		}
		end, total = e.Offset+e.Length, total+e.Length
	}
	if covered != len(places) || end > size || total > 16<<20 {
		t.Errorf("%d of %d places are in extents of %d bytes that end at %d", covered, len(places), total, end)
	}
}

func TestExtentsOfNothing(t *testing.T) {
	s, err := Open(sparse(t, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for e, err := range s.Extents() {
		t.Errorf("extent %+v, %v", e, err)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("a directory was opened")
	}
	if _, err := Open("/dev/zero"); err == nil {
		t.Error("a character device was opened")
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
}

// TestTarget writes aligned and odd pieces, zeroes some, and reads all back.
func TestTarget(t *testing.T) {
	const size = 1<<20 + 777
	path := filepath.Join(t.TempDir(), "disk.img")
	target, err := Create(path, size)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, size)
	write := func(off, n int, with byte) {
		p := alignedBuffer(n)
		for i := range p {
			p[i] = with
		}
		copy(want[off:], p)
		if _, err := target.WriteAt(p, int64(off)); err != nil {
			t.Fatal(err)
		}
	}
	write(0, 64<<10, 1)
	write(100<<10, 32<<10, 2)
	write(1<<20, 777, 3)
	write(200<<10+5, 1000, 4)
	for _, z := range [][2]int64{{16 << 10, 16 << 10}, {100<<10 + 3, 5}, {300 << 10, 0}} {
		clear(want[z[0] : z[0]+z[1]])
		if err := target.Zero(z[0], z[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := target.Sync(); err != nil {
		t.Fatal(err)
	}
	got := alignedBuffer(1 << 20)
	if _, err := target.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	tail := make([]byte, 777)
	if _, err := target.ReadAt(tail, 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := target.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(append(got, tail...), want) {
		t.Error("target reads back other bytes")
	}
	kept, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(kept, want) {
		t.Errorf("file differs, or error: %v", err)
	}
}

func TestOpenTarget(t *testing.T) {
	for _, have := range []int64{0, 5000, 1 << 20} {
		path := sparse(t, have)
		target, err := OpenTarget(path, 70_000)
		if err != nil {
			t.Fatal(err)
		}
		if err := target.Close(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != 70_000 {
			t.Errorf("file of %d bytes became %d, %v", have, info.Size(), err)
		}
	}
	if _, err := Create(sparse(t, 1), 5); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create over a file: %v", err)
	}
}

// TestZeroMakesHoles: what is zeroed takes no room.
func TestZeroMakesHoles(t *testing.T) {
	path := sparse(t, 0)
	target, err := OpenTarget(path, 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	if _, err := target.WriteAt(bytes.Repeat([]byte{1}, 8<<20), 0); err != nil {
		t.Fatal(err)
	}
	if err := target.Zero(0, 8<<20); err != nil {
		t.Fatal(err)
	}
	if err := target.Sync(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if blocks := info.Sys().(*syscall.Stat_t).Blocks; blocks*512 > 1<<20 {
		t.Errorf("a file of zeros takes %d bytes", blocks*512)
	}
}

// TestTargetExtents: a target tells of its holes as they are, within the range that
// is asked for.
func TestTargetExtents(t *testing.T) {
	const size, far = 1 << 40, 1 << 39
	target, err := OpenTarget(sparse(t, size, 0, far), size)
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	count := func(from, to int64) (n int, bytes int64) {
		for e, err := range target.Extents(from, to) {
			if err != nil || e.Offset < from || e.Offset+e.Length > to {
				t.Errorf("extent %+v of [%d, %d), %v", e, from, to, err)
			}
			n, bytes = n+1, bytes+e.Length
		}
		return n, bytes
	}
	for _, tc := range []struct {
		from, to int64
		want     int
	}{{0, size, 2}, {1 << 30, size, 1}, {1 << 30, far, 0}, {far + 1, far + 2, 1}, {far + 1<<30, size, 0}} {
		if n, bytes := count(tc.from, tc.to); n != tc.want || bytes > 4<<20 {
			t.Errorf("[%d, %d) has %d extents of %d bytes, not %d", tc.from, tc.to, n, bytes, tc.want)
		}
	}
	if err := target.Zero(far, 1<<20); err != nil {
		t.Fatal(err)
	}
	if n, _ := count(1<<20, size); n != 0 {
		t.Error("what was zeroed is not a hole")
	}
}

func TestReadAt(t *testing.T) {
	s, err := Open(sparse(t, 20<<20, 10<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size()))
	if err != nil || len(b) != 20<<20 || string(b[10<<20:10<<20+4]) != "data" {
		t.Errorf("%d bytes read, %v", len(b), err)
	}
}
