package keys

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
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

func hybrid(t *testing.T) Identity {
	t.Helper()
	i, err := GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func classic(t *testing.T) *age.X25519Identity {
	t.Helper()
	i, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func recipients(t *testing.T, list ...string) Recipients {
	t.Helper()
	r, err := ParseRecipients(list)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func generate(t *testing.T) *Keys {
	t.Helper()
	k, err := Generate()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestParseRecipients(t *testing.T) {
	a, b, x := hybrid(t), hybrid(t), classic(t)
	cut := a.Recipient[:len(a.Recipient)-1]
	cases := map[string]struct {
		in     []string
		want   error
		says   string
		secret string
	}{
		"Hybrid":            {in: []string{a.Recipient, b.Recipient}},
		"X25519":            {in: []string{x.Recipient().String()}},
		"None":              {want: ErrRecipient, says: "keygen"},
		"Malformed":         {in: []string{a.Recipient, cut}, want: ErrRecipient, says: "2 of 2: malformed hybrid"},
		"MalformedX25519":   {in: []string{"age1xyz"}, want: ErrRecipient, says: "1 of 1: malformed X25519"},
		"Mixed":             {in: []string{a.Recipient, x.Recipient().String()}, want: ErrRecipient, says: "2 of 2: hybrid"},
		"Twice":             {in: []string{a.Recipient, a.Recipient}, want: ErrRecipient, says: "given twice"},
		"Identity":          {in: []string{a.Secret}, want: ErrRecipient, says: "1 of 1: this is an identity", secret: a.Secret},
		"ClassicIdentity":   {in: []string{x.String()}, want: ErrRecipient, says: "this is an identity", secret: x.String()},
		"LowerCaseIdentity": {in: []string{strings.ToLower(x.String())}, want: ErrRecipient, says: "this is an identity", secret: strings.ToLower(x.String())},
		"SSH":               {in: []string{"ssh-ed25519 AAAA"}, want: ErrRecipient, says: "does not begin with"},
		"Empty":             {in: []string{""}, want: ErrRecipient, says: "does not begin with"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseRecipients(tc.in)
			if !errors.Is(err, tc.want) {
				t.Fatalf("error is %v, not %v", err, tc.want)
			}
			if err == nil {
				if diff := cmp.Diff(tc.in, got.Strings()); diff != "" {
					t.Errorf("recipients (-want +got):\n%s", diff)
				}
				return
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %q does not say %q", err, tc.says)
			}
			if tc.secret != "" && strings.Contains(strings.ToUpper(err.Error()), strings.ToUpper(tc.secret)[16:]) {
				t.Errorf("error repeats the identity")
			}
		})
	}
}

func TestParseIdentities(t *testing.T) {
	a, x := hybrid(t), classic(t)
	file := "# made on a Monday\n\n" + a.Secret + "\n" + x.String() + "\n"
	ids, err := ParseIdentities([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, id := range ids {
		got = append(got, RecipientOf(id))
	}
	if diff := cmp.Diff([]string{a.Recipient, x.Recipient().String()}, got); diff != "" {
		t.Errorf("recipients of the identities (-want +got):\n%s", diff)
	}
	for name, bad := range map[string]string{
		"empty": "# nothing\n", "recipient": a.Recipient, "cut": a.Secret[:len(a.Secret)-2], "other": "secret123",
	} {
		_, err := ParseIdentities([]byte(bad))
		if !errors.Is(err, ErrIdentity) {
			t.Errorf("%s: error is %v", name, err)
		}
		if err != nil && name != "empty" && strings.Contains(err.Error(), bad) {
			t.Errorf("%s: error repeats what was given", name)
		}
	}
}

func TestSecret(t *testing.T) {
	k := generate(t)
	again, err := FromSecret(k.Secret())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(k.Secret(), again.Secret()); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	for _, member := range slices.Sorted(maps.Keys(k.Secret())) {
		broken := k.Secret()
		broken[member] = broken[member][1:]
		_, err := FromSecret(broken)
		if !errors.Is(err, ErrSecret) || !strings.Contains(err.Error(), member) {
			t.Errorf("cut member %q: error is %v", member, err)
		}
		if len(broken[member]) > 16 && strings.Contains(err.Error(), hex.EncodeToString(broken[member])) {
			t.Errorf("cut member %q: error repeats it", member)
		}
	}
}

// TestDeriveSeparates: every purpose, context and secret gives a key of its own.
func TestDeriveSeparates(t *testing.T) {
	k := generate(t)
	seen := map[[32]byte]string{}
	add := func(what string, key [32]byte) {
		if before, ok := seen[key]; ok {
			t.Errorf("%s has the key of %s", what, before)
		}
		seen[key] = what
	}
	vm, run := k.Set().VM("uid"), ID{9}
	for _, p := range []Purpose{PurposeContent, PurposeFingerprint, PurposeHide, PurposeNodeHash} {
		add(string(p), k.Set().Key(p, vm))
		add(string(p)+" of another domain", k.Set().Key(p, run))
	}
	for _, p := range []Purpose{PurposeNode, PurposePackTag, PurposeCommit} {
		for attempt := range uint16(3) {
			add(fmt.Sprint(p, attempt), k.Set().RunKey(p, vm, Origin{run, attempt}))
		}
		add(string(p)+" of another VM", k.Set().RunKey(p, ID{1}, Origin{run, 0}))
	}
	add("epoch", k.Set().commitment())
	data := [32]byte{5}
	add("frames", FrameKey(data, k.Repository(), vm, Origin{run, 1}))
	add("commitment", Commitment(data, k.Repository(), vm, Origin{run, 1}))
	if k.Set().VM("a") == k.Set().VM("b") || k.Set().Run(vm, "a") == k.Set().Run(ID{1}, "a") {
		t.Error("names collide")
	}
}

// TestInitAtEveryCall ends Init before and after each call to the store; the next one
// completes it, and a third changes nothing.
func TestInitAtEveryCall(t *testing.T) {
	killed := errors.New("killed")
	k, r := generate(t), recipients(t, classic(t).Recipient().String())
	for n := 1; n <= 3; n++ {
		for _, after := range []bool{false, true} {
			s := faultstore.New(memstore.New(), faultstore.Faults{})
			set := faultstore.Faults{Before: faultstore.FailFrom(n, killed)}
			if after {
				set = faultstore.Faults{After: faultstore.FailFrom(n, killed)}
			}
			s.Set(set)
			if err := Init(t.Context(), s, k, r); !errors.Is(err, killed) {
				t.Errorf("call %d: init ended with %v", n, err)
			}
			s.Set(faultstore.Faults{})
			for range 2 {
				if err := Init(t.Context(), s, k, r); err != nil {
					t.Errorf("after a kill at call %d (after=%v): %v", n, after, err)
				}
			}
			if f, err := ReadFormat(t.Context(), s); err != nil || Owns(f, k) != nil {
				t.Errorf("after a kill at call %d (after=%v): format %v, %v", n, after, f, err)
			}
		}
	}
}

func TestInitForeign(t *testing.T) {
	mine, theirs := generate(t), generate(t)
	r := recipients(t, classic(t).Recipient().String())
	s := memstore.New()
	if err := Init(t.Context(), s, theirs, r); err != nil {
		t.Fatal(err)
	}
	if err := Init(t.Context(), s, mine, r); !errors.Is(err, ErrForeign) {
		t.Errorf("init over another repository: %v", err)
	}
	if err := s.Delete(t.Context(), FormatKey); err != nil {
		t.Fatal(err)
	}
	if err := Init(t.Context(), s, mine, r); !errors.Is(err, ErrForeign) {
		t.Errorf("init over key files of lost keys: %v", err)
	}
}

// TestOpenEpoch: whoever is a recipient opens, also one that came later; for others
// the error names who could.
func TestOpenEpoch(t *testing.T) {
	a, b, stranger := hybrid(t), hybrid(t), hybrid(t)
	k, s := generate(t), memstore.New()
	for _, list := range []Recipients{recipients(t, a.Recipient), recipients(t, a.Recipient, b.Recipient)} {
		if err := Init(t.Context(), s, k, list); err != nil {
			t.Fatal(err)
		}
	}
	f, err := ReadFormat(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	open := func(i Identity) (*Epoch, error) {
		ids, err := ParseIdentities([]byte(i.Secret))
		if err != nil {
			t.Fatal(err)
		}
		return OpenEpoch(t.Context(), s, f, 1, ids)
	}
	for _, i := range []Identity{a, b} {
		e, err := open(i)
		if err != nil {
			t.Fatal(err)
		}
		if e.index != k.index || e.name != k.name || !bytes.Equal(e.SigningKey, k.SigningKey()) {
			t.Error("opened keys are others")
		}
	}
	_, err = open(stranger)
	if !errors.Is(err, ErrWrongIdentity) {
		t.Fatalf("stranger: %v", err)
	}
	for _, i := range []Identity{a, b} {
		if !strings.Contains(err.Error(), Fingerprint(i.Recipient)) {
			t.Errorf("error does not name %s: %v", Short(i.Recipient), err)
		}
	}
}

// TestForgedEpoch: whoever controls the store knows the recipients and can encrypt
// keys of his own to them. That is not taken.
func TestForgedEpoch(t *testing.T) {
	i := hybrid(t)
	r := recipients(t, i.Recipient)
	k, forger, s := generate(t), generate(t), memstore.New()
	forger.repository = k.repository
	if err := Init(t.Context(), s, k, r); err != nil {
		t.Fatal(err)
	}
	f, err := ReadFormat(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := encodeEpoch(forger, forger, r)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), EpochKey(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), EpochKey(1), forged); err != nil {
		t.Fatal(err)
	}
	ids, err := ParseIdentities([]byte(i.Secret))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenEpoch(t.Context(), s, f, 1, ids); !errors.Is(err, ErrNotAuthentic) {
		t.Errorf("forged key file: %v", err)
	}
}

func TestReadFormatAbsent(t *testing.T) {
	_, err := ReadFormat(t.Context(), memstore.New())
	if !errors.Is(err, ErrNotInitialised) || !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("error is %v", err)
	}
}

// TestNamesOutliveEpochs: a chain of backups has one name in every epoch, and an
// epoch file proves the name key as well as the index key.
func TestNamesOutliveEpochs(t *testing.T) {
	k, other := generate(t), generate(t)
	next, err := k.Next()
	if err != nil {
		t.Fatal(err)
	}
	named := *k
	named.name = other.name
	vm := k.Set().VM("uid")
	if got := next.Set().VM("uid"); got != vm {
		t.Errorf("the next epoch names the VM %s, not %s", got, vm)
	}
	if got, want := next.Set().Run(vm, "b"), k.Set().Run(vm, "b"); got != want {
		t.Errorf("the next epoch names the run %s, not %s", got, want)
	}
	if named.Set().VM("uid") == vm {
		t.Error("another name key gives the same name")
	}
	if next.Set().commitment() == k.Set().commitment() || named.Set().commitment() == k.Set().commitment() {
		t.Error("a commitment leaves a key out")
	}
}
