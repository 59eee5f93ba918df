package keys

import (
	"errors"
	"testing"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
)

// wider is a store with the first file of an epoch for a, and the set of both.
func wider(t *testing.T) (s *memstore.Store, k *Keys, a, b Identity, both Recipients) {
	t.Helper()
	a, b, k, s = hybrid(t), hybrid(t), generate(t), memstore.New()
	if err := Init(t.Context(), s, k, recipients(t, a.Recipient)); err != nil {
		t.Fatal(err)
	}
	return s, k, a, b, recipients(t, a.Recipient, b.Recipient)
}

// TestInitReadsWhatIsThere: a file in the place of the one for later recipients is
// accepted only if it is that one.
func TestInitReadsWhatIsThere(t *testing.T) {
	s, k, a, _, both := wider(t)
	forger := generate(t)
	forger.repository = k.repository
	encoded := func(k *Keys, r Recipients) []byte {
		body, err := encodeEpoch(k, k, r)
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	copied, err := decodeEpoch(encoded(k, both))
	if err != nil {
		t.Fatal(err)
	}
	copied.Signer, copied.Age, copied.Signature = forger.SigningKey(), []byte("another"), nil
	unsigned, err := encode(copied)
	if err != nil {
		t.Fatal(err)
	}
	copied.Signature = forger.Sign(epochContext, unsigned)
	resigned, err := encode(copied)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		body []byte
		want error
	}{
		"Own":      {encoded(k, both), nil},
		"Garbage":  {[]byte("garbage"), ErrDamaged},
		"Foreign":  {encoded(forger, both), ErrForeign},
		"Resigned": {resigned, ErrForeign},
		"Narrower": {encoded(k, recipients(t, a.Recipient)), ErrDamaged},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			key := AddedEpochKey(1, both)
			if _, err := s.Create(t.Context(), key, tc.body); err != nil {
				t.Fatal(err)
			}
			if err := Init(t.Context(), s, k, both); !errors.Is(err, tc.want) {
				t.Errorf("init: %v, not %v", err, tc.want)
			}
			if err := s.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestOpenEpochGoesOn: any file that opens is right, whatever became of the others.
func TestOpenEpochGoesOn(t *testing.T) {
	s, k, _, b, both := wider(t)
	if err := Init(t.Context(), s, k, both); err != nil {
		t.Fatal(err)
	}
	f, err := ReadFormat(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string, body []byte) {
		if err := s.Delete(t.Context(), key); err != nil && !errors.Is(err, objectstore.ErrNotFound) {
			t.Fatal(err)
		}
		if _, err := s.Create(t.Context(), key, body); err != nil {
			t.Fatal(err)
		}
	}
	open := func(i Identity) error {
		ids, err := ParseIdentities([]byte(i.Secret))
		if err != nil {
			t.Fatal(err)
		}
		e, err := OpenEpoch(t.Context(), s, f, 1, ids)
		if err == nil && e.index != k.index {
			t.Error("opened keys are others")
		}
		return err
	}
	put("k/1-0000.age", []byte("garbage")) // listed before the good one
	if err := open(b); err != nil {
		t.Errorf("behind a bad added file: %v", err)
	}
	put(EpochKey(1), []byte("garbage"))
	if err := open(b); err != nil {
		t.Errorf("behind a bad first file: %v", err)
	}
	if err := s.Delete(t.Context(), EpochKey(1)); err != nil {
		t.Fatal(err)
	}
	if err := open(b); err != nil {
		t.Errorf("without a first file: %v", err)
	}
	if err := open(hybrid(t)); !errors.Is(err, objectstore.ErrNotFound) {
		t.Errorf("a stranger without a first file: %v", err)
	}
}
