package commit

import (
	"bytes"
	"crypto/ed25519"
	"slices"
	"testing"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// The targets below sign what they are given: behind a signature that is right, an object is as hostile as whoever
// stole the key makes it.

func FuzzSession(f *testing.F) {
	k, _ := generate(f)
	body := func(s Session) []byte {
		b := s.Encode(k)
		return b[:len(b)-ed25519.SignatureSize]
	}
	f.Add(body(Session{Kind: WriterSession, Epoch: 1}))
	f.Add(body(Session{Kind: ReaderSession, Epoch: 200, Owner: 300, Parent: &Link{Sequence: 4, Run: keys.ID{2}}}))
	f.Fuzz(func(t *testing.T, body []byte) {
		in := append(slices.Clone(body), k.Sign(sessionContext, body)...)
		s, err := DecodeSession(in, k.SigningKey())
		epoch, early := SessionEpoch(in)
		if err == nil && (early != nil || epoch != s.Epoch || !bytes.Equal(s.Encode(k), in)) {
			t.Errorf("%x encodes to %x, epoch %d, %v", in, s.Encode(k), epoch, early)
		}
	})
}

func FuzzCandidates(f *testing.F) {
	k, _ := generate(f)
	m, err := keys.GenerateMaintenance(k)
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range []Candidates{{Pass: 1}, {Pass: 2, Keys: []Candidate{{"r/a", 5}, {"s/b", 1_790_000_000}}}} {
		b := c.Encode(m)
		f.Add(b[:len(b)-ed25519.SignatureSize])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		in := append(slices.Clone(body), m.Sign(candidatesContext, body)...)
		c, err := DecodeCandidates(in, []ed25519.PublicKey{m.Public()})
		if err == nil && !bytes.Equal(c.Encode(m), in) {
			t.Errorf("%x encodes to %x", in, c.Encode(m))
		}
	})
}

// FuzzEnded: markers, tombstones and ends of readers are taken only for what they are.
func FuzzEnded(f *testing.F) {
	k, _ := generate(f)
	m, err := keys.GenerateMaintenance(k)
	if err != nil {
		f.Fatal(err)
	}
	h := Header{Repository: k.Repository(), Epoch: 1, VM: keys.ID{1}, Sequence: 7, Origin: keys.Origin{Run: keys.ID{3}}}
	about := Session{Repository: h.Repository, VM: h.VM, Run: h.Origin.Run}
	for _, b := range [][]byte{EncodeAborted(m, h), EncodeTombstone(m, h, Digest{4}), EncodeDone(k, h.VM, h.Origin.Run)} {
		f.Add(b[:len(b)-ed25519.SignatureSize])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		signed := func(context string) []byte { return append(slices.Clone(body), m.Sign(context, body)...) }
		signers := []ed25519.PublicKey{m.Public()}
		again := h
		if len(body) >= headerBytes {
			again.Epoch = parseHeader(body).Epoch // any epoch may have put it
		}
		if in := signed(abortedContext); VerifyAborted(in, h, signers) == nil && !bytes.Equal(in, EncodeAborted(m, again)) {
			t.Errorf("%x is taken for the marker", in)
		}
		in := signed(tombstoneContext)
		if d, err := VerifyTombstone(in, h, signers); err == nil && !bytes.Equal(in, EncodeTombstone(m, again, d)) {
			t.Errorf("%x is taken for the tombstone", in)
		}
		in = append(slices.Clone(body), k.Sign(doneContext, body)...)
		if VerifyDone(in, about, k.SigningKey()) == nil && !bytes.Equal(in, EncodeDone(k, h.VM, h.Origin.Run)) {
			t.Errorf("%x is taken for the end of a reader", in)
		}
	})
}

// FuzzReadings: what is told of how volumes were read is for volumes that there are, whatever is in the extension.
func FuzzReadings(f *testing.F) {
	e, _ := EncodeReadings([]Reading{{Volume: 1, Way: WayAudited, Untold: 5, UntoldAt: 300, Why: "because"}})
	f.Add(e.Data)
	f.Fuzz(func(t *testing.T, in []byte) {
		r := &Record{Volumes: make([]Volume, 2), Extensions: []Extension{{Tag: TagReadings, Data: in}}}
		for i, reading := range r.Readings() {
			if reading.Volume != i || i > 1 || reading.Way > WayAudited || reading.Untold < 0 || reading.UntoldAt < 0 {
				t.Errorf("%x is read as %+v", in, r.Readings())
			}
		}
	})
}
