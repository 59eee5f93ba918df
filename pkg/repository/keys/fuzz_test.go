package keys

import (
	"bytes"
	"crypto/ed25519"
	"os"
	"path/filepath"
	"testing"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
)

// corpus is a repository's files of keys, from the vectors of the format, and the keys that they are of.
func corpus(f *testing.F, pattern string) Format {
	f.Helper()
	dir := filepath.Join("..", "testdata", "keys", "store")
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(files) == 0 {
		f.Fatalf("no %q among the vectors: %v", pattern, err)
	}
	for _, name := range files {
		body, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	body, err := os.ReadFile(filepath.Join(dir, FormatKey))
	if err != nil {
		f.Fatal(err)
	}
	format, err := DecodeFormat(body)
	if err != nil {
		f.Fatal(err)
	}
	return format
}

// stranger are keys whose signature is set below what is given, so that the rest is looked at.
func stranger(f *testing.F) *Keys {
	f.Helper()
	k, err := Generate()
	if err != nil {
		f.Fatal(err)
	}
	return k
}

// same fails if a document that was taken has another encoding.
func same(t *testing.T, v any, in []byte) {
	t.Helper()
	if out, err := encode(v); err != nil || !bytes.Equal(out, in) {
		t.Errorf("%s encodes to %s, %v", in, out, err)
	}
}

func FuzzFormat(f *testing.F) {
	corpus(f, FormatKey)
	k := stranger(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		if format, err := DecodeFormat(in); err == nil {
			same(t, format, in)
		}
		var file Format
		if decode(in, &file) != nil {
			return
		}
		file.RootKey, file.Signature = k.SigningKey(), nil
		file.Signature = k.Sign(formatContext, mustEncode(t, file))
		if format, err := DecodeFormat(mustEncode(t, file)); err == nil && format.Parameters != parametersV1() {
			t.Errorf("taken with parameters %+v", format.Parameters)
		}
	})
}

func mustEncode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := encode(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// FuzzEpochFile: also behind a signature, a key file opens to nothing that it does not commit to.
func FuzzEpochFile(f *testing.F) {
	format := corpus(f, "k/*.age")
	k := stranger(f)
	ids := []age.Identity{identityOf(f)}
	f.Fuzz(func(t *testing.T, in []byte) {
		if e, err := decodeEpoch(in); err == nil {
			same(t, e, in)
		}
		var e epochFile
		if decode(in, &e) != nil {
			return
		}
		e.Signer, e.Signature = k.SigningKey(), nil
		e.Signature = k.Sign(epochContext, mustEncode(t, e))
		file, err := decodeEpoch(mustEncode(t, e))
		if err != nil {
			return
		}
		if file.follows(format, e.Epoch, format.RootKey) == nil {
			t.Error("a stranger's file follows the root key")
		}
		if _, err := file.open(format, ids); err == nil {
			t.Error("an identity opens what was never made for it")
		}
		if _, err := file.adopt(format, in); err == nil {
			t.Error("takes keys that it does not commit to")
		}
	})
}

func identityOf(f *testing.F) *age.X25519Identity {
	f.Helper()
	i, err := age.GenerateX25519Identity()
	if err != nil {
		f.Fatal(err)
	}
	return i
}

func FuzzMaintenance(f *testing.F) {
	k := stranger(f)
	format := Format{Repository: k.Repository().String(), RootKey: k.SigningKey()}
	m, err := GenerateMaintenance(k)
	if err != nil {
		f.Fatal(err)
	}
	good, err := encode(maintenanceFile{Version: formatVersion, Repository: format.Repository, Key: m.Public()})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, in []byte) {
		var file maintenanceFile
		if decode(in, &file) != nil {
			return
		}
		file.Signature = nil
		file.Signature = k.Sign(maintenanceContext, mustEncode(t, file))
		key, err := decodeMaintenance(mustEncode(t, file), format, map[uint32]ed25519.PublicKey{1: k.SigningKey()})
		if err == nil && (len(key) != ed25519.PublicKeySize || file.Repository != format.Repository || file.Version != formatVersion) {
			t.Errorf("%s is taken", in)
		}
	})
}

func FuzzDistrust(f *testing.F) {
	corpus(f, "a/distrust-*")
	k := stranger(f)
	one, err := encodeDistrust(k, Distrust{Epoch: 1, Cuts: []Cut{{VM: ID{1}, Sequence: 2, Earlier: make([][32]byte, 2)}}}, 1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(one)
	signers := map[uint32]ed25519.PublicKey{2: k.SigningKey()}
	f.Fuzz(func(t *testing.T, in []byte) {
		var file distrustFile
		if decode(in, &file) != nil {
			return
		}
		file.Signer, file.Signature = k.SigningKey(), nil
		file.Signature = k.Sign(distrustContext, mustEncode(t, file))
		body := mustEncode(t, file)
		d, err := decodeDistrust(body, 1, k.Repository(), signers)
		if err != nil {
			return
		}
		if file.Number != 1 || file.Repository != k.Repository().String() {
			t.Errorf("%s is taken", body)
		}
		for i, c := range d.Cuts {
			if !d.Believes(c.VM, c.Digest) || len(c.Earlier) != len(file.Cuts[i].Earlier)/32 {
				t.Errorf("%s is read as %+v", body, d)
			}
		}
	})
}

// FuzzOwner: with a right MAC, a claim counts for its own number only.
func FuzzOwner(f *testing.F) {
	k := stranger(f)
	claim, err := encode(ownerFile{Version: formatVersion, Repository: k.Repository().String(), Owner: 3, Claimant: ID{1}.String(), TakesOver: []uint64{1}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(claim)
	f.Fuzz(func(t *testing.T, in []byte) {
		var o ownerFile
		if decode(in, &o) != nil {
			return
		}
		var err error
		if o.MAC, err = o.mac(k); err != nil {
			t.Fatal(err)
		}
		s := memstore.New()
		if _, err := s.Create(t.Context(), ownerName(3), mustEncode(t, o)); err != nil {
			t.Fatal(err)
		}
		got, err := readOwner(t.Context(), s, k, 3)
		if err == nil && (got.Owner != 3 || got.Repository != k.Repository().String()) {
			t.Errorf("%s is taken for owner 3", in)
		}
	})
}

// FuzzProof: nothing but what an identity made proves or denies a root key.
func FuzzProof(f *testing.F) {
	format := corpus(f, "a/proof-*")
	i := identityOf(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		s := memstore.New()
		if _, err := s.Create(t.Context(), ProofKey(Fingerprint(i.Recipient().String())), in); err != nil {
			t.Fatal(err)
		}
		if proven, err := CheckProof(t.Context(), s, format, []age.Identity{i}); proven || err != nil {
			t.Errorf("%s: proven %t, %v", in, proven, err)
		}
	})
}

// FuzzSecrets: the Secret of the keys, files of identities, and recipients, as people and clusters may spoil them.
func FuzzSecrets(f *testing.F) {
	k := stranger(f)
	i := identityOf(f)
	s := k.Secret()
	f.Add(s[secretEpoch], s[secretSigning], []byte(i.String()), i.Recipient().String())
	f.Add([]byte("2"), []byte{1}, []byte("# \n\nAGE-SECRET-KEY-PQ-1"), "age1pq1")
	f.Fuzz(func(t *testing.T, epoch, signing, identities []byte, recipient string) {
		data := k.Secret()
		data[secretEpoch], data[secretSigning] = epoch, signing
		if got, err := FromSecret(data); err == nil && (got.epoch != 1 || !bytes.Equal(got.signing.Seed(), signing)) {
			t.Errorf("epoch %q is read as %d", epoch, got.epoch)
		}
		if ids, err := ParseIdentities(identities); (err == nil) != (len(ids) > 0) {
			t.Errorf("%d identities, %v", len(ids), err)
		}
		if r, err := ParseRecipients([]string{recipient}); err == nil && r.Strings()[0] != recipient {
			t.Errorf("recipient %q became %q", recipient, r.Strings())
		}
	})
}
