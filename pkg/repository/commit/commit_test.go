package commit

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

func sample() *Record {
	at := index.Location{Origin: keys.Origin{Run: keys.ID{3}, Attempt: 1}, Number: 2, Ordinal: 5, Offset: 100, Length: 900}
	parent := Link{Sequence: 6, Run: keys.ID{8}, Digest: Digest{9}}
	return &Record{
		Domain: keys.ID{1}, VM: Subject{"prod", "db", "u1"}, Backup: Subject{"prod", "b", "u2"},
		Created: 1_790_000_000, Owner: 2, Parent: &parent, Live: []Link{{Sequence: 5}, parent},
		Moment: []byte(`{"binding":"Group"}`), Recipients: []string{"00aa"},
		Volumes: []Volume{{
			Name: "root", Role: "Disk", Mode: "Block", Kind: Block, Size: 10 << 30, Unit: SmallUnit, LogicalBlock: 512,
			Used: 5, Sent: 3, Unread: 1, LastRead: 7, Root: index.Ref{Content: index.Hash{1}, Sealed: index.Hash{2}, Location: at},
		}, {Name: "state", Role: "FirmwareState", Kind: Tree, Size: 40_000, Unit: SmallUnit, Manifest: 100}},
		Packs:  index.TableRoot{Next: 9, Root: index.Ref{Content: index.Hash{4}, Location: at}},
		Keys:   index.TableRoot{Next: 2},
		Tail:   []TailPack{{Ordinal: 8, Pack: index.Pack{Kind: index.IndexPack, Size: 4000, VersionID: "v"}}},
		Stored: 77, Extensions: []Extension{{Tag: 0x8001, Data: []byte("later")}},
	}
}

func generate(t testing.TB) (*keys.Keys, *keys.Epoch) {
	t.Helper()
	k, err := keys.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return k, &keys.Epoch{Set: k.Set(), SigningKey: k.SigningKey()}
}

func TestSealOpen(t *testing.T) {
	k, e := generate(t)
	h := Header{Repository: k.Repository(), Epoch: 1, VM: keys.ID{1}, Sequence: 7, Origin: keys.Origin{Run: keys.ID{3}, Attempt: 2}}
	object := Seal(k, h, sample())
	got, gotHeader, err := Open(e, object, h)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), got); diff != "" || gotHeader != h {
		t.Errorf("header %+v, record (-want +got):\n%s", gotHeader, diff)
	}
	if bytes.Contains(object, []byte("prod")) {
		t.Error("a name is readable in the object")
	}
	if !bytes.Equal(object, Seal(k, h, sample())) {
		t.Error("sealing again gives other bytes, so that a retry would meet itself as a stranger")
	}
}

// TestOpenRefusals: a record is taken only where it belongs and only from its signer.
func TestOpenRefusals(t *testing.T) {
	k, e := generate(t)
	thief, _ := generate(t)
	h := Header{Repository: k.Repository(), Epoch: 1, VM: keys.ID{1}, Sequence: 7, Origin: keys.Origin{Run: keys.ID{3}, Attempt: 2}}
	good := Seal(k, h, sample())
	wrong := func(change func(*Header)) Header { w := h; change(&w); return w }
	cases := map[string]struct {
		object []byte
		at     Header
		want   error
	}{
		"OtherSequence":   {good, wrong(func(h *Header) { h.Sequence++ }), keys.ErrNotAuthentic},
		"OtherVM":         {good, wrong(func(h *Header) { h.VM[0]++ }), keys.ErrNotAuthentic},
		"OtherRun":        {good, wrong(func(h *Header) { h.Origin.Run[0]++ }), keys.ErrNotAuthentic},
		"OtherRepository": {good, wrong(func(h *Header) { h.Repository[0]++ }), keys.ErrNotAuthentic},
		"OtherSigner":     {Seal(thief, h, sample()), h, keys.ErrNotAuthentic},
		"Cut":             {good[:len(good)-1], h, keys.ErrNotAuthentic},
		"Short":           {good[:50], h, keys.ErrDamaged},
		"Aborted":         {[]byte(magicAborted + "…"), h, ErrAborted},
		"Nothing":         {nil, h, keys.ErrDamaged},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, _, err := Open(e, tc.object, tc.at); !errors.Is(err, tc.want) {
				t.Errorf("error is %v, not %v", err, tc.want)
			}
		})
	}
}

// TestExtensions: what must be understood and is not ends in a clear refusal.
func TestExtensions(t *testing.T) {
	r := sample()
	r.Extensions[0].Tag = 5
	if _, err := DecodeRecord(r.Encode()); !errors.Is(err, keys.ErrUnsupported) || !strings.Contains(err.Error(), "5") {
		t.Errorf("error is %v", err)
	}
	b := sample().Encode()
	b[0] = 2
	if _, err := DecodeRecord(b); !errors.Is(err, keys.ErrUnsupported) {
		t.Errorf("record of a later version: %v", err)
	}
}

func TestSession(t *testing.T) {
	k, _ := generate(t)
	thief, _ := generate(t)
	parent := Link{Sequence: 4, Run: keys.ID{2}, Digest: Digest{3}}
	want := Session{Kind: ReaderSession, Repository: k.Repository(), Epoch: 1, VM: keys.ID{1}, Run: keys.ID{5}, Owner: 9, Parent: &parent}
	got, err := DecodeSession(want.Encode(k), k.SigningKey())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || got.Sequence() != 5 {
		t.Errorf("sequence %d, session (-want +got):\n%s", got.Sequence(), diff)
	}
	if _, err := DecodeSession(want.Encode(thief), k.SigningKey()); !errors.Is(err, keys.ErrNotAuthentic) {
		t.Errorf("session of another signer: %v", err)
	}
	if _, err := DecodeSession([]byte("VMST"), k.SigningKey()); !errors.Is(err, keys.ErrDamaged) {
		t.Errorf("stump: %v", err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(sample().Encode())
	f.Add((&Record{}).Encode())
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := DecodeRecord(in)
		if err == nil && !bytes.Equal(r.Encode(), in) {
			t.Errorf("%x encodes to %x", in, r.Encode())
		}
	})
}

// FuzzOpen: no bytes but those that were sealed open, and none make a panic.
func FuzzOpen(f *testing.F) {
	k, e := generate(f)
	h := Header{Repository: k.Repository(), Epoch: 1, Sequence: 1}
	good := Seal(k, h, sample())
	f.Add(good)
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, _, err := Open(e, in, h); err == nil && !bytes.Equal(in, good) {
			t.Error("other bytes open")
		}
	})
}
