package commit

import (
	"math"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/wire"
)

// Way is how a volume was read.
type Way uint8

// The ways.
const (
	WayAll       Way = 0
	WayChanged   Way = 1
	WayAllocated Way = 2
	WayAudited   Way = 3
)

// Reading is how one volume of a record was read.
type Reading struct {
	// Volume counts the volumes of the record from 0.
	Volume int
	Way    Way
	// Untold bytes were found to have changed though the storage told of no change; the
	// first is at UntoldAt.
	Untold, UntoldAt int64
	// Why less could not be read.
	Why string
	// FullyAt is when the latest backup was taken that read all of the volume, in seconds since 1970; 0 if
	// that is not known, or is this one.
	FullyAt int64
}

// plain says that there is nothing to record.
func (r *Reading) plain() bool { return r.Way == WayAll && r.Why == "" }

// TagReadings tells how volumes were read: a list of Readings, in the order of their
// volumes. A volume that is not in it was read in full, but for holes.
const TagReadings = 0x8010

// TagFully tells of volumes that this backup did not read in full when they last were: a list of volume
// and FullyAt, in the order of the volumes.
const TagFully = 0x8011

// EncodeFully returns the extension for what is known of it; false if none is needed.
func EncodeFully(readings []Reading) (Extension, bool) {
	list := slices.DeleteFunc(slices.Clone(readings), func(r Reading) bool { return r.FullyAt == 0 })
	b := appendList(nil, list, func(b []byte, r Reading) []byte {
		return wire.AppendInt(wire.AppendInt(b, r.Volume), r.FullyAt)
	})
	return Extension{Tag: TagFully, Data: b}, len(list) > 0
}

// EncodeReadings returns the extension for the readings; false if none is needed.
func EncodeReadings(readings []Reading) (Extension, bool) {
	list := slices.DeleteFunc(slices.Clone(readings), func(r Reading) bool { return r.plain() })
	b := appendList(nil, list, func(b []byte, r Reading) []byte {
		b = append(wire.AppendInt(b, r.Volume), byte(r.Way))
		b = wire.AppendInt(wire.AppendInt(b, r.Untold), r.UntoldAt)
		return wire.AppendString(b, r.Why)
	})
	return Extension{Tag: TagReadings, Data: b}, len(list) > 0
}

// Readings returns one for each volume. An extension that cannot be understood says
// nothing: no data depends on it.
func (r *Record) Readings() []Reading {
	out := make([]Reading, len(r.Volumes))
	for i := range out {
		out[i].Volume = i
	}
	told := r.extension(TagReadings, func(d *wire.Decoder) Reading {
		r := Reading{Volume: d.Int(math.MaxInt32), Way: Way(d.Byte()), Untold: d.Int64(), UntoldAt: d.Int64(), Why: d.String(maxText)}
		if r.Way > WayAudited {
			d.Fail("way %d", r.Way)
		}
		return r
	})
	for _, reading := range told {
		if reading.Volume < len(out) {
			out[reading.Volume] = reading
		}
	}
	fully := r.extension(TagFully, func(d *wire.Decoder) Reading {
		return Reading{Volume: d.Int(math.MaxInt32), FullyAt: d.Int64()}
	})
	for _, reading := range fully {
		if reading.Volume < len(out) {
			out[reading.Volume].FullyAt = reading.FullyAt
		}
	}
	return out
}

// extension is what the extension of a tag lists; nil if there is none, or it cannot be understood.
func (r *Record) extension(tag uint16, take func(*wire.Decoder) Reading) []Reading {
	at := slices.IndexFunc(r.Extensions, func(e Extension) bool { return e.Tag == tag })
	if at < 0 {
		return nil
	}
	d := wire.NewDecoder(r.Extensions[at].Data)
	list := takeList(d, MaxVolumes, take)
	if d.Close() != nil {
		return nil
	}
	return list
}
