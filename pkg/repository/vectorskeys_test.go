package repository_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/cryptotest"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/objectstore/dirstore"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// keysVectorsDir is a repository whose keys were rotated, distrusted, proven and given to a later recipient.
const keysVectorsDir = "testdata/keys"

// keysVector is what is told beside it.
type keysVector struct {
	Identity, Later string
	RootKey         []byte
	// Keys are the Secret of epoch 2.
	Keys map[string][]byte
	// Good is of epoch 1 and believed, Distrusted of epoch 1 and not, New of epoch 2.
	Good, Distrusted, New repository.CommitRef
	// Disk is the SHA-256 of the disk in all of them.
	Disk string
	// Challenge and proof of the identity, in hexadecimal.
	Proof, Answer string
}

func writeKeysVector(t *testing.T) keysVector {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 2)
	dir := filepath.Join(keysVectorsDir, "store")
	must(t, os.MkdirAll(dir, 0o755))
	w := newWorld(t, dirstore.New(dir))
	later, err := age.GenerateX25519Identity()
	must(t, err)
	v := keysVector{RootKey: w.keys.SigningKey(), Later: later.String(), Identity: w.identities[0].(*age.X25519Identity).String()}
	in := input{disks: [][]byte{storetest.Bytes(1, 64<<10)}}
	v.Disk = hexSum(in.disks[0])
	good := w.backup("good", nil, in)
	v.Good, v.Distrusted = good.CommitRef, w.backup("bad", good, in).CommitRef
	challenge, err := w.keys.Challenge(w.recipients.Strings()[0])
	must(t, err)
	p, err := keys.Prove(challenge, w.identities[0], w.keys.Repository(), v.RootKey)
	must(t, err)
	must(t, keys.StoreProof(t.Context(), w.store, w.keys, w.recipients, p))
	v.Proof, v.Answer = hex.EncodeToString(p.MAC[:]), hex.EncodeToString(p.Answer[:])
	w.rotate()
	v.Keys = w.keys.Secret()
	w.distrusts(1, []repository.CommitRef{v.Good})
	v.New = w.backup("new", good, in).CommitRef
	to, err := keys.ParseRecipients([]string{later.Recipient().String()})
	must(t, err)
	_, err = w.rooted(v.RootKey).Rewrap(t.Context(), to)
	must(t, err)
	return v
}

// TestKeysVectors reads it with all that it says: by the identity, by the later one, and with the keys of epoch 2.
func TestKeysVectors(t *testing.T) {
	file := filepath.Join(keysVectorsDir, "vector.json")
	if *update {
		must(t, os.RemoveAll(keysVectorsDir))
		body, err := json.MarshalIndent(writeKeysVector(t), "", "  ")
		must(t, err)
		must(t, os.WriteFile(file, append(body, '\n'), 0o644))
	}
	body, err := os.ReadFile(file)
	must(t, err)
	var v keysVector
	must(t, json.Unmarshal(body, &v))
	store := dirstore.New(filepath.Join(keysVectorsDir, "store"))
	for name, text := range map[string]string{"Identity": v.Identity, "Later": v.Later} {
		ids, err := keys.ParseIdentities([]byte(text))
		must(t, err)
		r, err := repository.OpenWithIdentities(t.Context(), store, ids, nil)
		must(t, err)
		for _, ref := range []repository.CommitRef{v.Good, v.New} {
			in, err := restoreAll(t.Context(), r, ref)
			must(t, err)
			if hexSum(in.disks[0]) != v.Disk {
				t.Errorf("%s: disk of %q differs", name, ref.Key)
			}
		}
		if _, err := r.Commit(t.Context(), v.Distrusted); !errors.Is(err, repository.ErrNotAuthentic) {
			t.Errorf("%s: the distrusted backup: %v", name, err)
		}
		c, err := r.Commit(t.Context(), v.New)
		must(t, err)
		if c.Authenticated != (name == "Identity") {
			t.Errorf("%s: authenticated %t without a pinned key", name, c.Authenticated)
		}
	}
	k, err := keys.FromSecret(v.Keys)
	must(t, err)
	r, err := repository.OpenWithKeys(t.Context(), store, k)
	must(t, err)
	for _, ref := range []repository.CommitRef{v.Good, v.New} {
		if _, err := r.Commit(t.Context(), ref); err != nil {
			t.Errorf("with the keys of epoch 2: %v", err)
		}
	}
}
