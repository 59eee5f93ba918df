package repository

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/pack"
	"github.com/vmstate/vmstate/pkg/repository/wire"
)

// maxStored bounds the records of stored packs that are in memory, in bytes: those of 8 TiB
// in packs of 32 MiB where objects have version ids, of more where they have none.
const maxStored = 24 << 20

// stored are the packs that a run has stored, those of attempts that it continues included.
// All of them are in the directories of index packs as well, so when there are too many,
// the first are left there, and are read again when the tables are written.
type stored struct {
	parts   []storedPart
	pending []pack.Numbered // in no directory yet
	limit   int             // of bytes of records in memory
	held    int             // of these
	bytes   int64           // of all the packs
}

// storedPart is what one directory tells of packs.
type storedPart struct {
	first, last uint64 // ordinals
	records     []byte // nil if they are in the store alone
	directory   index.Location
}

func (s *stored) add(list ...pack.Numbered) {
	for i := range list {
		s.bytes += list[i].Size
	}
	s.pending = append(s.pending, list...)
}

// list makes a part of what is pending, and returns it for a directory.
func (s *stored) list() (out []index.DirectoryPack) {
	part := storedPart{first: math.MaxUint64, records: []byte{}}
	for _, p := range s.pending {
		entry := index.DirectoryPack{Ordinal: p.Ordinal, Pack: p.Pack}
		out = append(out, entry)
		part.first, part.last = min(part.first, p.Ordinal), max(part.last, p.Ordinal)
		part.records = entry.Append(part.records)
	}
	part.records = slices.Clip(part.records)
	s.pending = nil
	s.held += len(part.records)
	s.parts = append(s.parts, part)
	return out
}

// listedAt says where the directory is that has what list has returned last.
func (s *stored) listedAt(at index.Location) {
	s.parts[len(s.parts)-1].directory = at
	for i := 0; s.held > s.limit && i < len(s.parts); i++ {
		if p := &s.parts[i]; p.directory.Length > 0 {
			s.held -= len(p.records)
			p.records = nil
		}
	}
}

// storedReader reads the packs of a run in the order of their ordinals, or nearly.
type storedReader struct {
	objects objects
	nodes   *index.Nodes
	parts   []storedPart
	window  []index.DirectoryPack
}

// reader is for when all that is stored is in a part.
func (s *stored) reader(o objects, n *index.Nodes) *storedReader {
	parts := slices.Clone(s.parts)
	slices.SortStableFunc(parts, func(a, b storedPart) int { return cmp.Compare(a.first, b.first) })
	return &storedReader{objects: o, nodes: n, parts: parts}
}

// between calls do for the packs at the ordinals [from, to). Ranges are asked for in order.
func (r *storedReader) between(ctx context.Context, from, to uint64, do func(index.Numbered[index.Pack]) error) error {
	for ; len(r.parts) > 0 && r.parts[0].first < to; r.parts = r.parts[1:] {
		if r.parts[0].last < from {
			continue
		}
		list, err := r.read(ctx, &r.parts[0])
		if err != nil {
			return err
		}
		r.window = append(r.window, list...)
	}
	later := r.window[:0]
	for _, p := range r.window {
		switch {
		case p.Ordinal >= to:
			later = append(later, p)
		case p.Ordinal >= from:
			if err := do(index.Numbered[index.Pack]{Ordinal: p.Ordinal, Entry: p.Pack}); err != nil {
				return err
			}
		}
	}
	r.window = later
	return nil
}

func (r *storedReader) read(ctx context.Context, p *storedPart) ([]index.DirectoryPack, error) {
	if p.records != nil {
		var list []index.DirectoryPack
		d := wire.NewDecoder(p.records)
		for d.Left() {
			list = append(list, index.TakeDirectoryPack(d))
		}
		return list, d.Err()
	}
	sealed, err := r.objects.Fetch(ctx, p.directory)
	if err != nil {
		return nil, err
	}
	contents, err := r.nodes.Open(p.directory, sealed)
	if err != nil {
		return nil, err
	}
	dir, err := index.DecodeDirectory(contents)
	return dir.Packs, err
}
