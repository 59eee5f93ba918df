package repository

import "github.com/vmstate/vmstate/pkg/repository/index"

// accounts gather how many bytes of each pack and of each data key this backup
// reaches more, or less, than its parent. They are by ordinal, so their size is that
// of the tables and not of the disk: 8 bytes a pack.
type accounts struct {
	packs, keys *index.Ledger
}

func newAccounts() accounts {
	return accounts{packs: index.NewLedger(), keys: index.NewLedger()}
}

// units books what the units of a leaf reach, n = 1, or reach no more, n = -1. The
// tail of a volume counts as a whole unit.
func (a accounts) units(l *index.Leaf, unitBytes int, n int64) {
	for i := range l.Units {
		u := &l.Units[i]
		if !u.Data {
			continue
		}
		f := &l.Frames[u.Frame]
		a.packs.Add(f.Pack.Ordinal, n*int64(unitBytes))
		a.keys.Add(f.KeyOrdinal, n*int64(unitBytes))
	}
}

// node books the sealed bytes of a node.
func (a accounts) node(r index.Ref, n int64) { a.packs.Add(r.Ordinal, n*r.Length) }
