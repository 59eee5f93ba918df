package pack

import (
	"sync"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/frame"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// Numbered is a pack with its place in the pack table.
type Numbered struct {
	Ordinal uint64
	index.Pack
}

// Attempt is what all packs of one attempt have in common.
type Attempt struct {
	VM     keys.ID
	Origin keys.Origin
	Tagger *Tagger
	// Ordinals gives the next free place in the pack table.
	Ordinals *uint64
}

func (a *Attempt) ordinal() uint64 {
	o := *a.Ordinals
	*a.Ordinals++
	return o
}

// Data fills packs of frames. It is used from one goroutine.
type Data struct {
	attempt *Attempt
	up      *Uploader
	target  int
	buffers chan []byte

	body    []byte
	number  uint32
	ordinal uint64
	total   int64
	open    bool

	mu   sync.Mutex
	done []Numbered
}

// NewData makes packs that are stored when they reach target bytes. Besides the
// pack being filled, buffers-1 may be on their way to the store.
func NewData(a *Attempt, u *Uploader, target, buffers int) *Data {
	d := &Data{attempt: a, up: u, target: target, buffers: make(chan []byte, buffers)}
	for range buffers {
		d.buffers <- nil // made when first needed
	}
	return d
}

// Full reports whether the open pack has reached its target, so that Close is due.
func (d *Data) Full() bool { return d.open && len(d.body) >= d.target }

// Add puts a frame with that much content into the open pack. It waits for a
// buffer if all are on their way to the store.
func (d *Data) Add(sealed []byte, content int) index.Location {
	if !d.open {
		d.body = (<-d.buffers)[:0]
		if d.body == nil {
			d.body = make([]byte, 0, d.target+frame.MaxSealed)
		}
		d.open, d.ordinal = true, d.attempt.ordinal()
	}
	at := index.Location{
		Origin: d.attempt.Origin, Number: d.number, Ordinal: d.ordinal,
		Offset: int64(len(d.body)), Length: int64(len(sealed)),
	}
	d.body = append(d.body, sealed...)
	d.total += int64(content)
	return at
}

// Close sends the open pack to the store, if there is one.
func (d *Data) Close() error {
	if !d.open {
		return nil
	}
	body := d.body
	a := d.attempt
	record := Numbered{Ordinal: d.ordinal, Pack: index.Pack{
		Kind: index.DataPack, Origin: a.Origin, Number: d.number, Size: int64(len(body)), Total: d.total,
		Tag: a.Tagger.Tag(index.DataPack, a.Origin, d.number, body),
	}}
	key := layout.DataPack(a.VM, a.Origin, d.number)
	d.body, d.open, d.total = nil, false, 0
	d.number++
	return d.up.Put(key, body, func(info objectstore.Info) {
		record.CRC32C, record.VersionID = info.CRC32C, info.VersionID
		d.mu.Lock()
		d.done = append(d.done, record)
		d.mu.Unlock()
	}, func() { d.buffers <- body })
}

// Take returns the records of the packs stored since the last call. After a Wait
// of the uploader these are all that were closed.
func (d *Data) Take() []Numbered {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.done
	d.done = nil
	return out
}
