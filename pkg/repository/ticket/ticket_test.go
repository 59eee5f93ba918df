package ticket

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

func origin(n byte) keys.Origin { return keys.Origin{Run: keys.ID{n}, Attempt: uint16(n)} }

func indexRequest() *Request {
	return &Request{
		Repository: keys.ID{1, 2}, Restore: "0b1c", Recipient: "age1pq1x", Epochs: []uint32{1, 300},
		Excerpt: Excerpt{{Key: "format.json", Whole: true, Bytes: []byte("{}")}},
	}
}

func dataRequest() *Request {
	return &Request{
		Repository: keys.ID{1, 2}, Restore: "0b1c", Recipient: "age1pq1x",
		Commit: &Commit{Key: "c/a/1", Digest: [32]byte{9}}, Origins: []keys.Origin{origin(1), origin(2)},
		Excerpt: Excerpt{
			{Key: "c/a/1", Whole: true, Bytes: []byte("commit")},
			{Key: "r/a/i1-000000", Offset: 200, Bytes: []byte("node")},
		},
	}
}

func answer() *Ticket {
	return &Ticket{
		Request: IDOf(dataRequest().Encode()), Expires: time.Unix(1_800_000_000, 0),
		Epochs: map[uint32][keys.PayloadBytes]byte{300: {3}, 1: {1}},
		Data:   map[keys.Origin][32]byte{origin(2): {2}, origin(1): {1}},
	}
}

// TestVectors: what FORMAT.md says, as bytes.
func TestVectors(t *testing.T) {
	got := map[string]string{
		"indexRequest": hex.EncodeToString(indexRequest().Encode()),
		"dataRequest":  hex.EncodeToString(dataRequest().Encode()),
		"ticket":       hex.EncodeToString(answer().encode()),
	}
	path := filepath.Join("testdata", "v1.json")
	if os.Getenv("UPDATE") != "" {
		text, err := json.MarshalIndent(got, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]string
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("vectors (-want +got):\n%s", diff)
	}
	for _, r := range []*Request{indexRequest(), dataRequest()} {
		again, err := Decode(r.Encode())
		if diff := cmp.Diff(r, again); diff != "" || err != nil {
			t.Errorf("request (-want +got):\n%s%v", diff, err)
		}
	}
	again, err := decode(answer().encode())
	if diff := cmp.Diff(answer(), again); diff != "" || err != nil {
		t.Errorf("ticket (-want +got):\n%s%v", diff, err)
	}
}

// TestDecodeRefuses: nothing but what Encode writes is read.
func TestDecodeRefuses(t *testing.T) {
	request, tkt := dataRequest().Encode(), answer().encode()
	for i := range request {
		if _, err := Decode(request[:i]); !errors.Is(err, keys.ErrDamaged) {
			t.Fatalf("request cut to %d bytes: %v", i, err)
		}
	}
	for i := range tkt {
		if _, err := decode(tkt[:i]); !errors.Is(err, keys.ErrDamaged) {
			t.Fatalf("ticket cut to %d bytes: %v", i, err)
		}
	}
	both := dataRequest()
	both.Epochs = []uint32{1}
	empty := dataRequest()
	empty.Origins = nil
	for name, body := range map[string][]byte{
		"Longer": append(bytes.Clone(request), 0), "Both": both.Encode(), "NoKeys": empty.Encode(),
		"Nothing": (&Request{}).Encode(), "Huge": append([]byte(magicRequest), make([]byte, MaxRequest)...),
	} {
		if _, err := Decode(body); !errors.Is(err, keys.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := decode(append(bytes.Clone(tkt), 0)); !errors.Is(err, keys.ErrDamaged) {
		t.Errorf("longer ticket: %v", err)
	}
	twice := bytes.Clone(tkt)
	copy(twice[len(twice)-50:], twice[len(twice)-100:len(twice)-50])
	if _, err := decode(twice); !errors.Is(err, keys.ErrDamaged) {
		t.Errorf("one attempt twice: %v", err)
	}
}

// TestOpenTicket: a ticket is good for one recipient, one request and until its time.
func TestOpenTicket(t *testing.T) {
	mine, other := identity(t), identity(t)
	sealed, err := answer().Seal(mine.Recipient().String())
	if err != nil {
		t.Fatal(err)
	}
	id, in := answer().Request, answer().Expires
	got, err := Open(sealed, mine, id, in)
	if diff := cmp.Diff(answer(), got); diff != "" || err != nil {
		t.Errorf("opened (-want +got):\n%s%v", diff, err)
	}
	cut := sealed[:len(sealed)-1]
	for name, try := range map[string]func() error{
		"Late":         func() error { _, err := Open(sealed, mine, id, in.Add(time.Second)); return err },
		"OtherRequest": func() error { _, err := Open(sealed, mine, ID{1}, in); return err },
		"OtherPod":     func() error { _, err := Open(sealed, other, id, in); return err },
		"Cut":          func() error { _, err := Open(cut, mine, id, in); return err },
		"Empty":        func() error { _, err := Open(nil, mine, id, in); return err },
	} {
		if err := try(); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := answer().Seal("nobody"); !errors.Is(err, keys.ErrRecipient) {
		t.Errorf("sealed to nobody: %v", err)
	}
}

func identity(t *testing.T) *age.HybridIdentity {
	t.Helper()
	i, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestExcerpt: what was read through a recorder reads the same from its excerpt, and nothing else is there.
func TestExcerpt(t *testing.T) {
	store := memstore.New()
	for key, body := range map[string]string{"a/1": "first", "a/2": "0123456789", "b": "never read"} {
		if _, err := store.Create(t.Context(), key, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	recorder := NewRecorder(store)
	read := func(s objectstore.Store, key string, offset, length int64) string {
		r, err := s.Open(t.Context(), key, offset, length)
		if err != nil {
			return err.Error()
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	read(recorder, "a/1", 0, -1)
	read(recorder, "a/2", 3, 4)
	s := recorder.Excerpt().Store()
	for _, tc := range []struct {
		key            string
		offset, length int64
		want           string
	}{
		{"a/1", 0, -1, "first"}, {"a/1", 1, 2, "ir"}, {"a/2", 3, 4, "3456"}, {"a/2", 4, 2, "45"},
		{"a/2", 0, -1, "not in the excerpt"}, {"a/2", 3, 5, "not in the excerpt"}, {"b", 0, 1, "not in the excerpt"},
	} {
		if got := read(s, tc.key, tc.offset, tc.length); !strings.Contains(got, tc.want) {
			t.Errorf("%s at %d, %d bytes: %q", tc.key, tc.offset, tc.length, got)
		}
	}
	var listed []string
	for info, err := range s.List(t.Context(), "a/") {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, info.Key)
	}
	if diff := cmp.Diff([]string{"a/1"}, listed); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
	if _, err := s.Create(t.Context(), "c", nil); err == nil {
		t.Error("an excerpt took an object")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(indexRequest().Encode())
	f.Add(dataRequest().Encode())
	f.Add(answer().encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := Decode(b); err == nil && !bytes.Equal(r.Encode(), b) {
			t.Error("a request has two encodings")
		}
		if k, err := decode(b); err == nil && !bytes.Equal(k.encode(), b) {
			t.Error("a ticket has two encodings")
		}
	})
}
