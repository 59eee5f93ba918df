package index

import (
	"context"
	"fmt"
	"math"

	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/wire"
)

// PackKind tells what a pack holds.
type PackKind uint8

// The kinds of packs.
const (
	DataPack  PackKind = 0
	IndexPack PackKind = 1
)

// Pack is one object of frames or nodes.
type Pack struct {
	Kind   PackKind
	Origin keys.Origin
	Number uint32
	// Size, CRC32C and VersionID are what the store confirmed.
	Size      int64
	CRC32C    uint32
	VersionID string
	// Tag is keyed, over the whole object: it proves a pack without opening it.
	Tag Tag
	// Total counts contents when written: bytes of units before compression, or
	// sealed bytes of nodes. Live counts those that this backup reaches.
	Total, Live int64
}

// DataKey is one attempt whose data key a backup needs. Sequence is of its commit.
type DataKey struct {
	Origin keys.Origin
	// Commitment proves a data key; any age file that opens to it will do.
	Commitment [32]byte
	Sequence   uint64
	// VersionID of the age file, empty if it is not known.
	VersionID string
	// Live counts bytes of units that this backup reaches under this key.
	Live int64
}

const (
	packsALeaf = 256
	keysALeaf  = 64
	// maxVersionID is the length that S3 allows for one.
	maxVersionID = 1024
)

// AppendPack encodes a pack outside a table.
func AppendPack(b []byte, p Pack) []byte {
	b = append(b, byte(p.Kind))
	b = append(b, p.Origin.Run[:]...)
	b = append(b, byte(p.Origin.Attempt>>8), byte(p.Origin.Attempt))
	b = wire.AppendUvarint(b, uint64(p.Number))
	b = wire.AppendInt(b, p.Size)
	b = append(b, byte(p.CRC32C>>24), byte(p.CRC32C>>16), byte(p.CRC32C>>8), byte(p.CRC32C))
	b = wire.AppendString(b, p.VersionID)
	b = append(b, p.Tag[:]...)
	b = wire.AppendInt(b, p.Total)
	return wire.AppendInt(b, p.Live)
}

// TakePack reads what AppendPack wrote.
func TakePack(d *wire.Decoder) Pack {
	p := Pack{Kind: PackKind(d.Byte())}
	if p.Kind > IndexPack {
		d.Fail("pack kind %d", p.Kind)
	}
	d.Copy(p.Origin.Run[:])
	p.Origin.Attempt = d.Uint16()
	p.Number = uint32(d.Uvarint(math.MaxUint32))
	p.Size = int64(d.Uvarint(maxOffset))
	p.CRC32C = d.Uint32()
	p.VersionID = d.String(maxVersionID)
	d.Copy(p.Tag[:])
	p.Total, p.Live = d.Int64(), d.Int64()
	return p
}

func appendDataKey(b []byte, k DataKey) []byte {
	b = append(b, k.Origin.Run[:]...)
	b = append(b, byte(k.Origin.Attempt>>8), byte(k.Origin.Attempt))
	b = append(b, k.Commitment[:]...)
	b = wire.AppendUvarint(b, k.Sequence)
	b = wire.AppendString(b, k.VersionID)
	return wire.AppendInt(b, k.Live)
}

func takeDataKey(d *wire.Decoder) DataKey {
	var k DataKey
	d.Copy(k.Origin.Run[:])
	k.Origin.Attempt = d.Uint16()
	d.Copy(k.Commitment[:])
	k.Sequence = d.Uvarint(math.MaxUint64)
	k.VersionID = d.String(maxVersionID)
	k.Live = d.Int64()
	return k
}

// entryKind says how the leaves of one table are written.
type entryKind[E any] struct {
	first    byte
	capacity uint64
	add      func([]byte, E) []byte
	take     func(*wire.Decoder) E
	live     func(*E) *int64
	same     func(a, b *E) bool // whether they are of one object
}

func packKind() entryKind[Pack] {
	return entryKind[Pack]{
		typePacks, packsALeaf, AppendPack, TakePack,
		func(p *Pack) *int64 { return &p.Live },
		func(a, b *Pack) bool { return a.Kind == b.Kind && a.Origin == b.Origin && a.Number == b.Number },
	}
}

func keyKind() entryKind[DataKey] {
	return entryKind[DataKey]{
		typeKeys, keysALeaf, appendDataKey, takeDataKey,
		func(k *DataKey) *int64 { return &k.Live },
		func(a, b *DataKey) bool { return a.Origin == b.Origin },
	}
}

func (k entryKind[E]) encode(entries map[uint64]E) []byte {
	if len(entries) == 0 {
		return nil
	}
	bits := make([]byte, k.capacity/8)
	var body []byte
	for slot := range k.capacity {
		if e, ok := entries[slot]; ok {
			bits[slot/8] |= 1 << (slot % 8)
			body = k.add(body, e)
		}
	}
	return append(append([]byte{k.first}, bits...), body...)
}

func (k entryKind[E]) decode(contents []byte) (map[uint64]E, error) {
	entries := map[uint64]E{}
	if contents == nil {
		return entries, nil
	}
	d := wire.NewDecoder(contents)
	if d.Byte() != k.first {
		d.Fail("not a table leaf of this kind")
	}
	bits := d.Fixed(int(k.capacity / 8))
	for slot := range k.capacity {
		if d.Err() == nil && bits[slot/8]&(1<<(slot%8)) != 0 {
			entries[slot] = k.take(d)
		}
	}
	if d.Err() == nil && len(entries) == 0 {
		d.Fail("empty leaf")
	}
	if err := d.Close(); err != nil {
		return nil, fmt.Errorf("table leaf: %w", err)
	}
	return entries, nil
}

// Entries is a Table with its entries decoded: of packs, or of data keys.
type Entries[E any] struct {
	*Table
	kind   entryKind[E]
	loaded map[uint64]map[uint64]E // leaves that Get has read
}

// OpenPacks reads the inner nodes of a pack table.
func OpenPacks(ctx context.Context, n *Nodes, f Fetcher, r TableRoot) (*Entries[Pack], error) {
	return openEntries(ctx, n, f, r, packKind())
}

// OpenKeys reads the inner nodes of a key table.
func OpenKeys(ctx context.Context, n *Nodes, f Fetcher, r TableRoot) (*Entries[DataKey], error) {
	return openEntries(ctx, n, f, r, keyKind())
}

func openEntries[E any](ctx context.Context, n *Nodes, f Fetcher, r TableRoot, k entryKind[E]) (*Entries[E], error) {
	t, err := openTable(ctx, n, f, r, k.capacity)
	if err != nil {
		return nil, err
	}
	return &Entries[E]{Table: t, kind: k, loaded: map[uint64]map[uint64]E{}}, nil
}

func (e *Entries[E]) leaf(ctx context.Context, n uint64) (map[uint64]E, error) {
	contents, err := e.read(ctx, n)
	if err != nil {
		return nil, err
	}
	l, err := e.kind.decode(contents)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return l, nil
}

// maxLoaded bounds the leaves that Get keeps: 4 MiB of packs. When there are as many, it
// begins anew.
const maxLoaded = 64

// Get returns the entry at an ordinal.
func (e *Entries[E]) Get(ctx context.Context, ordinal uint64) (E, bool, error) {
	n := e.leafOf(ordinal)
	l, ok := e.loaded[n]
	if !ok {
		var err error
		if l, err = e.leaf(ctx, n); err != nil {
			var none E
			return none, false, err
		}
		if len(e.loaded) == maxLoaded {
			clear(e.loaded)
		}
		e.loaded[n] = l
	}
	found, ok := l[ordinal%e.capacity]
	return found, ok, nil
}

// All calls do for every entry, in the order of ordinals. It keeps nothing.
func (e *Entries[E]) All(ctx context.Context, do func(ordinal uint64, entry E) error) error {
	for _, n := range e.Leaves() {
		l, err := e.leaf(ctx, n)
		if err != nil {
			return err
		}
		for slot := range e.capacity {
			entry, ok := l[slot]
			if !ok {
				continue
			}
			if err := do(n*e.capacity+slot, entry); err != nil {
				return err
			}
		}
	}
	return nil
}
