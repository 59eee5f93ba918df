package frame

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

func noise(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func pair(t *testing.T, b Binding) (*Sealer, *Opener) {
	t.Helper()
	s, err := NewSealer([32]byte{1}, b)
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	return s, NewOpener([32]byte{1}, b, d)
}

func TestRoundTrip(t *testing.T) {
	cases := map[string]struct {
		plain []byte
		raw   bool
	}{
		"Text":     {plain: bytes.Repeat([]byte("one two three "), 1<<16)},
		"Noise":    {plain: noise(MaxPlain), raw: true},
		"OneByte":  {plain: []byte{7}, raw: true},
		"FullText": {plain: bytes.Repeat([]byte{1, 2, 3, 4}, MaxPlain/4)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, o := pair(t, Binding{Origin: keys.Origin{Attempt: 1}})
			sealed, raw := s.Seal(nil, 3, tc.plain)
			if raw != tc.raw || len(sealed) > len(tc.plain)+Overhead {
				t.Errorf("raw is %v, %d bytes became %d", raw, len(tc.plain), len(sealed))
			}
			got, err := o.Open(nil, sealed, 3, raw, len(tc.plain))
			if err != nil || !bytes.Equal(got, tc.plain) {
				t.Errorf("contents differ, or error: %v", err)
			}
		})
	}
}

// TestBinding: a frame opens only as what it was sealed as.
func TestBinding(t *testing.T) {
	home := Binding{Repository: keys.ID{1}, VM: keys.ID{2}, Origin: keys.Origin{Run: keys.ID{3}, Attempt: 4}}
	s, o := pair(t, home)
	plain := bytes.Repeat([]byte("text"), 1000)
	seal := func() []byte { b, _ := s.Seal(nil, 5, plain); return b }
	for name, other := range map[string]Binding{
		"Repository": {keys.ID{9}, home.VM, home.Origin},
		"VM":         {home.Repository, keys.ID{9}, home.Origin},
		"Run":        {home.Repository, home.VM, keys.Origin{Run: keys.ID{9}, Attempt: 4}},
		"Attempt":    {home.Repository, home.VM, keys.Origin{Run: keys.ID{3}, Attempt: 9}},
	} {
		_, wrong := pair(t, other)
		if _, err := wrong.Open(nil, seal(), 5, false, len(plain)); !errors.Is(err, ErrDamaged) {
			t.Errorf("other %s: %v", name, err)
		}
	}
	for name, open := range map[string]func() ([]byte, error){
		"Counter": func() ([]byte, error) { return o.Open(nil, seal(), 6, false, len(plain)) },
		"Raw":     func() ([]byte, error) { return o.Open(nil, seal(), 5, true, len(plain)) },
		"Length":  func() ([]byte, error) { return o.Open(nil, seal(), 5, false, len(plain)-1) },
		"Flip":    func() ([]byte, error) { b := seal(); b[9] ^= 1; return o.Open(nil, b, 5, false, len(plain)) },
		"Cut":     func() ([]byte, error) { b := seal(); return o.Open(nil, b[:len(b)-1], 5, false, len(plain)) },
		"Empty":   func() ([]byte, error) { return o.Open(nil, nil, 5, false, len(plain)) },
	} {
		if _, err := open(); !errors.Is(err, ErrDamaged) {
			t.Errorf("other %s: %v", name, err)
		}
	}
}

// FuzzDecompress: what a holder of the data key seals may be hostile; it ends in an
// error or in as many bytes as were asked for, within the memory of one frame.
func FuzzDecompress(f *testing.F) {
	s, err := NewSealer([32]byte{1}, Binding{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.zstd.EncodeAll(bytes.Repeat([]byte("seed "), 500), nil), 2500)
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd}, 1)
	d, err := NewDecoder()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, length int) {
		o := NewOpener([32]byte{1}, Binding{}, d)
		nonce := nonce(1)
		sealed := s.aead.Seal(nil, nonce[:], body, append(s.aad[:len(s.aad):len(s.aad)], 0, 0, 0, 0, 0, 0, 0, 1))
		got, err := o.Open(nil, sealed, 1, false, length)
		if err == nil && (len(got) != length || length > MaxPlain) {
			t.Errorf("%d bytes, %d asked for", len(got), length)
		}
	})
}
