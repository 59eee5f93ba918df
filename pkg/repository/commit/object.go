package commit

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// The first eight bytes of an object.
const (
	magicCommit  = "VMSTCMT1"
	magicAborted = "VMSTABT1"
	magicSession = "VMSTSES1"
)

// What signatures are made over begins with these, so that none fits elsewhere.
const (
	commitContext  = "vmstate/v1/commit\x00"
	sessionContext = "vmstate/v1/session\x00"
)

// ErrAborted: a marker is in the place of the commit; the run was ended for good.
var ErrAborted = errors.New("run was aborted")

// Header is the clear head of a commit object. Its key repeats VM, Sequence, Run.
type Header struct {
	Repository keys.ID
	Epoch      uint32
	VM         keys.ID
	Sequence   uint64
	Origin     keys.Origin
}

const headerBytes = 8 + 16 + 4 + 16 + 8 + 16 + 2

func (h Header) append(b []byte, magic string) []byte {
	b = append(b, magic...)
	b = append(b, h.Repository[:]...)
	b = binary.BigEndian.AppendUint32(b, h.Epoch)
	b = append(b, h.VM[:]...)
	b = binary.BigEndian.AppendUint64(b, h.Sequence)
	b = append(b, h.Origin.Run[:]...)
	return binary.BigEndian.AppendUint16(b, h.Origin.Attempt)
}

func parseHeader(b []byte) Header {
	var h Header
	copy(h.Repository[:], b[8:])
	h.Epoch = binary.BigEndian.Uint32(b[24:])
	copy(h.VM[:], b[28:])
	h.Sequence = binary.BigEndian.Uint64(b[44:])
	copy(h.Origin.Run[:], b[52:])
	h.Origin.Attempt = binary.BigEndian.Uint16(b[68:])
	return h
}

// Seal returns the object of a record: header, sealed record, signature.
func Seal(k *keys.Keys, h Header, r *Record) []byte {
	head := h.append(nil, magicCommit)
	aead := keys.AEAD(k.Set().RunKey(keys.PurposeCommit, h.VM, h.Origin))
	body := aead.Seal(head, make([]byte, 12), r.Encode(), head)
	return append(body, k.Sign(commitContext, body)...)
}

// DigestOf is the digest that names a commit object.
func DigestOf(object []byte) Digest { return sha256.Sum256(object) }

// ReadHeader reads the head of a commit object, which is not yet proven.
func ReadHeader(object []byte) (Header, error) {
	if len(object) >= 8 && string(object[:8]) == magicAborted {
		return Header{}, ErrAborted
	}
	if len(object) < headerBytes+16+ed25519.SignatureSize || !bytes.HasPrefix(object, []byte(magicCommit)) {
		return Header{}, fmt.Errorf("%w: not a commit record", keys.ErrDamaged)
	}
	return parseHeader(object), nil
}

// Open checks the signature of a commit object with the key of its epoch and opens
// the record. want is where it was found; another record there is not authentic.
func Open(e *keys.Epoch, object []byte, want Header) (*Record, Header, error) {
	h, err := ReadHeader(object)
	if err != nil {
		return nil, h, err
	}
	cut := len(object) - ed25519.SignatureSize
	signed := append([]byte(commitContext), object[:cut]...)
	if !ed25519.Verify(e.SigningKey, signed, object[cut:]) {
		return nil, h, fmt.Errorf("%w: signature does not match", keys.ErrNotAuthentic)
	}
	want.Origin.Attempt, want.Epoch = h.Origin.Attempt, h.Epoch
	if h != want || h.Epoch != e.Epoch {
		return nil, h, fmt.Errorf("%w: it is the record of another backup", keys.ErrNotAuthentic)
	}
	aead := keys.AEAD(e.RunKey(keys.PurposeCommit, h.VM, h.Origin))
	plain, err := aead.Open(nil, make([]byte, 12), object[headerBytes:cut], object[:headerBytes])
	if err != nil {
		return nil, h, fmt.Errorf("%w: seal of the record does not match", keys.ErrNotAuthentic)
	}
	r, err := DecodeRecord(plain)
	return r, h, err
}

// MaxObject bounds the size of commit and session objects in bytes.
const MaxObject = maxObject
