package keys

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
)

// rotated is a store whose keys are of the third epoch.
func rotated(t *testing.T) (s *memstore.Store, all []*Keys, ids []age.Identity, r Recipients) {
	t.Helper()
	i := hybrid(t)
	s, r = memstore.New(), recipients(t, i.Recipient)
	k := generate(t)
	if err := Init(t.Context(), s, k, r); err != nil {
		t.Fatal(err)
	}
	all = append(all, k)
	for range 2 {
		next := follow(t, k)
		for range 2 { // again is harmless
			if err := Rotate(t.Context(), s, k, next, r); err != nil {
				t.Fatal(err)
			}
		}
		k = next
		all = append(all, k)
	}
	return s, all, parse(t, i), r
}

func follow(t *testing.T, k *Keys) *Keys {
	t.Helper()
	next, err := k.Next()
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func parse(t *testing.T, i Identity) []age.Identity {
	t.Helper()
	ids, err := ParseIdentities([]byte(i.Secret))
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func format(t *testing.T, s objectstore.Store) Format {
	t.Helper()
	f, err := ReadFormat(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestRotate: every epoch opens with the identity by the chain of signatures, with the cluster's newest Secret, and by
// a ticket; that Secret holds no signing key of an epoch that is over.
func TestRotate(t *testing.T) {
	s, all, ids, r := rotated(t)
	f := format(t, s)
	again, err := FromSecret(all[2].Secret())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all[2].Secret(), again.Secret()); diff != "" {
		t.Errorf("secret (-want +got):\n%s", diff)
	}
	held := again.Epochs()
	for n, k := range all {
		epoch := uint32(n) + 1
		e, err := OpenEpoch(t.Context(), s, f, epoch, ids)
		if err != nil {
			t.Fatalf("epoch %d: %v", epoch, err)
		}
		if e.index != k.index || e.name != k.name || !bytes.Equal(e.SigningKey, k.SigningKey()) {
			t.Errorf("epoch %d has other keys", epoch)
		}
		if h := held[epoch]; h == nil || *h.Set != *e.Set || !bytes.Equal(h.SigningKey, e.SigningKey) {
			t.Errorf("the Secret has other keys of epoch %d", epoch)
		}
		if _, err := AdoptEpoch(t.Context(), s, f, epoch, e.Payload()); err != nil {
			t.Errorf("epoch %d by a ticket: %v", epoch, err)
		}
		if err := Owns(f, k); err != nil {
			t.Errorf("keys of epoch %d: %v", epoch, err)
		}
		old, err := Superseded(t.Context(), s, f, k)
		if err != nil || old != (n < 2) {
			t.Errorf("keys of epoch %d superseded: %t, %v", epoch, old, err)
		}
		if n < 2 && slices.ContainsFunc(slices.Collect(maps.Values(all[2].Secret())), func(v []byte) bool { return bytes.Equal(v, k.signing.Seed()) }) {
			t.Errorf("the Secret still signs for epoch %d", epoch)
		}
	}
	if err := Init(t.Context(), s, all[2], recipients(t, ids2(t, r)...)); err != nil {
		t.Errorf("a new recipient in epoch 3: %v", err)
	}
	if _, err := OpenEpoch(t.Context(), s, f, 4, ids); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("epoch 4: %v", err)
	}
}

func ids2(t *testing.T, r Recipients) []string { return append(r.Strings(), hybrid(t).Recipient) }

// TestRotateNewRecipient: who came in a later epoch opens it by a file that the epoch's own key has signed.
func TestRotateNewRecipient(t *testing.T) {
	s, all, _, r := rotated(t)
	b := hybrid(t)
	if err := Init(t.Context(), s, all[2], recipients(t, append(r.Strings(), b.Recipient)...)); err != nil {
		t.Fatal(err)
	}
	e, err := OpenEpoch(t.Context(), s, format(t, s), 3, parse(t, b))
	if err != nil || e.index != all[2].index {
		t.Errorf("the new recipient: %v", err)
	}
}

// TestRotateForged: only the key of the epoch before makes an epoch, and only once.
func TestRotateForged(t *testing.T) {
	s, all, ids, r := rotated(t)
	f := format(t, s)
	stranger := generate(t)
	stranger.repository = all[0].repository
	put := func(k, by *Keys) {
		t.Helper()
		body, err := encodeEpoch(k, by, r)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), EpochKey(k.epoch)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(t.Context(), EpochKey(k.epoch), body); err != nil {
			t.Fatal(err)
		}
	}
	forged := follow(t, all[2])
	forged.signing = stranger.signing
	for name, by := range map[string]*Keys{"Stranger": stranger, "Itself": forged, "AnOlderEpoch": all[0]} {
		t.Run(name, func(t *testing.T) {
			put(forged, by)
			if _, err := OpenEpoch(t.Context(), s, f, 4, ids); !errors.Is(err, ErrNotAuthentic) {
				t.Errorf("open: %v", err)
			}
			if old, err := Superseded(t.Context(), s, f, all[2]); old || err != nil {
				t.Errorf("it supersedes the true keys: %t, %v", old, err)
			}
			if err := Rotate(t.Context(), s, all[2], follow(t, all[2]), r); !errors.Is(err, ErrForeign) {
				t.Errorf("rotate over it: %v", err)
			}
		})
	}
	// A link in the middle that is another's makes all behind it another's.
	middle := follow(t, all[0])
	put(middle, stranger)
	if _, err := OpenEpoch(t.Context(), s, f, 3, ids); !errors.Is(err, ErrNotAuthentic) {
		t.Errorf("behind a forged link: %v", err)
	}
	if err := Rotate(t.Context(), s, all[0], all[2], r); !errors.Is(err, ErrForeign) {
		t.Errorf("an epoch left out: %v", err)
	}
}

// TestRotateAtEveryCall: a rotation that dies is completed by the next.
func TestRotateAtEveryCall(t *testing.T) {
	killed := errors.New("killed")
	i := hybrid(t)
	r := recipients(t, i.Recipient)
	for n := 1; n <= 3; n++ {
		for _, after := range []bool{false, true} {
			k := generate(t)
			next := follow(t, k)
			s := faultstore.New(memstore.New(), faultstore.Faults{})
			if err := Init(t.Context(), s, k, r); err != nil {
				t.Fatal(err)
			}
			set := faultstore.Faults{Before: faultstore.FailFrom(n, killed)}
			if after {
				set = faultstore.Faults{After: faultstore.FailFrom(n, killed)}
			}
			s.Set(set)
			if err := Rotate(t.Context(), s, k, next, r); !errors.Is(err, killed) {
				t.Errorf("call %d: rotate ended with %v", n, err)
			}
			s.Set(faultstore.Faults{})
			if err := Rotate(t.Context(), s, k, next, r); err != nil {
				t.Errorf("after a kill at call %d (after=%v): %v", n, after, err)
			}
			if _, err := OpenEpoch(t.Context(), s, format(t, s), 2, parse(t, i)); err != nil {
				t.Errorf("after a kill at call %d (after=%v): %v", n, after, err)
			}
		}
	}
}

// TestMaintenanceAfterRotation: a maintenance key that a later epoch has signed counts as one of the first does, and
// one that a stranger has signed does not.
func TestMaintenanceAfterRotation(t *testing.T) {
	s, all, _, _ := rotated(t)
	var want [][]byte
	for _, k := range []*Keys{all[0], all[2]} {
		m, err := GenerateMaintenance(k)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := AddMaintenance(t.Context(), s, k, m); err != nil {
			t.Fatal(err)
		}
		want = append(want, m.Public())
	}
	stranger := *all[0]
	stranger.signing = generate(t).signing
	m, err := GenerateMaintenance(&stranger)
	if err != nil {
		t.Fatal(err)
	}
	stranger.rootKey = all[0].SigningKey() // what he says of himself
	if _, err := AddMaintenance(t.Context(), s, &stranger, m); err != nil {
		t.Fatal(err)
	}
	got, err := MaintenanceKeys(t.Context(), s, format(t, s))
	if err != nil || len(got) != 2 || !bytes.Equal(got[0], want[0]) || !bytes.Equal(got[1], want[1]) {
		t.Errorf("%d maintenance keys, %v; want the two that epochs have signed", len(got), err)
	}
}

// TestProof: the holder of an identity tells the root key that it has proven from any other, and nobody else can make
// or check that.
func TestProof(t *testing.T) {
	i, other := hybrid(t), hybrid(t)
	k, s := generate(t), memstore.New()
	r := recipients(t, i.Recipient, other.Recipient)
	if err := Init(t.Context(), s, k, r); err != nil {
		t.Fatal(err)
	}
	f := format(t, s)
	check := func(i Identity, f Format) (bool, error) { return CheckProof(t.Context(), s, f, parse(t, i)) }
	if ok, err := check(i, f); ok || err != nil {
		t.Errorf("proven before it was: %t, %v", ok, err)
	}
	challenge, err := k.Challenge(i.Recipient)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Prove(challenge, parse(t, other)[0], k.repository, k.root()); !errors.Is(err, ErrWrongIdentity) {
		t.Errorf("another identity's challenge: %v", err)
	}
	p, err := Prove(challenge, parse(t, i)[0], k.repository, k.root())
	if err != nil {
		t.Fatal(err)
	}
	guess := p
	guess.Answer[0] ^= 1
	if err := StoreProof(t.Context(), s, k, r, guess); !errors.Is(err, ErrNotAuthentic) {
		t.Errorf("a guessed answer: %v", err)
	}
	if err := StoreProof(t.Context(), s, k, recipients(t, other.Recipient), p); !errors.Is(err, ErrNotAuthentic) {
		t.Errorf("of nobody's identity: %v", err)
	}
	for range 2 {
		if err := StoreProof(t.Context(), s, k, r, p); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := Proven(t.Context(), s, r); err != nil || !slices.Equal(got, []string{Fingerprint(i.Recipient)}) {
		t.Errorf("proven: %v, %v", got, err)
	}
	if ok, err := check(i, f); !ok || err != nil {
		t.Errorf("after the proof: %t, %v", ok, err)
	}
	if ok, err := check(other, f); ok || err != nil {
		t.Errorf("by an identity that has proven nothing: %t, %v", ok, err)
	}
	forged := f
	forged.RootKey = generate(t).SigningKey()
	if _, err := check(i, forged); !errors.Is(err, ErrNotAuthentic) || !strings.Contains(err.Error(), "another root key") {
		t.Errorf("another root key: %v", err)
	}
	body, err := objectstore.Get(t.Context(), s, ProofKey(p.Recipient), maxDocument)
	if err != nil {
		t.Fatal(err)
	}
	for name, altered := range map[string][]byte{
		"Garbage": []byte("garbage"), "Flipped": bytes.Replace(body, []byte(`"proof":"`), []byte(`"proof":"A`), 1),
	} {
		if err := s.Delete(t.Context(), ProofKey(p.Recipient)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Create(t.Context(), ProofKey(p.Recipient), altered); err != nil {
			t.Fatal(err)
		}
		if ok, err := check(i, f); ok || err != nil {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
	}
	if strings.Contains(string(body), i.Secret) {
		t.Error("the proof holds the identity")
	}
}

// TestRotatePlanted: keys of the next epoch that were made by somebody who does not hold those before, and were put
// where the rotation looks for its own, are not signed.
func TestRotatePlanted(t *testing.T) {
	i := hybrid(t)
	s, r, k := memstore.New(), recipients(t, i.Recipient), generate(t)
	if err := Init(t.Context(), s, k, r); err != nil {
		t.Fatal(err)
	}
	cases := map[string]func(*Keys){
		"NameKey":  func(p *Keys) { p.name[0] ^= 1 },
		"IndexKey": func(p *Keys) { p.older[0].index[0] ^= 1 },
		"RootKey":  func(p *Keys) { p.rootKey = p.SigningKey() },
		"Signer":   func(p *Keys) { p.older[0].signing = p.SigningKey() },
		"Epoch":    func(p *Keys) { p.epoch++ },
		"NoneOld":  func(p *Keys) { p.older = nil },
	}
	for name, change := range cases {
		planted := follow(t, k)
		change(planted)
		if err := Rotate(t.Context(), s, k, planted, r); !errors.Is(err, ErrForeign) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := s.Stat(t.Context(), EpochKey(2)); !errors.Is(err, objectstore.ErrNotFound) {
			t.Fatalf("%s: the planted keys were signed: %v", name, err)
		}
	}
}
