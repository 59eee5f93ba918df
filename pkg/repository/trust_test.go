package repository_test

import (
	"errors"
	"testing"

	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// TestHiddenDistrust: who holds the bucket, and has the lost key, cannot make a reader who knows of the rotation or of
// the distrust believe what the key has signed by taking either away; nor can a request that leaves it out.
func TestHiddenDistrust(t *testing.T) {
	w, chain, other, _ := twoMachines(t)
	root := w.keys.SigningKey()
	w.rotate()
	must(t, w.writer.Distrust(t.Context(), 1, []repository.CommitRef{chain[2].CommitRef}))
	known := repository.Known{Epoch: 2, Distrusted: []uint32{1}}
	ask := func(ref repository.CommitRef) error {
		r := w.rooted(root)
		c, err := r.Commit(t.Context(), ref)
		must(t, err)
		requests, err := r.DataRequests(t.Context(), c, "restore", "recipient")
		must(t, err)
		_, err = repository.AnswerTo(t.Context(), requests[0], w.identities, root, known)
		return err
	}
	read := func(ref repository.CommitRef) error {
		r := w.rooted(root)
		r.Expect(known)
		_, err := r.Commit(t.Context(), ref)
		return err
	}
	if err := errors.Join(ask(chain[2].CommitRef), read(chain[2].CommitRef)); err != nil {
		t.Errorf("nothing is hidden: %v", err)
	}
	for _, hidden := range []string{"a/distrust-1", keys.EpochKey(2)} {
		must(t, w.store.Delete(t.Context(), hidden))
		if err := read(other.CommitRef); !errors.Is(err, repository.ErrNotAuthentic) {
			t.Errorf("without %q: %v", hidden, err)
		}
		if err := ask(other.CommitRef); !errors.Is(err, repository.ErrNotAuthentic) {
			t.Errorf("asked for without %q: %v", hidden, err)
		}
	}
}
