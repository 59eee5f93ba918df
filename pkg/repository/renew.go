package repository

import (
	"context"
	"fmt"

	"github.com/vmstate/vmstate/pkg/repository/index"
)

// renewal names the packs whose contents are sent again, by ordinal. Scattered change
// leaves packs behind of which a chain reaches little: nothing can be taken out of them
// without the data keys, which nobody here has, so the next backup sends what it needs of
// them from the disk, and when the backups before it go, the packs go whole.
type renewal map[uint64]bool

// thin reports whether less than half of a data pack is reached.
func thin(p *index.Pack) bool { return p.Kind == index.DataPack && p.Live < p.Total-p.Live }

// openRenewal reads the parent's pack table, once, before the first volume. Of what cannot
// be read of it nothing is renewed; others see to that.
func (b *Backup) openRenewal(ctx context.Context) error {
	if b.renew != nil || b.parent == nil {
		return nil
	}
	b.renew = renewal{}
	err := b.parentPacks(ctx, func(p index.Numbered[index.Pack]) {
		if thin(&p.Entry) {
			b.renew[p.Ordinal] = true
		}
	}, func(Extent) {})
	if err != nil {
		return fmt.Errorf("read parent: %w", err)
	}
	return nil
}

// kept reports whether a unit of the base can be taken over.
func (r renewal) kept(base *index.Leaf, u *index.Unit) bool {
	return len(r) == 0 || !r[base.Frames[u.Frame].Pack.Ordinal]
}
