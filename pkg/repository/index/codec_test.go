package index

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/wire"
)

func sampleLeaf() *Leaf {
	a, b := keys.Origin{Run: keys.ID{1}, Attempt: 1}, keys.Origin{Run: keys.ID{2}, Attempt: 3}
	l := &Leaf{Units: make([]Unit, 40)}
	l.Frames = []Frame{
		{Key: a, KeyOrdinal: 2, Counter: 9, Length: 1 << 20, Pack: Location{Origin: a, Number: 3, Ordinal: 70, Offset: 1 << 24, Length: 99_000}},
		{Key: b, KeyOrdinal: 5, Counter: 1, Length: 32 << 10, Raw: true, Pack: Location{Origin: a, Number: 1, Ordinal: 7, Length: 32<<10 + 16}},
	}
	for i := range l.Units {
		if i%3 == 0 {
			continue
		}
		l.Units[i] = Unit{Data: true, ID: Tag{byte(i)}, Fingerprint: Tag{1, byte(i)}, Frame: uint8(i % 3 / 2), Slot: uint8(i % 2)}
	}
	return l
}

func samplePack() Pack {
	return Pack{
		Kind: IndexPack, Origin: keys.Origin{Run: keys.ID{4}, Attempt: 2}, Number: 7, Size: 32 << 20, CRC32C: 0xdeadbeef,
		VersionID: "v.1", Tag: Tag{5}, Total: 100, Live: 60,
	}
}

func TestLeafCodec(t *testing.T) {
	want := sampleLeaf()
	got, err := DecodeLeaf(want.Encode(), 16<<10)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("leaf (-want +got):\n%s", diff)
	}
}

func TestInnerCodec(t *testing.T) {
	want := &inner{level: 2}
	for i := 5; i < FanOut; i += 50 {
		want.children[i] = Ref{Content: Hash{1, byte(i)}, Sealed: Hash{2}, Location: Location{
			Origin: keys.Origin{Run: keys.ID{byte(i / 100)}, Attempt: 1}, Number: 4, Ordinal: 9, Offset: int64(i), Length: 2000,
		}}
	}
	got := &inner{}
	if err := got.decode(want.encode(), 2); err != nil {
		t.Fatal(err)
	}
	if *got != *want {
		t.Error("inner node differs")
	}
}

// Whatever decodes must encode to the same bytes: one value, one encoding.
func FuzzLeaf(f *testing.F) {
	f.Add(sampleLeaf().Encode())
	f.Add(leafOf(7).Encode())
	f.Fuzz(func(t *testing.T, in []byte) {
		l, err := DecodeLeaf(in, 16<<10)
		if err == nil && !bytes.Equal(l.Encode(), in) {
			t.Errorf("%x encodes to %x", in, l.Encode())
		}
	})
}

func FuzzInner(f *testing.F) {
	n := &inner{level: 1}
	n.children[3] = Ref{Content: Hash{1}, Sealed: Hash{2}, Location: Location{Length: 100}}
	f.Add(n.encode())
	f.Fuzz(func(t *testing.T, in []byte) {
		n := &inner{}
		if err := n.decode(in, 1); err == nil && !bytes.Equal(n.encode(), in) {
			t.Errorf("%x encodes to %x", in, n.encode())
		}
	})
}

func FuzzPacks(f *testing.F) {
	k := packKind()
	f.Add(k.encode(map[uint64]Pack{0: samplePack(), 200: {}}))
	f.Fuzz(func(t *testing.T, in []byte) {
		entries, err := k.decode(in)
		if err == nil && len(in) > 0 && !bytes.Equal(k.encode(entries), in) {
			t.Errorf("%x encodes to %x", in, k.encode(entries))
		}
	})
}

func FuzzKeys(f *testing.F) {
	k := keyKind()
	f.Add(k.encode(map[uint64]DataKey{63: {Origin: keys.Origin{Attempt: 1}, Commitment: [32]byte{3}, Sequence: 4, VersionID: "v", Live: 5}}))
	f.Fuzz(func(t *testing.T, in []byte) {
		entries, err := k.decode(in)
		if err == nil && len(in) > 0 && !bytes.Equal(k.encode(entries), in) {
			t.Errorf("%x encodes to %x", in, k.encode(entries))
		}
	})
}

func FuzzDirectory(f *testing.F) {
	dir := Directory{
		Commitment: [32]byte{1}, KeyVersion: "v", Full: true, Ordinal: 3, NextOrdinal: 4,
		Packs:  []DirectoryPack{{Ordinal: 2, Pack: samplePack()}},
		Leaves: []DirectoryLeaf{{Volume: 1, Leaf: 77, Content: Hash{9}, Offset: 100, Length: 2400}},
	}
	f.Add(dir.Encode())
	f.Fuzz(func(t *testing.T, in []byte) {
		dir, err := DecodeDirectory(in)
		if err == nil && !bytes.Equal(dir.Encode(), in) {
			t.Errorf("%x encodes to %x", in, dir.Encode())
		}
	})
}

// TestRefIsBounded: a reference tells how much is read before anything is proven.
func TestRefIsBounded(t *testing.T) {
	for length, good := range map[int64]bool{0: false, 1: true, MaxNode: true, MaxNode + 1: false, maxOffset: false} {
		d := wire.NewDecoder(AppendRef(nil, Ref{Content: Hash{1}, Location: Location{Length: length}}))
		TakeRef(d)
		if err := d.Close(); (err == nil) != good {
			t.Errorf("reference to %d bytes: %v", length, err)
		}
	}
}

func FuzzRef(f *testing.F) {
	f.Add(AppendRef(nil, Ref{Content: Hash{1}, Location: Location{Length: 5}}))
	f.Add(AppendRef(nil, Ref{}))
	f.Fuzz(func(t *testing.T, in []byte) {
		d := wire.NewDecoder(in)
		r := TakeRef(d)
		if d.Close() == nil && !bytes.Equal(AppendRef(nil, r), in) {
			t.Errorf("%x encodes to %x", in, AppendRef(nil, r))
		}
	})
}
