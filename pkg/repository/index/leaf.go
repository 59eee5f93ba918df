package index

import (
	"fmt"

	"github.com/vmstate/vmstate/pkg/repository/frame"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/wire"
)

// LeafUnits is how many units a leaf covers: 1 MiB of disk with units of 16 KiB.
const LeafUnits = 64

// The first byte of a node's contents.
const (
	typeLeaf      byte = 1
	typeInner     byte = 2
	typePacks     byte = 3
	typeKeys      byte = 4
	typeDirectory byte = 5
)

// Frame is one frame as a leaf names it. Key is the attempt whose data key opens
// it, which differs from Pack.Origin once it was moved.
type Frame struct {
	Key        keys.Origin
	KeyOrdinal uint64
	Counter    uint64
	Pack       Location
	Raw        bool
	// Length of the contents in bytes.
	Length int
}

// Unit is one unit of a leaf; the zero Unit is all zeros. Slot counts units from
// the start of the frame's contents.
type Unit struct {
	Data            bool
	Fingerprint, ID Tag
	Frame, Slot     uint8
}

// Leaf is the index of up to LeafUnits units. Frames are in order of first use.
type Leaf struct {
	Units  []Unit
	Frames []Frame
}

// Empty reports whether every unit is zero, so that the leaf needs no node.
func (l *Leaf) Empty() bool {
	for i := range l.Units {
		if l.Units[i].Data {
			return false
		}
	}
	return true
}

// Encode returns the node's contents.
func (l *Leaf) Encode() []byte {
	var table origins
	body := wire.AppendInt(nil, len(l.Frames))
	for i := range l.Frames {
		f := &l.Frames[i]
		body = wire.AppendUvarint(body, table.index(f.Key))
		body = wire.AppendUvarint(body, f.KeyOrdinal)
		body = wire.AppendUvarint(body, f.Counter)
		body = table.appendLocation(body, f.Pack)
		body = wire.AppendBool(body, f.Raw)
		body = wire.AppendInt(body, f.Length)
	}
	out := make([]byte, 0, 32+len(table.list)*18+len(body)+len(l.Units)*34)
	out = append(out, typeLeaf, byte(len(l.Units)))
	out = append(out, l.bitmap()...)
	out = table.append(out)
	out = append(out, body...)
	for i := range l.Units {
		u := &l.Units[i]
		if !u.Data {
			continue
		}
		out = append(out, u.Fingerprint[:]...)
		out = append(out, u.ID[:]...)
		out = append(out, u.Frame, u.Slot)
	}
	return out
}

func (l *Leaf) bitmap() []byte {
	bits := make([]byte, LeafUnits/8)
	for i := range l.Units {
		if l.Units[i].Data {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return bits
}

// DecodeLeaf reads a leaf of a volume with units of unitBytes.
func DecodeLeaf(contents []byte, unitBytes int) (*Leaf, error) {
	d := wire.NewDecoder(contents)
	if d.Byte() != typeLeaf {
		d.Fail("not a leaf")
	}
	n := int(d.Byte())
	if n < 1 || n > LeafUnits {
		d.Fail("leaf of %d units", n)
		n = 0
	}
	bits := d.Fixed(LeafUnits / 8)
	table := decodeOrigins(d)
	l := &Leaf{Frames: make([]Frame, d.Int(LeafUnits))}
	for i := range l.Frames {
		l.Frames[i] = takeFrame(d, table)
	}
	table.close(d)
	if d.Err() == nil {
		l.Units = make([]Unit, n)
		l.takeUnits(d, bits, unitBytes)
	}
	if err := d.Close(); err != nil {
		return nil, fmt.Errorf("index leaf: %w", err)
	}
	return l, nil
}

func takeFrame(d *wire.Decoder, table *origins) Frame {
	f := Frame{
		Key:        table.take(d),
		KeyOrdinal: d.Uvarint(maxOrdinal),
		Counter:    d.Uvarint(1 << 62),
		Pack:       table.takeLocation(d),
		Raw:        d.Bool(),
		Length:     d.Int(frame.MaxPlain),
	}
	if d.Err() == nil && (f.Length == 0 || f.Pack.Length <= frame.Overhead || f.Pack.Length > frame.MaxSealed) {
		d.Fail("frame of %d bytes in %d", f.Length, f.Pack.Length)
	}
	return f
}

func (l *Leaf) takeUnits(d *wire.Decoder, bits []byte, unitBytes int) {
	seen := 0
	for i := range LeafUnits {
		if bits[i/8]&(1<<(i%8)) == 0 {
			continue
		}
		if i >= len(l.Units) {
			d.Fail("unit %d of %d", i, len(l.Units))
			return
		}
		u := &l.Units[i]
		u.Data = true
		d.Copy(u.Fingerprint[:])
		d.Copy(u.ID[:])
		u.Frame, u.Slot = d.Byte(), d.Byte()
		if d.Err() != nil {
			return
		}
		if int(u.Frame) > seen || int(u.Frame) >= len(l.Frames) {
			d.Fail("frame %d of %d is out of order", u.Frame, len(l.Frames))
			return
		}
		seen = max(seen, int(u.Frame)+1)
		if int(u.Slot)*unitBytes >= l.Frames[u.Frame].Length {
			d.Fail("slot %d is behind the end of its frame", u.Slot)
			return
		}
	}
	if seen != len(l.Frames) {
		d.Fail("%d frames are unused", len(l.Frames)-seen)
	}
}

// contentHash covers what the units hold, not where.
func (l *Leaf) contentHash(key [32]byte) Hash {
	ids := make([]byte, 0, 2+LeafUnits/8+LeafUnits*16)
	ids = append(ids, typeLeaf, byte(len(l.Units)))
	ids = append(ids, l.bitmap()...)
	for i := range l.Units {
		if l.Units[i].Data {
			ids = append(ids, l.Units[i].ID[:]...)
		}
	}
	return nodeHash(key, ids)
}
