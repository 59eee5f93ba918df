package pack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

func attempt(t *testing.T) (*Attempt, *index.Nodes) {
	t.Helper()
	k, err := keys.Generate()
	if err != nil {
		t.Fatal(err)
	}
	vm := keys.ID{1}
	return &Attempt{
		VM: vm, Origin: keys.Origin{Run: keys.ID{2}, Attempt: 1},
		Tagger: NewTagger(k.Set(), vm), Ordinals: new(uint64),
	}, index.NewNodes(k.Set(), vm)
}

// TestData: locations say where frames are, records what the store confirmed.
func TestData(t *testing.T) {
	a, _ := attempt(t)
	s := memstore.New()
	up := NewUploader(t.Context(), s, 2)
	defer up.Close()
	d := NewData(a, up, 100, 2)
	var frames [][]byte
	var at []index.Location
	for i := range 7 {
		f := bytes.Repeat([]byte{byte(i)}, 60)
		frames, at = append(frames, f), append(at, d.Add(f, 16<<10))
		if d.Full() {
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(d.Close(), d.Close(), up.Wait()); err != nil {
		t.Fatal(err)
	}
	for i, l := range at {
		got, err := objectstore.GetRange(t.Context(), s, layout.DataPack(a.VM, l.Origin, l.Number), l.Offset, l.Length)
		if err != nil || !bytes.Equal(got, frames[i]) {
			t.Errorf("frame %d is not at %+v: %v", i, l, err)
		}
	}
	total := int64(0)
	for _, p := range d.Take() {
		body, err := objectstore.Get(t.Context(), s, layout.DataPack(a.VM, p.Origin, p.Number), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		want := index.Pack{
			Origin: a.Origin, Number: p.Number, Size: int64(len(body)), CRC32C: objectstore.Checksum(body),
			Tag: a.Tagger.Tag(index.DataPack, a.Origin, p.Number, body), Total: p.Total,
		}
		if diff := cmp.Diff(Numbered{Ordinal: uint64(p.Number), Pack: want}, p); diff != "" {
			t.Errorf("record (-want +got):\n%s", diff)
		}
		total += p.Total
	}
	if total != 7*16<<10 || len(d.Take()) != 0 {
		t.Errorf("packs hold %d bytes of contents", total)
	}
}

// TestTag: another pack, another kind and another byte have other tags.
func TestTag(t *testing.T) {
	a, _ := attempt(t)
	body := []byte("body")
	seen := map[index.Tag]bool{}
	for _, tag := range []index.Tag{
		a.Tagger.Tag(index.DataPack, a.Origin, 0, body),
		a.Tagger.Tag(index.IndexPack, a.Origin, 0, body),
		a.Tagger.Tag(index.DataPack, a.Origin, 1, body),
		a.Tagger.Tag(index.DataPack, keys.Origin{Run: a.Origin.Run, Attempt: 2}, 0, body),
		a.Tagger.Tag(index.DataPack, a.Origin, 0, []byte("bodx")),
	} {
		if seen[tag] {
			t.Errorf("tag %x comes twice", tag)
		}
		seen[tag] = true
	}
}

// TestUploaderFails: after an error nothing more is stored, and every call tells it.
func TestUploaderFails(t *testing.T) {
	s := faultstore.New(memstore.New(), faultstore.Faults{Before: faultstore.FailAt(1, objectstore.ErrFull)})
	up := NewUploader(t.Context(), s, 1)
	defer up.Close()
	released, confirmed := 0, 0
	put := func(key string) error {
		return up.Put(key, []byte("x"), func(objectstore.Info) { confirmed++ }, func() { released++ })
	}
	_ = put("a") // the answer may come here or later
	if err := up.Wait(); !errors.Is(err, objectstore.ErrFull) {
		t.Errorf("wait: %v", err)
	}
	if err := put("b"); !errors.Is(err, objectstore.ErrFull) {
		t.Errorf("put after an error: %v", err)
	}
	up.Close()
	if released != 2 || confirmed != 0 {
		t.Errorf("%d bodies were released, %d confirmed", released, confirmed)
	}
}

// TestIndex: a directory tells what its pack holds; one that is cut is not believed.
func TestIndex(t *testing.T) {
	a, nodes := attempt(t)
	s := memstore.New()
	x := NewIndex(a, s, nodes)
	_, at, err := x.PutNode(t.Context(), []byte("a node"))
	if err != nil {
		t.Fatal(err)
	}
	leaf := index.DirectoryLeaf{Volume: 1, Leaf: 9, Offset: at.Offset, Length: at.Length}
	x.Note(leaf)
	record, where, err := x.Close(t.Context(), index.Directory{Commitment: [32]byte{7}, Full: true})
	if err != nil {
		t.Fatal(err)
	}
	body, err := objectstore.Get(t.Context(), s, layout.IndexPack(a.VM, a.Origin, 0), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if record.Size != int64(len(body)) || record.CRC32C != objectstore.Checksum(body) || record.Live != at.Length {
		t.Errorf("record is %+v for %d bytes", record, len(body))
	}
	place := index.Location{Origin: a.Origin}
	dir, err := OpenDirectory(nodes, place, body)
	if err != nil {
		t.Fatal(err)
	}
	want := index.Directory{Commitment: [32]byte{7}, Full: true, NextOrdinal: 1, Leaves: []index.DirectoryLeaf{leaf}}
	if diff := cmp.Diff(want, dir); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
	if _, err := nodes.Open(where, body[where.Offset:where.End()]); err != nil {
		t.Errorf("directory at %+v: %v", where, err)
	}
	far := bytes.Clone(body)
	binary.BigEndian.PutUint32(far[len(far)-4:], 1<<30)
	for _, bad := range [][]byte{nil, body[:3], body[:len(body)-1], far} {
		if _, err := OpenDirectory(nodes, place, bad); !errors.Is(err, index.ErrDamaged) {
			t.Errorf("directory of %d bytes: %v", len(bad), err)
		}
	}
}
