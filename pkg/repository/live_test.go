package repository_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// told is what a record says of its chain.
type told struct {
	Full, Unknown bool
	Live          []uint64
}

func (w *world) told(r *repository.Result) told {
	w.t.Helper()
	c, err := w.writer.Commit(w.t.Context(), r.CommitRef)
	must(w.t, err)
	record, err := w.writer.Record(w.t.Context(), c)
	must(w.t, err)
	out := told{Full: record.Full, Unknown: record.ChainUnknown()}
	for _, l := range record.Live {
		out.Live = append(out.Live, l.Sequence)
	}
	return out
}

// TestChainIsNotForgotten: a backup that takes nothing over from its parent still
// tells what came before; if it cannot know, it says so, and so do those after it.
func TestChainIsNotForgotten(t *testing.T) {
	replace := func(t *testing.T, s objectstore.Store, key string, body []byte) {
		t.Helper()
		must(t, s.Delete(t.Context(), key))
		_, err := s.Create(t.Context(), key, body)
		must(t, err)
	}
	cases := map[string]struct {
		full          bool
		spoil         func(t *testing.T, s objectstore.Store, parent string)
		third, fourth told
	}{
		"AsItIs": {third: told{Live: []uint64{1, 2}}, fourth: told{Live: []uint64{1, 2, 3}}},
		"Full": {
			full:  true,
			third: told{Full: true, Live: []uint64{1, 2}}, fourth: told{Live: []uint64{1, 2, 3}},
		},
		"TombstoneOfNobody": {
			spoil: func(t *testing.T, s objectstore.Store, parent string) {
				n, err := layout.ParseCommit(parent)
				must(t, err)
				_, err = s.Create(t.Context(), layout.Tombstone(n.VM, n.Sequence, n.Run), nil)
				must(t, err)
			},
			third: told{Live: []uint64{1, 2}}, fourth: told{Live: []uint64{1, 2, 3}},
		},
		"Gone": {
			spoil: func(t *testing.T, s objectstore.Store, parent string) { must(t, s.Delete(t.Context(), parent)) },
			third: told{Full: true, Unknown: true, Live: []uint64{2}}, fourth: told{Unknown: true, Live: []uint64{2, 3}},
		},
		"Damaged": {
			full: true,
			spoil: func(t *testing.T, s objectstore.Store, parent string) {
				replace(t, s, parent, bytes.Repeat([]byte("no"), 500))
			},
			third: told{Full: true, Unknown: true, Live: []uint64{2}}, fourth: told{Unknown: true, Live: []uint64{2, 3}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			w := newWorld(t, store)
			in := input{disks: [][]byte{noise(11, 100_000)}}
			two := w.backup("two", w.backup("one", nil, in), in)
			if tc.spoil != nil {
				tc.spoil(t, store, two.Key)
			}
			spec := w.spec("three", two)
			spec.Full = tc.full
			three, err := w.try(spec, in)
			must(t, err)
			four := w.backup("four", &three, in)
			if diff := cmp.Diff([]told{tc.third, tc.fourth}, []told{w.told(&three), w.told(four)}); diff != "" {
				t.Errorf("third and fourth (-want +got):\n%s", diff)
			}
		})
	}
}
