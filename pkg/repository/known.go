package repository

import (
	"encoding/binary"
	"math/bits"

	"github.com/vmstate/vmstate/pkg/repository/index"
)

// known finds units that this attempt has stored already. It has a fixed size and
// one place for each id, where the newer one wins: it misses some, and is never
// wrong, since whole ids are compared.
type known struct {
	entries []knownUnit
	mask    uint64
}

type knownUnit struct {
	id      index.Tag
	counter uint64 // of the frame, plus one; 0 is an empty place
	slot    uint8
	unit    uint32 // that slots count in
}

// maxKnown bounds the table: 8 MiB.
const maxKnown = 1 << 18

// grow makes room for a volume with that many units.
func (k *known) grow(units uint64) {
	want := uint64(1) << bits.Len64(min(max(units, 1<<10), maxKnown)-1)
	if uint64(len(k.entries)) >= want {
		return
	}
	old := k.entries
	k.entries, k.mask = make([]knownUnit, want), want-1
	for i := range old {
		if old[i].counter > 0 {
			*k.place(old[i].id) = old[i]
		}
	}
}

func (k *known) place(id index.Tag) *knownUnit {
	return &k.entries[binary.LittleEndian.Uint64(id[:8])&k.mask]
}

func (k *known) find(id index.Tag) (knownUnit, bool) {
	u := k.place(id)
	return *u, u.counter > 0 && u.id == id
}

func (k *known) add(u knownUnit) { *k.place(u.id) = u }
