package index

import (
	"math"

	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/wire"
)

// Location is a range of a pack. Ordinal is the pack's place in the pack table of
// every backup that reaches it; 0 for the packs that the commit itself lists.
type Location struct {
	Origin  keys.Origin
	Number  uint32
	Ordinal uint64
	Offset  int64
	Length  int64
}

// End is the offset behind the range.
func (l Location) End() int64 { return l.Offset + l.Length }

// Ref names one node, and says where it is. The zero Ref is an all-zero part.
type Ref struct {
	Content, Sealed Hash
	Location
}

// Zero reports whether r names no node.
func (r Ref) Zero() bool { return r == Ref{} }

const (
	maxOrigins = 320
	// maxOffset bounds offsets and lengths in packs, far above any pack.
	maxOffset = math.MaxInt32
	// maxOrdinal bounds table positions: four levels of 256 above a table leaf.
	maxOrdinal = 1 << 40
)

// origins is the table of origins at the head of a node: most nodes have one.
type origins struct {
	list []keys.Origin
	seen int
}

func (o *origins) index(origin keys.Origin) uint64 {
	for i, have := range o.list {
		if have == origin {
			return uint64(i)
		}
	}
	o.list = append(o.list, origin)
	return uint64(len(o.list) - 1)
}

func (o *origins) append(b []byte) []byte {
	b = wire.AppendInt(b, len(o.list))
	for _, origin := range o.list {
		b = append(b, origin.Run[:]...)
		b = append(b, byte(origin.Attempt>>8), byte(origin.Attempt))
	}
	return b
}

func decodeOrigins(d *wire.Decoder) *origins {
	o := &origins{list: make([]keys.Origin, d.Int(maxOrigins))}
	for i := range o.list {
		d.Copy(o.list[i].Run[:])
		o.list[i].Attempt = d.Uint16()
	}
	return o
}

// take reads an index into the table, whose members must come in order of first use.
func (o *origins) take(d *wire.Decoder) keys.Origin {
	i := d.Int(maxOrigins)
	if d.Err() != nil {
		return keys.Origin{}
	}
	if i > o.seen || i >= len(o.list) {
		d.Fail("origin %d of %d is out of order", i, len(o.list))
		return keys.Origin{}
	}
	o.seen = max(o.seen, i+1)
	return o.list[i]
}

func (o *origins) close(d *wire.Decoder) {
	if d.Err() == nil && o.seen != len(o.list) {
		d.Fail("%d of %d origins are unused", len(o.list)-o.seen, len(o.list))
	}
}

func (o *origins) appendLocation(b []byte, l Location) []byte {
	b = wire.AppendUvarint(b, o.index(l.Origin))
	b = wire.AppendUvarint(b, uint64(l.Number))
	b = wire.AppendUvarint(b, l.Ordinal)
	b = wire.AppendInt(b, l.Offset)
	return wire.AppendInt(b, l.Length)
}

func (o *origins) takeLocation(d *wire.Decoder) Location {
	return Location{
		Origin:  o.take(d),
		Number:  uint32(d.Uvarint(math.MaxUint32)),
		Ordinal: d.Uvarint(maxOrdinal),
		Offset:  int64(d.Uvarint(maxOffset)),
		Length:  int64(d.Uvarint(maxOffset)),
	}
}

// AppendRef encodes one Ref outside a node: its origin is spelled out.
func AppendRef(b []byte, r Ref) []byte {
	b = wire.AppendBool(b, !r.Zero())
	if r.Zero() {
		return b
	}
	b = append(b, r.Content[:]...)
	b = append(b, r.Sealed[:]...)
	b = append(b, r.Origin.Run[:]...)
	b = append(b, byte(r.Origin.Attempt>>8), byte(r.Origin.Attempt))
	b = wire.AppendUvarint(b, uint64(r.Number))
	b = wire.AppendUvarint(b, r.Ordinal)
	b = wire.AppendInt(b, r.Offset)
	return wire.AppendInt(b, r.Length)
}

// TakeRef reads what AppendRef wrote.
func TakeRef(d *wire.Decoder) Ref {
	var r Ref
	if !d.Bool() {
		return r
	}
	d.Copy(r.Content[:])
	d.Copy(r.Sealed[:])
	d.Copy(r.Origin.Run[:])
	r.Origin.Attempt = d.Uint16()
	r.Number = uint32(d.Uvarint(math.MaxUint32))
	r.Ordinal = d.Uvarint(maxOrdinal)
	r.Offset = int64(d.Uvarint(maxOffset))
	r.Length = int64(d.Uvarint(maxOffset))
	if d.Err() == nil && (r.Length == 0 || r.Length > MaxNode) {
		d.Fail("node of %d bytes", r.Length)
	}
	return r
}
