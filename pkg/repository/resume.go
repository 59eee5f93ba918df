package repository

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
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
	// ordinals are the places that the packs taken over have.
	ordinals map[uint64]packName
	// keys are the data keys of the attempts, by attempt, if they recorded anything.
	keys map[uint16]recordedKey

	window     index.Location
	windowData []byte
}

// recordedKey is the data key of an attempt, as its directories tell.
type recordedKey struct {
	commitment [32]byte
	version    string
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

// recordedPack is an index pack of an earlier attempt, as its directory tells.
type recordedPack struct {
	dir  index.Directory
	pack pack.Numbered
}

// openResume reads the directories of the index packs of earlier attempts. Their
// names are probed, so nothing is listed. Attempts build on those before them, so
// from one that cannot be taken over all are left out.
func (b *Backup) openResume(ctx context.Context) error {
	r := &resume{
		objects: b.objects, nodes: b.nodes,
		volumes: map[int][]resumeLeaf{}, keys: map[uint16]recordedKey{}, ordinals: map[uint64]packName{},
	}
	b.resume = r
	// Fingerprints and node keys of another epoch say nothing in this one.
	sameEpoch := b.session.Epoch == b.epoch.Epoch
	serves, leaves := true, 0
	for n := uint16(1); sameEpoch && n < b.origin.Attempt; n++ {
		o := keys.Origin{Run: b.origin.Run, Attempt: n}
		recorded, damaged, err := b.readAttempt(ctx, o, maxResumeLeaves-leaves)
		if err != nil {
			return fmt.Errorf("continue attempt %d: %w", n, err)
		}
		if serves = serves && r.claim(recorded); serves {
			leaves += b.takeOver(recorded)
		}
		serves = serves && !damaged // what it had recorded behind that is not known
	}
	for v := range r.volumes {
		r.settle(v)
	}
	return nil
}

// readAttempt reads what an earlier attempt has recorded, up to some leaves more than
// limit. A damaged directory is as good as none: what it held is sent again.
func (b *Backup) readAttempt(ctx context.Context, o keys.Origin, limit int) (out []recordedPack, damaged bool, err error) {
	for number := uint32(0); limit > 0; number++ {
		dir, record, err := b.readDirectory(ctx, o, number)
		if errors.Is(err, ErrMissing) || errors.Is(err, ErrDamaged) {
			return out, errors.Is(err, ErrDamaged), nil
		}
		if err != nil {
			return nil, false, err
		}
		b.ordinals = max(b.ordinals, dir.NextOrdinal)
		if dir.Full != (b.parent == nil) {
			return out, false, nil
		}
		limit -= len(dir.Leaves)
		out = append(out, recordedPack{dir, record})
	}
	return out, false, nil
}

// claim takes the ordinals of an attempt's packs. It refuses if an attempt before it
// has one of them for another pack: that one was still at work when this one began.
func (r *resume) claim(recorded []recordedPack) bool {
	mine := map[uint64]packName{}
	free := func(ordinal uint64, p *index.Pack) bool {
		name := packNameOf(p)
		for _, taken := range []map[uint64]packName{r.ordinals, mine} {
			if have, ok := taken[ordinal]; ok && have != name {
				return false
			}
		}
		mine[ordinal] = name
		return true
	}
	for i := range recorded {
		if !free(recorded[i].pack.Ordinal, &recorded[i].pack.Pack) {
			return false
		}
		for j := range recorded[i].dir.Packs {
			if p := &recorded[i].dir.Packs[j]; !free(p.Ordinal, &p.Pack) {
				return false
			}
		}
	}
	maps.Copy(r.ordinals, mine)
	return true
}

// takeOver makes an attempt's packs and leaves this run's, and counts the leaves.
func (b *Backup) takeOver(recorded []recordedPack) (leaves int) {
	for i := range recorded {
		dir, record := &recorded[i].dir, recorded[i].pack
		leaves += len(dir.Leaves)
		b.resume.add(dir, record)
		b.resume.keys[record.Origin.Attempt] = recordedKey{dir.Commitment, dir.KeyVersion}
		for _, p := range dir.Packs {
			if p.Kind == index.DataPack { // index packs come with their own directory
				b.stored.add(pack.Numbered{Ordinal: p.Ordinal, Pack: p.Pack})
			}
		}
		b.stored.add(record) // its leaves are booked as they are used
		b.stored.list()      // they are in a directory
	}
	return leaves
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

func (r *resume) add(dir *index.Directory, record pack.Numbered) {
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
