// Package commit is the signed record of one backup, without which there is none,
// and the session that pins what a run stands on.
package commit

import (
	"fmt"
	"math"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/wire"
)

// Digest is the SHA-256 of a commit object.
type Digest [32]byte

// Link names another commit of the same virtual machine.
type Link struct {
	Sequence uint64
	Run      keys.ID
	Digest   Digest
}

// Subject is a virtual machine or a backup as its API object is called.
type Subject struct {
	Namespace, Name, UID string
}

// Kind of a volume.
type Kind uint8

// The kinds of volumes.
const (
	Block Kind = 1
	Tree  Kind = 2
)

// Volume is one volume in a record.
type Volume struct {
	Name, Role, Mode string
	Kind             Kind
	// Size in bytes. A tree volume is an image: its manifest, then its files.
	Size int64
	// Unit is the size of a unit in bytes: 16 KiB or 64 KiB.
	Unit int
	// LogicalBlock is the sector size of the device, 0 if it has none.
	LogicalBlock int
	// Manifest is the length of a tree volume's manifest.
	Manifest int64
	// Used counts bytes of units that are not all zero. Sent counts those stored
	// anew by this run. Unread counts bytes taken over from the parent because the
	// source said that they did not change, without being read.
	Used, Sent, Unread int64
	// LastRead is the sequence of the latest backup that read all of the volume.
	LastRead uint64
	// Root is the index tree; the zero Ref if all is zero.
	Root index.Ref
}

// TailPack is a pack that the pack table cannot list, since it holds that table.
type TailPack struct {
	Ordinal uint64
	index.Pack
}

// Extension is room for what later programs add. Tags from 0x8000 may be passed
// over by a program that does not know them, lower ones may not.
type Extension struct {
	Tag  uint16
	Data []byte
}

// TagChainUnknown, without data, says that Live lacks what came before a parent that
// could not be read: what it does not list was not removed for sure.
const TagChainUnknown = 0x8000

// ChainUnknown reports whether Live may lack commits that were not removed.
func (r *Record) ChainUnknown() bool {
	return slices.ContainsFunc(r.Extensions, func(e Extension) bool { return e.Tag == TagChainUnknown })
}

// Record is what a commit says, sealed and signed.
type Record struct {
	// Domain is the chain that ids and fingerprints are keyed for: the VM's own, or
	// that of a golden image it began from.
	Domain keys.ID
	VM     Subject
	Backup Subject
	// Created is the moment, in seconds since 1970.
	Created int64
	Owner   uint64
	// Parent is the backup before; Full says that no data was taken over from it.
	Parent *Link
	Full   bool
	// Live lists the earlier commits of the chain that were not removed, oldest
	// first, Parent last.
	Live       []Link
	Moment     []byte
	Recipients []string
	Volumes    []Volume
	Packs      index.TableRoot
	Keys       index.TableRoot
	Tail       []TailPack
	// Stored counts bytes that the run added to the store before this record.
	Stored     int64
	Extensions []Extension
}

// Limits of a record. With them it stays far below maxObject.
const (
	MaxMoment     = 256 << 10
	MaxVolumes    = 256
	MaxLive       = 1024
	maxText       = 1024
	maxRecipients = 64
	maxTail       = 64
	maxExtensions = 64
	maxObject     = 2 << 20
)

const recordVersion = 1

// Encode returns the bytes that are sealed.
func (r *Record) Encode() []byte {
	b := []byte{recordVersion}
	b = append(b, r.Domain[:]...)
	b = appendSubject(b, r.VM)
	b = appendSubject(b, r.Backup)
	b = wire.AppendInt(b, r.Created)
	b = wire.AppendUvarint(b, r.Owner)
	b = wire.AppendBool(b, r.Parent != nil)
	if r.Parent != nil {
		b = appendLink(b, *r.Parent)
	}
	b = wire.AppendBool(b, r.Full)
	b = appendList(b, r.Live, appendLink)
	b = wire.AppendBytes(b, r.Moment)
	b = appendList(b, r.Recipients, wire.AppendString)
	b = appendList(b, r.Volumes, appendVolume)
	b = appendTable(b, r.Packs)
	b = appendTable(b, r.Keys)
	b = appendList(b, r.Tail, func(b []byte, t TailPack) []byte {
		return index.AppendPack(wire.AppendUvarint(b, t.Ordinal), t.Pack)
	})
	b = wire.AppendInt(b, r.Stored)
	return appendList(b, r.Extensions, func(b []byte, e Extension) []byte {
		return wire.AppendBytes(append(b, byte(e.Tag>>8), byte(e.Tag)), e.Data)
	})
}

// DecodeRecord reads what Encode wrote.
func DecodeRecord(b []byte) (*Record, error) {
	d := wire.NewDecoder(b)
	if v := d.Byte(); d.Err() == nil && v != recordVersion {
		return nil, fmt.Errorf("%w: commit record has version %d", keys.ErrUnsupported, v)
	}
	r := &Record{}
	d.Copy(r.Domain[:])
	r.VM, r.Backup = takeSubject(d), takeSubject(d)
	r.Created = d.Int64()
	r.Owner = d.Uvarint(math.MaxUint64)
	if d.Bool() {
		l := takeLink(d)
		r.Parent = &l
	}
	r.Full = d.Bool()
	r.Live = takeList(d, MaxLive, takeLink)
	r.Moment = append([]byte(nil), d.Bytes(MaxMoment)...)
	r.Recipients = takeList(d, maxRecipients, func(d *wire.Decoder) string { return d.String(maxText) })
	r.Volumes = takeList(d, MaxVolumes, takeVolume)
	r.Packs, r.Keys = takeTable(d), takeTable(d)
	r.Tail = takeList(d, maxTail, func(d *wire.Decoder) TailPack {
		return TailPack{Ordinal: d.Uvarint(math.MaxInt64), Pack: index.TakePack(d)}
	})
	r.Stored = d.Int64()
	r.Extensions = takeList(d, maxExtensions, func(d *wire.Decoder) Extension {
		return Extension{Tag: d.Uint16(), Data: append([]byte(nil), d.Bytes(maxObject)...)}
	})
	if err := d.Close(); err != nil {
		return nil, fmt.Errorf("%w: commit record: %w", keys.ErrDamaged, err)
	}
	for _, e := range r.Extensions {
		if e.Tag < 0x8000 {
			return nil, fmt.Errorf("%w: commit record has extension %d", keys.ErrUnsupported, e.Tag)
		}
	}
	return r, nil
}

func appendList[E any](b []byte, list []E, add func([]byte, E) []byte) []byte {
	b = wire.AppendInt(b, len(list))
	for _, e := range list {
		b = add(b, e)
	}
	return b
}

func takeList[E any](d *wire.Decoder, limit int, take func(*wire.Decoder) E) []E {
	n := d.Int(limit)
	var list []E
	for range n {
		if d.Err() != nil {
			return nil
		}
		list = append(list, take(d))
	}
	return list
}

func appendSubject(b []byte, s Subject) []byte {
	return wire.AppendString(wire.AppendString(wire.AppendString(b, s.Namespace), s.Name), s.UID)
}

func takeSubject(d *wire.Decoder) Subject {
	return Subject{Namespace: d.String(maxText), Name: d.String(maxText), UID: d.String(maxText)}
}

func appendLink(b []byte, l Link) []byte {
	b = wire.AppendUvarint(b, l.Sequence)
	b = append(b, l.Run[:]...)
	return append(b, l.Digest[:]...)
}

func takeLink(d *wire.Decoder) Link {
	l := Link{Sequence: d.Uvarint(math.MaxUint64)}
	d.Copy(l.Run[:])
	d.Copy(l.Digest[:])
	return l
}

func appendTable(b []byte, t index.TableRoot) []byte {
	return index.AppendRef(wire.AppendUvarint(b, t.Next), t.Root)
}

func takeTable(d *wire.Decoder) index.TableRoot {
	return index.TableRoot{Next: d.Uvarint(1 << 40), Root: index.TakeRef(d)}
}

func appendVolume(b []byte, v Volume) []byte {
	b = wire.AppendString(b, v.Name)
	b = wire.AppendString(b, v.Role)
	b = wire.AppendString(b, v.Mode)
	b = append(b, byte(v.Kind))
	b = wire.AppendInt(b, v.Size)
	b = wire.AppendInt(b, v.Unit)
	b = wire.AppendInt(b, v.LogicalBlock)
	b = wire.AppendInt(b, v.Manifest)
	b = wire.AppendInt(b, v.Used)
	b = wire.AppendInt(b, v.Sent)
	b = wire.AppendInt(b, v.Unread)
	b = wire.AppendUvarint(b, v.LastRead)
	return index.AppendRef(b, v.Root)
}

func takeVolume(d *wire.Decoder) Volume {
	v := Volume{
		Name: d.String(maxText), Role: d.String(maxText), Mode: d.String(maxText),
		Kind: Kind(d.Byte()), Size: d.Int64(),
		Unit: d.Int(1 << 20), LogicalBlock: d.Int(1 << 20),
		Manifest: d.Int64(), Used: d.Int64(), Sent: d.Int64(), Unread: d.Int64(),
		LastRead: d.Uvarint(math.MaxUint64),
		Root:     index.TakeRef(d),
	}
	switch {
	case d.Err() != nil:
	case v.Kind != Block && v.Kind != Tree:
		d.Fail("volume kind %d", v.Kind)
	case v.Unit != SmallUnit && v.Unit != LargeUnit:
		d.Fail("unit of %d bytes", v.Unit)
	case v.Manifest > v.Size:
		d.Fail("manifest of %d bytes in a volume of %d", v.Manifest, v.Size)
	}
	return v
}

// The sizes of units. Which one a volume has is settled by its first backup.
const (
	SmallUnit = 16 << 10
	LargeUnit = 64 << 10
)
