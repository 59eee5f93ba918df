package repository_test

import (
	"errors"
	"testing"

	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// TestForgedCommit: a record that names an epoch of its own is not read, also with
// nothing pinned but the root key.
func TestForgedCommit(t *testing.T) {
	w := newWorld(t, nil)
	forger, err := keys.Generate()
	must(t, err)
	id, err := keys.ParseID(w.writer.ID())
	must(t, err)
	for epoch, want := range map[uint32]error{0: repository.ErrNotAuthentic, 1: repository.ErrNotAuthentic, 2: repository.ErrMissing} {
		h := commit.Header{
			Repository: id, Epoch: epoch, VM: keys.ID{1}, Sequence: uint64(epoch) + 1,
			Origin: keys.Origin{Run: keys.ID{2}, Attempt: 1},
		}
		key := layout.Commit(h.VM, h.Sequence, h.Origin.Run)
		_, err := w.store.Create(t.Context(), key, commit.Seal(forger, h, &commit.Record{}))
		must(t, err)
		if _, err := w.reader().Commit(t.Context(), repository.CommitRef{Key: key}); !errors.Is(err, want) {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
}
