package repository_test

import (
	"bytes"
	"errors"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// rotate gives the world's writer the keys of the next epoch, as the setup Job does.
func (w *world) rotate() {
	w.t.Helper()
	next, err := w.keys.Next()
	must(w.t, err)
	must(w.t, keys.Rotate(w.t.Context(), w.store, w.keys, next, w.recipients))
	w.keys, err = keys.FromSecret(next.Secret())
	must(w.t, err)
	w.writer, err = repository.OpenWithKeys(w.t.Context(), w.store, w.keys)
	must(w.t, err)
}

// distrusts says of an epoch what of it is still believed, as the setup Job does.
func (w *world) distrusts(epoch uint32, lastGood []repository.CommitRef) repository.Word {
	w.t.Helper()
	word, err := w.writer.Distrust(w.t.Context(), epoch, lastGood)
	must(w.t, err)
	return word
}

// rooted reads with the root key pinned, which never changes.
func (w *world) rooted(root []byte) *repository.Repository {
	w.t.Helper()
	r, err := repository.OpenWithIdentities(w.t.Context(), w.store, w.identities, root)
	must(w.t, err)
	return r
}

func (w *world) restores(r *repository.Repository, ref repository.CommitRef, want input) {
	w.t.Helper()
	got, err := restoreAll(w.t.Context(), r, ref)
	must(w.t, err)
	if !got.equal(want) {
		w.t.Errorf("restore of %q differs", ref.Key)
	}
}

// TestRotatedChain: the first backup of an epoch is a full tree in the same chain; those of all epochs restore from
// the root key alone, and the old Secret writes nothing that is taken for the new epoch's.
func TestRotatedChain(t *testing.T) {
	w := newWorld(t, nil)
	root := w.keys.SigningKey()
	in := input{disks: [][]byte{storetest.Bytes(1, 2<<20)}, files: map[string]string{"a": "b"}}
	first := w.backup("b0", nil, in)
	w.rotate()
	changed := in.clone()
	copy(changed.disks[0], storetest.Bytes(2, 20<<10))
	second := w.backup("b1", first, changed)
	third := w.backup("b2", second, changed)
	if !second.Full || third.Full {
		t.Errorf("full: %t in a new epoch, %t after it", second.Full, third.Full)
	}
	if second.Sequence != first.Sequence+1 {
		t.Errorf("sequence %d after %d", second.Sequence, first.Sequence)
	}
	r := w.rooted(root)
	w.restores(r, first.CommitRef, in)
	w.restores(r, second.CommitRef, changed)
	w.restores(r, third.CommitRef, changed)
	c, err := r.Commit(t.Context(), third.CommitRef)
	must(t, err)
	if !c.Authenticated || c.Parent == nil || c.Parent.Digest != second.Digest {
		t.Errorf("third backup: authenticated %t, parent %+v", c.Authenticated, c.Parent)
	}
	h, _, err := w.unlock2(root, first.CommitRef)
	must(t, err)
	r, err = repository.OpenHanded(t.Context(), w.store, h, root)
	must(t, err)
	w.restores(r, first.CommitRef, in)
}

func (w *world) unlock2(root []byte, ref repository.CommitRef) (repository.Handed, int, error) {
	q, err := repository.IndexRequest(w.t.Context(), w.store, "restore", "recipient")
	must(w.t, err)
	a, err := answerTo(w.t, q, w.identities, root)
	must(w.t, err)
	h := repository.Handed{Epochs: a.Epochs, Data: map[keys.Origin][32]byte{}}
	r, err := repository.OpenHanded(w.t.Context(), w.store, h, root)
	must(w.t, err)
	c, err := r.Commit(w.t.Context(), ref)
	must(w.t, err)
	requests, err := r.DataRequests(w.t.Context(), c, "restore", "recipient")
	must(w.t, err)
	for _, q := range requests {
		if a, err = answerTo(w.t, q, w.identities, root); err != nil {
			return h, 0, err
		}
		for o, k := range a.Data {
			h.Data[o] = k
		}
	}
	return h, len(requests), nil
}

// TestRotatedRun: a run that began under the old keys is finished under the new ones.
func TestRotatedRun(t *testing.T) {
	w := newWorld(t, nil)
	root := w.keys.SigningKey()
	in := input{disks: [][]byte{storetest.Bytes(1, 4<<20)}}
	b, err := w.writer.Begin(t.Context(), w.spec("b0", nil))
	must(t, err)
	_, err = b.AddBlock(t.Context(), repository.BlockVolume{Name: diskName(0), Role: "Disk", Mode: "Block", Size: 4 << 20, Source: bytes.NewReader(in.disks[0])})
	must(t, err)
	b.Close() // the mover dies
	w.rotate()
	done := w.backup("b0", nil, in)
	w.restores(w.rooted(root), done.CommitRef, in)
	again := w.backup("b0", nil, in)
	if !again.Found || again.Digest != done.Digest {
		t.Errorf("the run was done twice: %+v", again)
	}
}

// TestThief: whoever has the Secrets of the cluster (index, name and signing key, and the right to write) reads no
// backup, passes off no mix, can forge new backups, and loses even that when the key is distrusted.
func TestThief(t *testing.T) {
	w, chain, other, in := twoMachines(t)
	root := w.keys.SigningKey()
	thief, err := keys.FromSecret(w.keys.Secret())
	must(t, err)
	stolen, err := repository.OpenWithKeys(t.Context(), w.store, thief)
	must(t, err)
	// Read: names and sizes, no data; not with keys of his own making either.
	for _, ref := range []repository.CommitRef{chain[2].CommitRef, other.CommitRef} {
		if _, err := restoreAll(t.Context(), stolen, ref); !errors.Is(err, repository.ErrNoIdentity) {
			t.Errorf("read of %q: %v", ref.Key, err)
		}
	}
	mine, err := age.GenerateX25519Identity()
	must(t, err)
	if _, err := repository.OpenWithIdentities(t.Context(), w.store, []age.Identity{mine}, root); !errors.Is(err, repository.ErrWrongIdentity) {
		t.Errorf("his own identity: %v", err)
	}
	// Mix: the record of one machine in the place of another's.
	record, err := objectstore.Get(t.Context(), w.store, other.Key, 1<<20)
	must(t, err)
	place := chain[2].Key[:len(chain[2].Key)-len("0000000003-")-32] + "0000000004-" + other.Key[len(other.Key)-32:]
	_, err = w.store.Create(t.Context(), place, record)
	must(t, err)
	if _, err := w.rooted(root).Commit(t.Context(), repository.CommitRef{Key: place}); !errors.Is(err, repository.ErrNotAuthentic) {
		t.Errorf("another machine's record: %v", err)
	}
	// Forge: a new backup with his own contents is taken, until the key is distrusted.
	fake := in.clone()
	copy(fake.disks[0], "ransom")
	spec := w.spec("forged", chain[2])
	b, err := stolen.Begin(t.Context(), spec)
	must(t, err)
	forged, err := run(t.Context(), b, fake)
	b.Close()
	must(t, err)
	w.restores(w.rooted(root), forged.CommitRef, fake)
	early := w.spec("early", nil) // a forgery that says it came first
	b, err = stolen.Begin(t.Context(), early)
	must(t, err)
	old, err := run(t.Context(), b, fake)
	b.Close()
	must(t, err)

	w.rotate()
	w.distrusts(1, []repository.CommitRef{chain[2].CommitRef})
	reader := w.rooted(root)
	for _, good := range chain {
		if _, err := reader.Commit(t.Context(), good.CommitRef); err != nil {
			t.Errorf("a good backup: %v", err)
		}
	}
	w.restores(reader, chain[2].CommitRef, in)
	for name, ref := range map[string]repository.CommitRef{"After": forged.CommitRef, "Before": old.CommitRef, "NotNamed": other.CommitRef} {
		if _, err := reader.Commit(t.Context(), ref); !errors.Is(err, repository.ErrNotAuthentic) {
			t.Errorf("%s the cut: %v", name, err)
		}
	}
	// The thief cannot take it back, nor distrust in his turn, nor make the next epoch.
	if _, err := keys.StoreDistrust(t.Context(), w.store, thief, keys.Distrust{Epoch: 1}, keys.Word{}); !errors.Is(err, repository.ErrForeign) {
		t.Errorf("the thief distrusts: %v", err)
	}
	next, err := thief.Next()
	must(t, err)
	if err := keys.Rotate(t.Context(), w.store, thief, next, w.recipients); !errors.Is(err, repository.ErrForeign) {
		t.Errorf("the thief rotates: %v", err)
	}
	// A backup goes on from the good one, not from the forged.
	must(t, w.store.Delete(t.Context(), place))
	latest, err := reader.Latest(t.Context(), "prod", "db")
	if err != nil || latest.Digest != chain[2].Digest {
		t.Errorf("latest is %+v, %v; want the last good one", latest, err)
	}
	// Verification and garbage collection still count what is stored.
	if report, err := w.writer.Verify(t.Context(), repository.VerifySpec{}); err != nil || len(report.Damaged) > 0 {
		t.Errorf("verify: %+v, %v", report, err)
	}
	done, err := w.rooted(root).Rewrap(t.Context(), w.recipients)
	if err != nil || len(done.LeftOut) != 3 || done.Runs != 3 {
		t.Errorf("rewrap: %+v, %v; want three left out", done, err)
	}
	after := w.backup("after", &forged, in)
	if !after.Full {
		t.Error("data of a forged parent was taken over")
	}
	w.restores(w.rooted(root), after.CommitRef, in)
}

// TestDistrustIsTheLatestWord: of several words the last of the latest epoch counts, an old one cannot be put in a
// new place, and what is no word at all changes nothing.
func TestDistrustIsTheLatestWord(t *testing.T) {
	w, chain, other, _ := twoMachines(t)
	root := w.keys.SigningKey()
	w.rotate()
	believed := func() (out []bool) {
		r := w.rooted(root)
		for _, ref := range []repository.CommitRef{chain[0].CommitRef, chain[2].CommitRef, other.CommitRef} {
			_, err := r.Commit(t.Context(), ref)
			out = append(out, err == nil)
		}
		return out
	}
	check := func(what string, want ...bool) {
		t.Helper()
		if diff := cmp.Diff(want, believed()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("nothing is said", true, true, true)
	for range 2 { // again is harmless
		w.distrusts(1, []repository.CommitRef{chain[0].CommitRef})
	}
	check("a cut", true, false, false)
	w.distrusts(1, []repository.CommitRef{chain[2].CommitRef, other.CommitRef})
	check("another word", true, true, true)
	first, err := objectstore.Get(t.Context(), w.store, "a/distrust-1", 1<<20)
	must(t, err)
	_, err = w.store.Create(t.Context(), "a/distrust-3", first)
	must(t, err)
	check("an old word in a new place", true, true, true)
	_, err = w.store.Create(t.Context(), "a/distrust-4", []byte("garbage"))
	must(t, err)
	w.rotate()
	w.distrusts(1, []repository.CommitRef{other.CommitRef})
	check("a later epoch's word", false, false, true)
	if _, err := w.writer.Distrust(t.Context(), 3, nil); !errors.Is(err, repository.ErrForeign) {
		t.Errorf("an epoch distrusts itself: %v", err)
	}
}

// TestRewrap: after it, either recipient alone restores every backup of every epoch; only files were added.
func TestRewrap(t *testing.T) {
	w, chain, other, in := twoMachines(t)
	root := w.keys.SigningKey()
	before := objectsOf(t, w.store)
	escrow, err := age.GenerateX25519Identity()
	must(t, err)
	both, err := keys.ParseRecipients([]string{w.recipients.Strings()[0], escrow.Recipient().String()})
	must(t, err)
	w.rotate()
	late := w.backup("late", chain[2], in)
	done, err := w.rooted(root).Rewrap(t.Context(), both)
	must(t, err)
	want := repository.Rewrapped{Epochs: 2, Runs: 5}
	if diff := cmp.Diff(want, done); diff != "" {
		t.Errorf("rewrapped (-want +got):\n%s", diff)
	}
	for key, body := range before {
		now, err := objectstore.Get(t.Context(), w.store, key, 64<<20)
		must(t, err)
		if !bytes.Equal(now, body) {
			t.Errorf("%q was changed", key)
		}
	}
	again, err := w.rooted(root).Rewrap(t.Context(), both)
	must(t, err)
	if again.Had != 7 {
		t.Errorf("a second call finds %d of 7 files", again.Had)
	}
	spoilt := "k/1-" + keys.SetFingerprint(both) + ".age"
	file, err := objectstore.Get(t.Context(), w.store, spoilt, 1<<20)
	must(t, err)
	for _, body := range [][]byte{file[:len(file)-1], []byte("garbage"), nil} {
		must(t, w.store.Delete(t.Context(), spoilt))
		_, err = w.store.Create(t.Context(), spoilt, body)
		must(t, err)
		found, err := w.rooted(root).Rewrap(t.Context(), both)
		if err != nil || found.Had != 6 || len(found.LeftOut) != 1 {
			t.Errorf("a file of %d bytes that opens for nobody: %+v, %v", len(body), found, err)
		}
	}
	must(t, w.store.Delete(t.Context(), spoilt))
	if _, err = w.rooted(root).Rewrap(t.Context(), both); err != nil {
		t.Error(err)
	}
	alone := []age.Identity{escrow}
	r, err := repository.OpenWithIdentities(t.Context(), w.store, alone, root)
	must(t, err)
	for _, ref := range []repository.CommitRef{chain[2].CommitRef, late.CommitRef} {
		w.restores(r, ref, in)
	}
	if _, err := restoreAll(t.Context(), r, other.CommitRef); err != nil {
		t.Errorf("another machine's: %v", err)
	}
	w.identities = alone // and a ticket by the escrow identity
	h, _, err := w.unlock2(root, chain[2].CommitRef)
	must(t, err)
	r, err = repository.OpenHanded(t.Context(), w.store, h, root)
	must(t, err)
	w.restores(r, chain[2].CommitRef, in)
}

func objectsOf(t *testing.T, s objectstore.Store) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for info, err := range s.List(t.Context(), "") {
		must(t, err)
		body, err := objectstore.Get(t.Context(), s, info.Key, 64<<20)
		must(t, err)
		out[info.Key] = body
	}
	return out
}

// TestTwoRecipients: each alone restores what was written to both.
func TestTwoRecipients(t *testing.T) {
	w := newWorld(t, nil)
	escrow, err := age.GenerateX25519Identity()
	must(t, err)
	w.recipients, err = keys.ParseRecipients([]string{w.recipients.Strings()[0], escrow.Recipient().String()})
	must(t, err)
	must(t, repository.Init(t.Context(), w.store, w.keys, w.recipients))
	in := input{disks: [][]byte{storetest.Bytes(1, 1<<20)}}
	done := w.backup("b", nil, in)
	for _, id := range []age.Identity{w.identities[0], escrow} {
		r, err := repository.OpenWithIdentities(t.Context(), w.store, []age.Identity{id}, nil)
		must(t, err)
		w.restores(r, done.CommitRef, in)
	}
}

// TestProvenRoot: an identity that has proven the root key authenticates without a pin, and refuses a repository that
// somebody has put in the place of the proven one.
func TestProvenRoot(t *testing.T) {
	w := newWorld(t, nil)
	done := w.backup("b", nil, input{disks: [][]byte{storetest.Bytes(1, 1<<20)}})
	authenticated := func() bool {
		c, err := w.rooted(nil).Commit(t.Context(), done.CommitRef)
		must(t, err)
		return c.Authenticated
	}
	if authenticated() {
		t.Error("authenticated by nothing")
	}
	challenge, err := w.keys.Challenge(w.recipients.Strings()[0])
	must(t, err)
	p, err := keys.Prove(challenge, w.identities[0], w.keys.Repository(), w.keys.SigningKey())
	must(t, err)
	must(t, keys.StoreProof(t.Context(), w.store, w.keys, w.recipients, p))
	if !authenticated() {
		t.Error("the proof does not authenticate")
	}
	q, err := repository.IndexRequest(t.Context(), w.store, "restore", "recipient")
	must(t, err)
	a, err := answerTo(t, q, w.identities, nil)
	must(t, err)
	h := repository.Handed{Epochs: a.Epochs}
	r, err := repository.OpenHanded(t.Context(), w.store, h, nil)
	must(t, err)
	c, err := r.Commit(t.Context(), done.CommitRef)
	must(t, err)
	requests, err := r.DataRequests(t.Context(), c, "restore", "recipient")
	must(t, err)
	if a, err = answerTo(t, requests[0], w.identities, nil); err != nil || !a.Commit.Authenticated {
		t.Errorf("the holder of the identity is not told that the backup is authentic: %v", err)
	}
	forged := newWorld(t, nil)
	forged.recipients = w.recipients
	must(t, repository.Init(t.Context(), forged.store, forged.keys, w.recipients))
	proof, err := objectstore.Get(t.Context(), w.store, keys.ProofKey(p.Recipient), 1<<16)
	must(t, err)
	_, err = forged.store.Create(t.Context(), keys.ProofKey(p.Recipient), proof)
	must(t, err)
	if _, err := repository.OpenWithIdentities(t.Context(), forged.store, w.identities, nil); !errors.Is(err, repository.ErrNotAuthentic) {
		t.Errorf("a forged repository with the true proof: %v", err)
	}
}
