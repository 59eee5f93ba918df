package repository_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// maintenanceVectors holds one object of each kind that garbage collection adds, all of
// which are settled by their keys. -update writes it; run this test alone then.
const maintenanceVectors = "testdata/maintenance.json"

// TestMaintenanceVectors: these objects are what they were, and are read as what they are.
func TestMaintenanceVectors(t *testing.T) {
	fixed := func(name string) []byte { s := sha256.Sum256([]byte(name)); return s[:] }
	k, err := keys.FromSecret(map[string][]byte{
		"version": []byte("1"), "repository": []byte("000102030405060708090a0b0c0d0e0f"), "epoch": []byte("1"),
		"index.key": fixed("index"), "name.key": fixed("name"), "signing.key": fixed("signing"),
	})
	must(t, err)
	m, err := keys.MaintenanceFromSecret(map[string][]byte{
		"version": []byte("1"), "repository": []byte("000102030405060708090a0b0c0d0e0f"), "maintenance.key": fixed("maintenance"),
	})
	must(t, err)
	signers := []ed25519.PublicKey{m.Public()}
	store := memstore.New()
	identity := newWorld(t, nil).recipients
	must(t, keys.Init(t.Context(), store, k, identity))
	_, err = keys.AddMaintenance(t.Context(), store, k, m)
	must(t, err)
	_, err = keys.ClaimOwner(t.Context(), store, k, keys.ID{1}, nil)
	must(t, err)
	_, err = keys.ClaimOwner(t.Context(), store, k, keys.ID{2}, []uint64{0})
	must(t, err)
	got := map[string][]byte{}
	for _, key := range []string{"a/maintenance-1", "o/0", "o/1"} {
		got[key], err = objectstore.Get(t.Context(), store, key, 1<<20)
		must(t, err)
	}
	vm, run := keys.ID{3}, keys.ID{4}
	head := commit.Header{Repository: k.Repository(), Epoch: 1, VM: vm, Sequence: 7, Origin: keys.Origin{Run: run}}
	parent := commit.Link{Sequence: 7, Run: run, Digest: commit.Digest{5}}
	session := commit.Session{Kind: commit.ReaderSession, Repository: k.Repository(), Epoch: 1, VM: vm, Run: keys.ID{6}, Owner: 1, Parent: &parent}
	list := commit.Candidates{Repository: k.Repository(), Pass: 3, Keys: []commit.Candidate{{Key: "c/x", Since: 1_790_000_000}, {Key: "r/y", Since: 1_790_000_001}}}
	got["marker"], got["tombstone"] = commit.EncodeAborted(m, head), commit.EncodeTombstone(m, head, commit.Digest{5})
	got["session"], got["done"], got["candidates"] = session.Encode(k), commit.EncodeDone(k, vm, keys.ID{6}), list.Encode(m)
	if *update {
		body, err := json.MarshalIndent(got, "", "  ")
		must(t, err)
		must(t, os.WriteFile(maintenanceVectors, append(body, '\n'), 0o644))
	}
	body, err := os.ReadFile(maintenanceVectors)
	must(t, err)
	var want map[string][]byte
	must(t, json.Unmarshal(body, &want))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	must(t, commit.VerifyAborted(want["marker"], head, signers))
	d, err := commit.VerifyTombstone(want["tombstone"], head, signers)
	must(t, err)
	must(t, commit.VerifyDone(want["done"], session, k.SigningKey()))
	c, err := commit.DecodeCandidates(want["candidates"], signers)
	must(t, err)
	if diff := cmp.Diff(&list, c); diff != "" || d != (commit.Digest{5}) {
		t.Errorf("digest %x, list (-want +got):\n%s", d, diff)
	}
	for name, object := range want {
		flipped := bytes.Clone(object)
		flipped[len(flipped)/2] ^= 1
		if commit.VerifyAborted(flipped, head, signers) == nil || commit.VerifyDone(flipped, session, k.SigningKey()) == nil {
			t.Errorf("%s is taken with a bit flipped", name)
		}
		if _, err := commit.VerifyTombstone(flipped, head, signers); err == nil {
			t.Errorf("%s is taken for a tombstone with a bit flipped", name)
		}
		if _, err := commit.DecodeCandidates(flipped, signers); err == nil {
			t.Errorf("%s is taken for a list with a bit flipped", name)
		}
	}
}
