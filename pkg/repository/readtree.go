package repository

import (
	"context"
	"fmt"
	"io"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/tree"
)

// openTree is a tree volume with its manifest read.
type openTree struct {
	repo    *Repository
	opened  *opened
	volume  *commit.Volume
	entries []tree.Entry
	offsets map[string]int64
	sizes   map[string]int64
}

// ReadTree opens a tree volume of c.
func (r *Repository) ReadTree(ctx context.Context, c *Commit, volume string) (OpenTree, error) {
	var t *openTree
	err := r.again(ctx, c.Key, func() (err error) {
		t, err = r.readTree(ctx, c, volume)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read volume %q: %w", volume, err)
	}
	return t, nil
}

func (r *Repository) readTree(ctx context.Context, c *Commit, volume string) (*openTree, error) {
	o, err := r.readCommit(ctx, c.CommitRef)
	if err != nil {
		return nil, err
	}
	v, err := o.volume(volume)
	if err != nil {
		return nil, err
	}
	if v.Kind != commit.Tree || v.Manifest > tree.MaxManifest {
		return nil, fmt.Errorf("%w: it is a disk, not a set of files", ErrInvalid)
	}
	t := &openTree{repo: r, opened: o, volume: v, offsets: map[string]int64{}, sizes: map[string]int64{}}
	manifest, err := t.read(ctx, 0, v.Manifest)
	if err != nil {
		return nil, err
	}
	if t.entries, err = tree.Decode(manifest); err != nil {
		return nil, fmt.Errorf("%w: manifest: %w", ErrDamaged, err)
	}
	if err := checkContents(t.entries); err != nil {
		return nil, err
	}
	offsets, size := tree.Layout(t.entries, v.Manifest, int64(v.Unit))
	if size != v.Size {
		return nil, fmt.Errorf("%w: manifest describes %d bytes, the volume has %d", ErrDamaged, size, v.Size)
	}
	for i := range t.entries {
		t.offsets[t.entries[i].Path], t.sizes[t.entries[i].Path] = offsets[i], t.entries[i].Size
	}
	return t, nil
}

// checkContents refuses more than a writer stores: whole files are held in memory.
func checkContents(entries []tree.Entry) error {
	left := int64(MaxTreeBytes)
	for i := range entries {
		if entries[i].Size > left {
			return fmt.Errorf("%w: manifest describes more than %d bytes of files", ErrDamaged, MaxTreeBytes)
		}
		left -= entries[i].Size
	}
	return nil
}

// Entries returns the entries, sorted by path.
func (t *openTree) Entries() []tree.Entry { return t.entries }

// Contents returns the verified bytes of the regular file at path.
func (t *openTree) Contents(ctx context.Context, path string) ([]byte, error) {
	size, ok := t.sizes[path]
	if !ok {
		return nil, fmt.Errorf("%w: volume %q has no file %q", ErrInvalid, t.volume.Name, path)
	}
	if size == 0 {
		return nil, nil
	}
	var b []byte
	err := t.repo.again(ctx, t.opened.ref.Key, func() (err error) {
		b, err = t.read(ctx, t.offsets[path], size)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read file %q of volume %q: %w", path, t.volume.Name, err)
	}
	return b, nil
}

// read returns bytes of the image; from is at the border of a unit.
func (t *openTree) read(ctx context.Context, from, length int64) ([]byte, error) {
	unit := int64(t.volume.Unit)
	m := &memory{base: from, data: make([]byte, (length+unit-1)/unit*unit)}
	run, err := t.repo.newRestore(ctx, t.opened, t.volume, RestoreSpec{Target: m, Fresh: true})
	if err != nil {
		return nil, err
	}
	if err := run.all(ctx, from, from+length); err != nil {
		return nil, err
	}
	return m.data[:length], nil
}

// memory is a target in memory, zero at first.
type memory struct {
	base int64
	data []byte
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	if off < m.base || off-m.base+int64(len(p)) > int64(len(m.data)) {
		return 0, io.ErrShortBuffer
	}
	return copy(m.data[off-m.base:], p), nil
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) { return copy(p, m.data[off-m.base:]), nil }

func (m *memory) Zero(off, length int64) error {
	clear(m.data[off-m.base : off-m.base+length])
	return nil
}

func (m *memory) Sync() error { return nil }
