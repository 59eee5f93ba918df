package index

import (
	"iter"
	"maps"
	"slices"
)

// Ledger is a number for each ordinal of a table, 0 at first. Ordinals that are near each
// other take 8 bytes each, so the books of a million packs take 8 MiB.
type Ledger struct {
	pages map[uint64]*[ledgerPage]int64
}

// ledgerPage is how many numbers are together: leaves of tables are whole pages.
const ledgerPage = 64

// NewLedger returns a ledger without entries.
func NewLedger() *Ledger { return &Ledger{pages: map[uint64]*[ledgerPage]int64{}} }

// At returns the number of an ordinal.
func (l *Ledger) At(ordinal uint64) int64 {
	if p := l.pages[ordinal/ledgerPage]; p != nil {
		return p[ordinal%ledgerPage]
	}
	return 0
}

// Add adds n to the number of an ordinal.
func (l *Ledger) Add(ordinal uint64, n int64) { *l.entry(ordinal) += n }

// Set puts n in the place of the number of an ordinal.
func (l *Ledger) Set(ordinal uint64, n int64) { *l.entry(ordinal) = n }

func (l *Ledger) entry(ordinal uint64) *int64 {
	p := l.pages[ordinal/ledgerPage]
	if p == nil {
		p = new([ledgerPage]int64)
		l.pages[ordinal/ledgerPage] = p
	}
	return &p[ordinal%ledgerPage]
}

// All yields the ordinals whose numbers are not 0, in order.
func (l *Ledger) All() iter.Seq2[uint64, int64] {
	return func(yield func(uint64, int64) bool) {
		for _, page := range slices.Sorted(maps.Keys(l.pages)) {
			for i, n := range l.pages[page] {
				if n != 0 && !yield(page*ledgerPage+uint64(i), n) {
					return
				}
			}
		}
	}
}
