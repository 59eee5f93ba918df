package repository_test

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
)

// contents are all objects of a store.
func contents(t *testing.T, s objectstore.Store) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for info, err := range s.List(t.Context(), "") {
		must(t, err)
		b, err := objectstore.Get(t.Context(), s, info.Key, 1<<30)
		must(t, err)
		out[info.Key] = b
	}
	return out
}

func storeOf(t *testing.T, objects map[string][]byte) objectstore.Store {
	t.Helper()
	s := memstore.New()
	for key, body := range objects {
		_, err := s.Create(t.Context(), key, body)
		must(t, err)
	}
	return s
}

// kindOf is the sort of object that a key names, for swaps within a kind.
func kindOf(key string) string {
	name := path.Base(key)
	switch {
	case strings.HasPrefix(key, "r/") && name[0] == 'k':
		return "data key"
	case strings.HasPrefix(key, "r/") && name[0] == 'p':
		return "data pack"
	case strings.HasPrefix(key, "r/"):
		return "index pack"
	default:
		return key[:1]
	}
}

// mutation is one thing that a bad disk or a bad person does to an object.
type mutation struct {
	name string
	body []byte // nil deletes it
}

func mutations(key string, objects map[string][]byte) []mutation {
	body := objects[key]
	var out []mutation
	for _, share := range []int{0, 7, 50, 93, 100} {
		at := min(len(body)*share/100, len(body)-1)
		flipped := bytes.Clone(body)
		flipped[at] ^= 1 << (share % 8)
		out = append(out, mutation{fmt.Sprintf("bit flipped at %d", at), flipped})
	}
	out = append(out,
		mutation{"cut to half", body[:len(body)/2]},
		mutation{"cut by a byte", body[:len(body)-1]},
		mutation{"emptied", []byte{}},
		mutation{"grown by a byte", append(bytes.Clone(body), 0)},
		mutation{"deleted", nil})
	for other, theirs := range objects {
		if other != key && kindOf(other) == kindOf(key) {
			out = append(out, mutation{"swapped for " + other, theirs})
		}
	}
	return out
}

var detected = []error{
	repository.ErrDamaged, repository.ErrMissing, repository.ErrNotAuthentic, repository.ErrNoCommit,
	repository.ErrNotInitialised, repository.ErrWrongIdentity, repository.ErrUnsupported,
}

func (w *world) mutate(key string, m mutation, objects map[string][]byte) {
	changed := map[string][]byte{}
	for k, b := range objects {
		changed[k] = b
	}
	if changed[key] = m.body; m.body == nil {
		delete(changed, key)
	}
	w.store = storeOf(w.t, changed)
}

func checkDetected(t *testing.T, what, key string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: gave other data without an error", what)
		return
	}
	if !slices.ContainsFunc(detected, func(d error) bool { return errors.Is(err, d) }) {
		t.Errorf("%s: error is of no known kind: %v", what, err)
	}
	if !strings.Contains(err.Error(), key) {
		t.Errorf("%s: error does not name the object: %v", what, err)
	}
}

// TestReplay puts an older backup in the place of a newer one, and copies a commit to
// a name that it was not made for.
func TestReplay(t *testing.T) {
	first, second := chainOfTwo(5 << 18)
	w := newWorld(t, nil)
	one := w.backup("one", nil, first)
	two := w.backup("two", one, second)
	objects := contents(t, w.store)
	w.mutate(two.Key, mutation{"replay", objects[one.Key]}, objects)
	for _, digest := range []string{two.Digest, ""} {
		_, err := w.reader().Commit(t.Context(), repository.CommitRef{Key: two.Key, Digest: digest})
		if !errors.Is(err, repository.ErrNotAuthentic) {
			t.Errorf("older record in place of a newer one: %v", err)
		}
	}
	copied := strings.Replace(one.Key, "-", "-f", 1)
	copied = copied[:len(one.Key)]
	w.mutate(copied, mutation{"copy", objects[one.Key]}, objects)
	if _, err := w.reader().Commit(t.Context(), repository.CommitRef{Key: copied}); !errors.Is(err, repository.ErrNotAuthentic) {
		t.Errorf("copy of a record under another name: %v", err)
	}
	if _, err := w.reader().Latest(t.Context(), "prod", "db"); !errors.Is(err, repository.ErrNotAuthentic) {
		t.Errorf("newest backup beside a copied record: %v", err)
	}
}

// TestBrokenParent: a backup whose parent has a damaged index says so, and is made
// whole by one that takes nothing over.
func TestBrokenParent(t *testing.T) {
	first, second := chainOfTwo(5 << 18)
	w := newWorld(t, nil)
	one := w.backup("one", nil, first)
	objects := contents(t, w.store)
	for key := range objects {
		if kind := kindOf(key); kind != "index pack" && kind != "c" {
			continue
		}
		for i, m := range mutations(key, objects) {
			if m.name == "cut by a byte" || m.name == "grown by a byte" {
				continue // only the end of the directory, which a writer has no use for
			}
			w.mutate(key, m, objects)
			var err error
			w.writer, err = repository.OpenWithKeys(t.Context(), w.store, w.keys)
			must(t, err)
			spec := w.spec(fmt.Sprint("two", i), one)
			two, err := w.try(spec, second)
			if errors.Is(err, repository.ErrParent) {
				spec.Full = true
				two, err = w.try(spec, second)
			}
			if err != nil {
				t.Errorf("%s of %q: %v", m.name, key, err)
				continue
			}
			if two.Sequence != 2 {
				t.Errorf("%s of %q: sequence %d", m.name, key, two.Sequence)
			}
			w.mustRestore(two.CommitRef, second)
		}
	}
}
