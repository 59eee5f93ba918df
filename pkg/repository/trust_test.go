package repository_test

import (
	"errors"
	"strings"
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
	w.distrusts(1, []repository.CommitRef{chain[2].CommitRef})
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

// replaced puts another epoch 2 into the store, made with a stolen key of epoch 1: whoever controls the bucket can.
func (v *victims) replaced() {
	v.t.Helper()
	next, err := v.thief.Next()
	must(v.t, err)
	must(v.t, v.store.Delete(v.t.Context(), keys.EpochKey(2)))
	must(v.t, keys.Rotate(v.t.Context(), v.store, v.thief, next, v.recipients))
	v.thief, err = keys.FromSecret(next.Secret())
	must(v.t, err)
	v.stolen, err = repository.OpenWithKeys(v.t.Context(), v.store, v.thief)
	must(v.t, err)
}

// TestReplacedEpoch: who controls the bucket and has the signing key of an epoch that is over can put another next epoch
// in the place of the true one, and sign backups with it. Nobody who knows the true one's key believes either.
func TestReplacedEpoch(t *testing.T) {
	v := newVictims(t)
	v.rotate()
	known, err := repositoryTrust(v.world, repository.Known{})
	must(t, err)
	if known.Epoch != 2 || !known.SigningKey.Equal(v.keys.SigningKey()) {
		t.Fatalf("the store shows epoch %d", known.Epoch)
	}
	v.replaced()
	b, err := v.stolen.Begin(t.Context(), v.spec("forged", nil))
	must(t, err)
	forged, err := run(t.Context(), b, v.in)
	b.Close()
	must(t, err)
	if _, err := v.rooted(v.root).Commit(t.Context(), forged.CommitRef); err != nil {
		t.Fatalf("who knows the root key alone cannot tell it from a true one: %v", err)
	}
	read := func(k repository.Known) error {
		r := v.rooted(v.root)
		r.Expect(k)
		_, err := r.Commit(t.Context(), forged.CommitRef)
		return err
	}
	shows := func(r *repository.Repository) error {
		r.Expect(known)
		return r.Shows(t.Context())
	}
	_, trustErr := repositoryTrust(v.world, known)
	q, err := repository.IndexRequest(t.Context(), v.store, "restore", "recipient")
	must(t, err)
	_, answered := repository.AnswerTo(t.Context(), q, v.identities, v.root, known)
	for what, err := range map[string]error{
		"read": read(known), "restore starts": shows(v.rooted(v.root)), "backup starts": shows(v.writer), "setup": trustErr, "index keys are asked for": answered,
	} {
		if !errors.Is(err, repository.ErrSetBack) || !strings.Contains(err.Error(), "k/2.age") {
			t.Errorf("%s: %v; want a refusal that names k/2.age", what, err)
		}
	}
	if err := read(repository.Known{Epoch: 2}); err != nil {
		t.Errorf("the number alone does not tell: %v", err)
	}
}

// repositoryTrust is what setup finds, with the world's keys.
func repositoryTrust(w *world, known repository.Known) (repository.Known, error) {
	f, err := keys.ReadFormat(w.t.Context(), w.store)
	must(w.t, err)
	return keys.Trust(w.t.Context(), w.store, f, w.keys, known)
}

// TestOldDistrust: of two words on an epoch the bucket hides the later, or puts another in its place. Who knows the later
// believes neither what the earlier one allowed nor the rest, and saying it again mends it.
func TestOldDistrust(t *testing.T) {
	for name, hide := range map[string]func(t *testing.T, v *victims){
		"Hidden": func(t *testing.T, v *victims) { must(t, v.store.Delete(t.Context(), "a/distrust-2")) },
		"Replaced": func(t *testing.T, v *victims) {
			must(t, v.store.Delete(t.Context(), "a/distrust-2"))
			_, err := v.store.Create(t.Context(), "a/distrust-2", []byte("garbage"))
			must(t, err)
		},
		"AllHidden": func(t *testing.T, v *victims) {
			must(t, v.store.Delete(t.Context(), "a/distrust-1"))
			must(t, v.store.Delete(t.Context(), "a/distrust-2"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVictims(t)
			v.rotate()
			v.distrusts(1, []repository.CommitRef{v.chain[2].CommitRef, v.other.CommitRef})
			word := v.distrusts(1, []repository.CommitRef{v.chain[2].CommitRef})
			known, err := repositoryTrust(v.world, repository.Known{})
			must(t, err)
			if len(known.Words) != 1 || known.Words[0] != word || word.Number != 2 {
				t.Fatalf("the store shows %+v, want %+v", known.Words, word)
			}
			hide(t, v)
			read := func(ref repository.CommitRef, k repository.Known) error {
				r := v.rooted(v.root)
				r.Expect(k)
				_, err := r.Commit(t.Context(), ref)
				return err
			}
			if err := read(v.other.CommitRef, repository.Known{Epoch: 2}); err != nil {
				t.Fatalf("the epoch alone does not tell: %v", err)
			}
			for _, ref := range []repository.CommitRef{v.other.CommitRef, v.chain[2].CommitRef} {
				if err := read(ref, known); !errors.Is(err, repository.ErrSetBack) || !strings.Contains(err.Error(), "a/distrust-") {
					t.Errorf("read %q: %v", ref.Key, err)
				}
			}
			v.writer.Expect(known)
			if err := v.writer.Shows(t.Context()); !errors.Is(err, repository.ErrSetBack) {
				t.Errorf("a backup starts: %v", err)
			}
			again := v.distrusts(1, []repository.CommitRef{v.chain[2].CommitRef})
			if again.Number < word.Number {
				t.Errorf("said again as word %d", again.Number)
			}
			known.Words = []repository.Word{again}
			if err := read(v.chain[2].CommitRef, known); err != nil {
				t.Errorf("said again, a good backup: %v", err)
			}
			if err := read(v.other.CommitRef, known); !errors.Is(err, repository.ErrDistrusted) {
				t.Errorf("said again, one that is not named: %v", err)
			}
		})
	}
}
