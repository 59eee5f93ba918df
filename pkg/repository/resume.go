package repository

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
	"github.com/vmstate/vmstate/pkg/repository/pack"
)

const (
	// maxResumeLeaves bounds what is remembered of earlier attempts, to 20 MiB. What
	// is beyond it is sent again.
	maxResumeLeaves = 1 << 18
	// maxIndexPack bounds the size of an index pack that is read whole.
	maxIndexPack = 64 << 20
	// resumeRead is how much of an index pack is read at once.
	resumeRead = 1 << 20
)

// resume knows the leaves that earlier attempts of this run have recorded. They
// serve like a parent's: a unit with the same fingerprint is not sent again.
type resume struct {
	objects objects
	nodes   *index.Nodes
	volumes map[int][]resumeLeaf
	packs   []resumePack
	// commitments of earlier attempts, by attempt, if they recorded anything.
	commitments map[uint16][32]byte

	window     index.Location
	windowData []byte
}

type resumePack struct {
	at   index.Location
	size int64
}

type resumeLeaf struct {
	leaf           uint64
	content        index.Hash
	pack           int
	offset, length int64
}

// openResume reads the directories of the index packs of earlier attempts. Their
// names are probed, so nothing is listed.
func (b *Backup) openResume(ctx context.Context) error {
	r := &resume{
		objects: b.objects, nodes: b.nodes,
		volumes: map[int][]resumeLeaf{}, commitments: map[uint16][32]byte{},
	}
	b.resume = r
	leaves := 0
	for n := uint16(1); n < b.origin.Attempt; n++ {
		o := keys.Origin{Run: b.origin.Run, Attempt: n}
		for number := uint32(0); leaves < maxResumeLeaves; number++ {
			dir, record, err := b.readDirectory(ctx, o, number)
			if errors.Is(err, ErrMissing) || errors.Is(err, ErrDamaged) {
				break // a damaged one is as good as none: what it held is sent again
			}
			if err != nil {
				return fmt.Errorf("continue attempt %d: %w", n, err)
			}
			b.ordinals = max(b.ordinals, dir.NextOrdinal)
			if dir.Full != (b.parent == nil) {
				break
			}
			leaves += len(dir.Leaves)
			r.add(dir, record)
			r.commitments[n] = dir.Commitment
			for _, p := range dir.Packs {
				if p.Kind == index.DataPack { // index packs come with their own directory
					b.packs = append(b.packs, pack.Numbered{Ordinal: p.Ordinal, Pack: p.Pack})
				}
			}
			record.Live = 0 // its leaves are booked as they are used
			b.packs = append(b.packs, record)
		}
	}
	for v := range r.volumes {
		r.settle(v)
	}
	return nil
}

func (b *Backup) readDirectory(ctx context.Context, o keys.Origin, number uint32) (index.Directory, pack.Numbered, error) {
	var none index.Directory
	key := layout.IndexPack(b.vm, o, number)
	body, err := objectstore.Get(ctx, b.repo.store, key, maxIndexPack)
	if err != nil {
		return none, pack.Numbered{}, readError(err)
	}
	dir, err := pack.OpenDirectory(b.nodes, index.Location{Origin: o, Number: number}, body)
	if err != nil {
		return none, pack.Numbered{}, err
	}
	info, err := b.repo.store.Stat(ctx, key)
	if err != nil {
		return none, pack.Numbered{}, readError(err)
	}
	var nodes int64
	for _, l := range dir.Leaves {
		nodes += l.Length
	}
	return dir, pack.Numbered{Ordinal: dir.Ordinal, Pack: index.Pack{
		Kind: index.IndexPack, Origin: o, Number: number,
		Size: int64(len(body)), CRC32C: objectstore.Checksum(body), VersionID: info.VersionID,
		Tag:   pack.NewTagger(b.epoch.Set, b.vm).Tag(index.IndexPack, o, number, body),
		Total: nodes,
	}}, nil
}

func (r *resume) add(dir index.Directory, record pack.Numbered) {
	at := index.Location{Origin: record.Origin, Number: record.Number, Ordinal: record.Ordinal}
	r.packs = append(r.packs, resumePack{at: at, size: record.Size})
	for _, l := range dir.Leaves {
		r.volumes[l.Volume] = append(r.volumes[l.Volume], resumeLeaf{
			leaf: l.Leaf, content: l.Content, pack: len(r.packs) - 1, offset: l.Offset, length: l.Length,
		})
	}
}

// settle sorts the leaves of a volume and keeps the newest of each.
func (r *resume) settle(volume int) {
	list := r.volumes[volume]
	slices.Reverse(list) // attempts were added oldest first, and sorting is stable
	slices.SortStableFunc(list, func(a, b resumeLeaf) int { return cmp.Compare(a.leaf, b.leaf) })
	r.volumes[volume] = slices.CompactFunc(list, func(a, b resumeLeaf) bool { return a.leaf == b.leaf })
}

// find returns the recorded leaf, nil if there is none. Leaves are asked for in order.
func (r *resume) find(ctx context.Context, volume int, leaf uint64, unitBytes int) (*index.Leaf, index.Ref, error) {
	list := r.volumes[volume]
	for len(list) > 0 && list[0].leaf < leaf {
		list = list[1:]
	}
	r.volumes[volume] = list
	if len(list) == 0 || list[0].leaf != leaf {
		return nil, index.Ref{}, nil
	}
	l := list[0]
	at := r.packs[l.pack].at
	at.Offset, at.Length = l.offset, l.length
	sealed, err := r.read(ctx, at, r.packs[l.pack].size)
	if err != nil {
		return nil, index.Ref{}, err
	}
	ref := index.Ref{Content: l.content, Sealed: sha256.Sum256(sealed), Location: at}
	found, err := r.nodes.OpenLeaf(ref, sealed, unitBytes)
	return found, ref, err
}

func (r *resume) read(ctx context.Context, at index.Location, size int64) ([]byte, error) {
	w := &r.window
	if r.windowData == nil || w.Origin != at.Origin || w.Number != at.Number || at.Offset < w.Offset || at.End() > w.End() {
		*w = at
		w.Length = min(max(resumeRead, at.Length), size-at.Offset)
		data, err := r.objects.Fetch(ctx, *w)
		if err != nil {
			return nil, err
		}
		r.windowData = data
	}
	return r.windowData[at.Offset-w.Offset : at.End()-w.Offset], nil
}
