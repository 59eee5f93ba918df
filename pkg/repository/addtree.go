package repository

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/tree"
)

// AddTree stores a tree of files. Its entries say how long each file is; one that
// has another length when it is read is ErrSource.
func (b *Backup) AddTree(ctx context.Context, v TreeVolume) (VolumeResult, error) {
	if err := b.usable(); err != nil {
		return VolumeResult{}, err
	}
	entries := slices.Clone(v.Entries)
	tree.Sort(entries)
	manifest, err := tree.Encode(entries)
	if err != nil {
		return VolumeResult{}, fmt.Errorf("%w: tree volume %q: %w", ErrInvalid, v.Name, err)
	}
	offsets, size := tree.Layout(entries, int64(len(manifest)), commit.SmallUnit)
	contents := int64(0)
	for i := range entries {
		contents += entries[i].Size
	}
	if contents > MaxTreeBytes {
		return VolumeResult{}, fmt.Errorf("%w: tree volume %q has %d bytes, allowed are %d", ErrTooLarge, v.Name, contents, MaxTreeBytes)
	}
	image := &treeImage{volume: v, manifest: manifest, entries: entries, offsets: offsets}
	defer image.close()
	block := BlockVolume{Name: v.Name, Role: v.Role, Mode: v.Mode, Size: size, Source: image}
	return b.add(ctx, block, commit.Volume{Kind: commit.Tree, Manifest: int64(len(manifest))})
}

// treeImage reads a tree volume as one run of bytes: the manifest, then the files,
// each from the border of a unit. It is read once, forwards.
type treeImage struct {
	volume   TreeVolume
	manifest []byte
	entries  []tree.Entry
	offsets  []int64

	file  io.ReadCloser
	index int // of the entry that file is
	done  int64
}

func (t *treeImage) readInOrder() {}

// ReadAt serves reads in rising order only.
func (t *treeImage) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	if off < int64(len(t.manifest)) {
		copy(p, t.manifest[off:])
	}
	end := off + int64(len(p))
	for i := range t.entries {
		at, size := t.offsets[i], t.entries[i].Size
		if at < 0 || at+size <= off || at >= end {
			continue
		}
		from := max(at, off)
		part := p[from-off : min(at+size, end)-off]
		if err := t.read(i, from-at, part); err != nil {
			return 0, fmt.Errorf("file %q: %w", t.entries[i].Path, err)
		}
	}
	return len(p), nil
}

func (t *treeImage) read(i int, from int64, part []byte) error {
	if t.file == nil || t.index != i {
		t.close()
		file, err := t.volume.Open(t.entries[i].Path)
		if err != nil {
			return err
		}
		t.file, t.index, t.done = file, i, 0
	}
	if t.done != from {
		return fmt.Errorf("read at %d after %d", from, t.done)
	}
	if _, err := io.ReadFull(t.file, part); err != nil {
		return fmt.Errorf("shorter than its %d bytes: %w", t.entries[i].Size, err)
	}
	t.done += int64(len(part))
	if t.done < t.entries[i].Size {
		return nil
	}
	if n, _ := t.file.Read(make([]byte, 1)); n > 0 {
		return fmt.Errorf("longer than its %d bytes", t.entries[i].Size)
	}
	return nil
}

func (t *treeImage) close() {
	if t.file != nil {
		_ = t.file.Close()
		t.file = nil
	}
}
