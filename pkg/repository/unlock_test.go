package repository_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/ticket"
)

// unlock does what mover and holder do: the one has the store, the other the identities.
func (w *world) unlock(ref repository.CommitRef, ids []age.Identity) (repository.Handed, []*ticket.Request, error) {
	w.t.Helper()
	var h repository.Handed
	q, err := repository.IndexRequest(w.t.Context(), w.store, "restore", "recipient")
	must(w.t, err)
	a, err := answerTo(w.t, q, ids, w.keys.SigningKey())
	if err != nil {
		return h, nil, err
	}
	h = repository.Handed{Epochs: a.Epochs, Data: map[keys.Origin][32]byte{}}
	r, err := repository.OpenHanded(w.t.Context(), w.store, h, w.keys.SigningKey())
	must(w.t, err)
	c, err := r.Commit(w.t.Context(), ref)
	must(w.t, err)
	requests, err := r.DataRequests(w.t.Context(), c, "restore", "recipient")
	must(w.t, err)
	for _, q := range requests {
		a, err := answerTo(w.t, q, ids, w.keys.SigningKey())
		if err != nil {
			return h, requests, err
		}
		if a.Commit.Digest != c.Digest || !a.Commit.Authenticated {
			w.t.Errorf("the holder saw backup %s, authenticated %t", a.Commit.Digest, a.Commit.Authenticated)
		}
		must(w.t, r.Proves(w.t.Context(), c, a.Data))
		maps.Copy(h.Data, a.Data)
	}
	return h, requests, nil
}

// answerTo is the holder, who has what was sent and nothing else.
func answerTo(t *testing.T, q *ticket.Request, ids []age.Identity, root []byte) (*repository.Answer, error) {
	t.Helper()
	sent, err := ticket.Decode(q.Encode())
	must(t, err)
	return repository.AnswerTo(t.Context(), sent, ids, root, repository.Known{})
}

// twoMachines are a chain of three backups of one machine, and one of another.
func twoMachines(t *testing.T) (w *world, chain []*repository.Result, other *repository.Result, in input) {
	w = newWorld(t, nil)
	in = input{disks: [][]byte{storetest.Bytes(1, 3<<20)}, files: map[string]string{"a": "b"}}
	var last *repository.Result
	for i := range 3 {
		in = in.clone()
		copy(in.disks[0][i<<20:], storetest.Bytes(uint64(10+i), 40<<10))
		last = w.backup(fmt.Sprint("b", i), last, in)
		chain = append(chain, last)
	}
	spec := w.spec("x", nil)
	spec.VM.UID, spec.VM.Name = "other-uid", "other"
	r, err := w.try(spec, in)
	must(t, err)
	return w, chain, &r, in
}

// TestTicketOpensOneBackup: the keys of a ticket restore its backup, and open nothing that this one does not stand on.
func TestTicketOpensOneBackup(t *testing.T) {
	w, chain, other, in := twoMachines(t)
	h, _, err := w.unlock(chain[2].CommitRef, w.identities)
	must(t, err)
	r, err := repository.OpenHanded(t.Context(), w.store, h, w.keys.SigningKey())
	must(t, err)
	got, err := restoreAll(t.Context(), r, chain[2].CommitRef)
	must(t, err)
	if !got.equal(in) {
		t.Error("what was restored differs")
	}
	if _, err := restoreAll(t.Context(), r, other.CommitRef); !errors.Is(err, repository.ErrNoIdentity) {
		t.Errorf("another machine's backup: %v", err)
	}
	first, _, err := w.unlock(chain[0].CommitRef, w.identities)
	must(t, err)
	r, err = repository.OpenHanded(t.Context(), w.store, first, w.keys.SigningKey())
	must(t, err)
	if _, err := restoreAll(t.Context(), r, chain[2].CommitRef); !errors.Is(err, repository.ErrNoIdentity) {
		t.Errorf("a later backup of the same machine: %v", err)
	}
	if len(h.Data) != 3 || len(first.Data) != 1 {
		t.Errorf("tickets of %d and %d keys, want 3 and 1", len(h.Data), len(first.Data))
	}
}

// TestRequestForMore: who asks for keys that the backup does not need, or shows another store, gets none.
func TestRequestForMore(t *testing.T) {
	w, chain, other, _ := twoMachines(t)
	_, mine, err := w.unlock(chain[0].CommitRef, w.identities)
	must(t, err)
	_, theirs, err := w.unlock(other.CommitRef, w.identities)
	must(t, err)
	foreign := newWorld(t, nil)
	cases := map[string]struct {
		change func(q *ticket.Request)
		want   error
	}{
		"OtherMachinesRun": {func(q *ticket.Request) {
			q.Origins = append(q.Origins, theirs[0].Origins...)
			q.Excerpt = append(q.Excerpt, theirs[0].Excerpt...)
		}, repository.ErrNotAuthentic},
		"OtherDigest":     {func(q *ticket.Request) { q.Commit.Digest = theirs[0].Commit.Digest }, repository.ErrNotAuthentic},
		"OtherRepository": {func(q *ticket.Request) { q.Repository[0] ^= 1 }, repository.ErrNotAuthentic},
		"OtherStore": {func(q *ticket.Request) {
			x, err := repository.IndexRequest(t.Context(), foreign.store, "restore", "recipient")
			must(t, err)
			q.Excerpt = x.Excerpt
		}, repository.ErrNotAuthentic},
		"NodeAltered": {func(q *ticket.Request) {
			for i, p := range q.Excerpt {
				if !p.Whole {
					q.Excerpt[i].Bytes = append([]byte{p.Bytes[0] ^ 1}, p.Bytes[1:]...)
				}
			}
		}, repository.ErrDamaged},
		"CommitLeftOut": {func(q *ticket.Request) {
			q.Excerpt = slices.DeleteFunc(q.Excerpt, func(p ticket.Piece) bool { return p.Key == q.Commit.Key })
		}, repository.ErrNoCommit},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q, err := ticket.Decode(mine[0].Encode())
			must(t, err)
			tc.change(q)
			if _, err := answerTo(t, q, w.identities, w.keys.SigningKey()); !errors.Is(err, tc.want) && !errors.Is(err, repository.ErrNotAuthentic) {
				t.Errorf("answered with %v, want %v", err, tc.want)
			}
		})
	}
	stranger, err := age.GenerateX25519Identity()
	must(t, err)
	if _, _, err := w.unlock(chain[0].CommitRef, []age.Identity{stranger}); !errors.Is(err, repository.ErrWrongIdentity) {
		t.Errorf("a stranger: %v", err)
	}
}

// TestBorrowedKeyFiles: who reads a bucket can show its key files as part of a repository of his own, with the same
// id. Nothing in a request tells that from the true one but the root key, so the holder is told who vouches for it.
func TestBorrowedKeyFiles(t *testing.T) {
	w := newWorld(t, nil)
	challenge, err := w.keys.Challenge(w.recipients.Strings()[0])
	must(t, err)
	p, err := keys.Prove(challenge, w.identities[0], w.keys.Repository(), w.keys.SigningKey())
	must(t, err)
	must(t, keys.StoreProof(t.Context(), w.store, w.keys, w.recipients, p))
	_, his, err := ed25519.GenerateKey(nil)
	must(t, err)
	proof := keys.ProofKey(p.Recipient)
	with := map[string][]byte{}
	for _, key := range []string{keys.FormatKey, keys.EpochKey(1), proof} {
		with[key], err = objectstore.Get(t.Context(), w.store, key, 1<<20)
		must(t, err)
	}
	with[keys.FormatKey] = signedAnew(t, with[keys.FormatKey], "vmstate/v1/format\x00", his, "rootKey")
	with[keys.EpochKey(1)] = signedAnew(t, with[keys.EpochKey(1)], "vmstate/v1/epoch\x00", his, "signingKey", "signer")
	ask := func() (*repository.Answer, error) {
		q, err := repository.IndexRequest(t.Context(), storeOf(t, with), "restore", "recipient")
		must(t, err)
		return answerTo(t, q, w.identities, his.Public().(ed25519.PublicKey)) // what the attacker's VMStateStore shows
	}
	if _, err := ask(); !errors.Is(err, repository.ErrNotAuthentic) {
		t.Errorf("with the true proof: %v", err)
	}
	delete(with, proof)
	if a, err := ask(); err != nil || a.Vouched {
		t.Errorf("without a proof: %v; want an answer that nobody vouches for", err)
	}
	q, err := repository.IndexRequest(t.Context(), w.store, "restore", "recipient")
	must(t, err)
	if a, err := answerTo(t, q, w.identities, w.keys.SigningKey()); err != nil || !a.Vouched {
		t.Errorf("the true repository: %v; want one that the identity vouches for", err)
	}
}

// signedAnew puts another public key into members of a document, and signs it. Values stay where they are.
func signedAnew(t *testing.T, body []byte, context string, key ed25519.PrivateKey, members ...string) []byte {
	t.Helper()
	text := string(body)
	for _, m := range members {
		at := strings.Index(text, `"`+m+`":"`) + len(m) + 4
		end := at + strings.Index(text[at:], `"`)
		text = text[:at] + base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey)) + text[end:]
	}
	text = text[:strings.LastIndex(text, `,"signature"`)]
	signature := ed25519.Sign(key, []byte(context+text+"}"))
	return []byte(text + `,"signature":"` + base64.StdEncoding.EncodeToString(signature) + `"}`)
}

// TestRequestPages: a long chain whose key files do not fit into one request asks several times.
func TestRequestPages(t *testing.T) {
	w := newWorld(t, nil)
	var list []string
	for range 16 {
		i, err := keys.GenerateIdentity()
		must(t, err)
		list = append(list, i.Recipient)
		w.identities, err = keys.ParseIdentities([]byte(i.Secret)) // the last of many
		must(t, err)
	}
	var err error
	w.recipients, err = keys.ParseRecipients(list)
	must(t, err)
	must(t, repository.Init(t.Context(), w.store, w.keys, w.recipients))
	const runs = 40
	in := input{disks: [][]byte{make([]byte, runs*16<<10)}}
	var last *repository.Result
	for i := range runs {
		copy(in.disks[0][i*16<<10:], storetest.Bytes(uint64(i), 16<<10))
		last = w.backup(fmt.Sprint("b", i), last, in)
	}
	h, requests, err := w.unlock(last.CommitRef, w.identities)
	must(t, err)
	if len(requests) < 2 || len(h.Data) != runs {
		t.Errorf("%d requests, %d keys", len(requests), len(h.Data))
	}
	for _, q := range requests {
		if n := len(q.Encode()); n > ticket.MaxRequest {
			t.Errorf("a request of %d bytes", n)
		}
	}
	r, err := repository.OpenHanded(t.Context(), w.store, h, nil)
	must(t, err)
	got, err := restoreAll(t.Context(), r, last.CommitRef)
	must(t, err)
	if !got.equal(in) {
		t.Error("what was restored differs")
	}
}
