package repository_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/cryptotest"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore/dirstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/frame"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

var update = flag.Bool("update", false, "write testdata/v1 anew; only before version 1 is released")

// vectorsDir is a repository with two backups, as the first version wrote it. Every
// later version must read it.
const vectorsDir = "testdata/v1"

// vector is what is told beside the repository.
type vector struct {
	Identity string
	Keys     map[string][]byte
	Backups  []vectorBackup
	// Derived are keys and tags by what they are of, in hexadecimal.
	Derived map[string]string
}

type vectorBackup struct {
	Ref   repository.CommitRef
	Disks []string // SHA-256
	Files map[string]string
}

// vectorInput is bytes of a fixed generator: two disks, one not a whole number of
// units long, and two files.
func vectorInput() (first, second input) {
	r := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, 100_000)
	_, _ = r.Read(noise) // never fails
	disk := make([]byte, 1<<20+70_001)
	copy(disk[32<<10:], noise)
	copy(disk[1<<20+10_000:], noise[:60_001])
	small := make([]byte, 20_000)
	copy(small, noise[50_000:])
	first = input{disks: [][]byte{disk, small}, files: map[string]string{"tpm2-00.permall": "secret", "empty": ""}}
	second = first.clone()
	copy(second.disks[0][200_000:], bytes.Repeat([]byte("text that compresses "), 3000))
	clear(second.disks[0][48<<10 : 64<<10])
	second.files["tpm2-00.permall"] = "another"
	return first, second
}

// writeVectors makes the repository from fixed randomness.
func writeVectors(t *testing.T, dir string) vector {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 1)
	identity, err := age.GenerateX25519Identity()
	must(t, err)
	k, err := keys.Generate()
	must(t, err)
	store := filepath.Join(dir, "store")
	must(t, os.MkdirAll(store, 0o755))
	w := &world{t: t, store: dirstore.New(store), keys: k, identities: []age.Identity{identity}}
	w.recipients, err = keys.ParseRecipients([]string{identity.Recipient().String()})
	must(t, err)
	must(t, repository.Init(t.Context(), w.store, k, w.recipients))
	w.writer, err = repository.OpenWithKeys(t.Context(), w.store, k)
	must(t, err)
	v := vector{Identity: identity.String(), Keys: k.Secret(), Derived: derivedVectors(t, k)}
	first, second := vectorInput()
	one := w.backup("one", nil, first)
	two := w.backup("two", one, second)
	for i, in := range []input{first, second} {
		b := vectorBackup{Ref: []repository.CommitRef{one.CommitRef, two.CommitRef}[i], Files: in.files}
		for _, d := range in.disks {
			b.Disks = append(b.Disks, hexSum(d))
		}
		v.Backups = append(v.Backups, b)
	}
	return v
}

func hexSum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// derivedVectors are the values that another implementation would check first.
func derivedVectors(t *testing.T, k *keys.Keys) map[string]string {
	t.Helper()
	s, out := k.Set(), map[string]string{}
	vm := s.VM("vm-uid")
	run := s.Run(vm, "uid-one")
	o := keys.Origin{Run: run, Attempt: 1}
	out["vm of vm-uid"], out["run of uid-one"] = vm.String(), run.String()
	for _, p := range []keys.Purpose{keys.PurposeContent, keys.PurposeFingerprint, keys.PurposeHide} {
		key := s.Key(p, vm)
		out["key "+string(p)+" of the vm"] = hex.EncodeToString(key[:])
	}
	for _, p := range []keys.Purpose{keys.PurposeNode, keys.PurposePackTag, keys.PurposeCommit} {
		key := s.RunKey(p, vm, o)
		out["key "+string(p)+" of attempt 1"] = hex.EncodeToString(key[:])
	}
	unit := bytes.Repeat([]byte{0xab}, 16<<10)
	h := index.NewHasher(s, vm)
	id, fingerprint := h.ID(unit), h.Fingerprint(unit)
	out["id of 16384 x ab"], out["fingerprint of 16384 x ab"] = hex.EncodeToString(id[:]), hex.EncodeToString(fingerprint[:])
	data := [32]byte{1, 2, 3}
	key, commitment := keys.FrameKey(data, s.Repository, vm, o), keys.Commitment(data, s.Repository, vm, o)
	out["frame key of data key 010203 00…"] = hex.EncodeToString(key[:])
	out["commitment of data key 010203 00…"] = hex.EncodeToString(commitment[:])
	sealer, err := frame.NewSealer(data, frame.Binding{Repository: s.Repository, VM: vm, Origin: o})
	must(t, err)
	sealed, raw := sealer.Seal(nil, 7, []byte("short"))
	out[fmt.Sprintf("frame 7 of short, raw=%v", raw)] = hex.EncodeToString(sealed)
	return out
}

// TestVectors reads the repository of the first version, with all that it says.
func TestVectors(t *testing.T) {
	if *update {
		must(t, os.RemoveAll(vectorsDir))
		must(t, os.MkdirAll(vectorsDir, 0o755))
		body, err := json.MarshalIndent(writeVectors(t, vectorsDir), "", "  ")
		must(t, err)
		must(t, os.WriteFile(filepath.Join(vectorsDir, "vector.json"), append(body, '\n'), 0o644))
	}
	v := readVector(t)
	ids, err := keys.ParseIdentities([]byte(v.Identity))
	must(t, err)
	k, err := keys.FromSecret(v.Keys)
	must(t, err)
	r, err := repository.OpenWithIdentities(t.Context(), dirstore.New(filepath.Join(vectorsDir, "store")), ids, k.SigningKey())
	must(t, err)
	for _, want := range v.Backups {
		in, err := restoreAll(t.Context(), r, want.Ref)
		must(t, err)
		got := vectorBackup{Ref: want.Ref, Files: in.files}
		for _, d := range in.disks {
			got.Disks = append(got.Disks, hexSum(d))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("backup (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff(v.Derived, derivedVectors(t, k)); diff != "" {
		t.Errorf("derived values (-want +got):\n%s", diff)
	}
}

func readVector(t *testing.T) vector {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(vectorsDir, "vector.json"))
	must(t, err)
	var v vector
	must(t, json.Unmarshal(body, &v))
	return v
}

// TestVectorsAreWritten writes the same again from the same randomness and compares
// objects. A new Go, age or compressor may give other bytes of the same meaning: then
// compare fewer of them here; the vectors stay as they are.
func TestVectorsAreWritten(t *testing.T) {
	dir := t.TempDir()
	v := writeVectors(t, dir)
	want := contents(t, dirstore.New(filepath.Join(vectorsDir, "store")))
	got := contents(t, dirstore.New(filepath.Join(dir, "store")))
	for _, key := range []string{"format.json", "k/1.age", v.Backups[0].Ref.Key} {
		if !bytes.Equal(want[key], got[key]) {
			t.Errorf("%q is written with other bytes", key)
		}
	}
	if len(want) != len(got) {
		t.Errorf("%d objects, not %d", len(got), len(want))
	}
}
