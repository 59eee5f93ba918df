package commit

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"math"

	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/wire"
)

// SessionKind says what holds a pin.
type SessionKind uint8

// The kinds of sessions. A writer's ends with its commit; a reader's with an object
// of the same key and ".done"; a base pin stands while a chain that began from a
// golden image has commits.
const (
	WriterSession SessionKind = 1
	ReaderSession SessionKind = 2
	BaseSession   SessionKind = 3
)

// Session pins the parent of a run before anything else is written, so that a
// rerun takes the same and garbage collection spares it. It holds no time: who may
// judge it dead is its owner, by looking at the writer.
type Session struct {
	Kind       SessionKind
	Repository keys.ID
	Epoch      uint32
	VM, Run    keys.ID
	Owner      uint64
	Parent     *Link
}

// Sequence is what the commit of this run counts.
func (s Session) Sequence() uint64 {
	if s.Parent == nil {
		return 1
	}
	return s.Parent.Sequence + 1
}

// Encode returns the signed object.
func (s Session) Encode(k *keys.Keys) []byte {
	b := append([]byte(magicSession), byte(s.Kind))
	b = append(b, s.Repository[:]...)
	b = wire.AppendUvarint(b, uint64(s.Epoch))
	b = append(b, s.VM[:]...)
	b = append(b, s.Run[:]...)
	b = wire.AppendUvarint(b, s.Owner)
	b = wire.AppendBool(b, s.Parent != nil)
	if s.Parent != nil {
		b = appendLink(b, *s.Parent)
	}
	return append(b, k.Sign(sessionContext, b)...)
}

// SessionEpoch reads whose signature a session claims to have, which is not yet proven.
func SessionEpoch(object []byte) (uint32, error) {
	if !bytes.HasPrefix(object, []byte(magicSession)) {
		return 0, fmt.Errorf("%w: not a session", keys.ErrDamaged)
	}
	d := wire.NewDecoder(object[len(magicSession):])
	d.Fixed(1 + len(keys.ID{}))
	epoch := uint32(d.Uvarint(math.MaxUint32))
	if err := d.Err(); err != nil {
		return 0, fmt.Errorf("%w: session: %w", keys.ErrDamaged, err)
	}
	return epoch, nil
}

// DecodeSession checks the signature of a session and reads it.
func DecodeSession(object []byte, signer ed25519.PublicKey) (Session, error) {
	var s Session
	cut := len(object) - ed25519.SignatureSize
	if cut < 0 || !bytes.HasPrefix(object, []byte(magicSession)) {
		return s, fmt.Errorf("%w: not a session", keys.ErrDamaged)
	}
	if !ed25519.Verify(signer, append([]byte(sessionContext), object[:cut]...), object[cut:]) {
		return s, fmt.Errorf("%w: signature does not match", keys.ErrNotAuthentic)
	}
	d := wire.NewDecoder(object[len(magicSession):cut])
	if s.Kind = SessionKind(d.Byte()); d.Err() == nil && (s.Kind < WriterSession || s.Kind > BaseSession) {
		d.Fail("session kind %d", s.Kind)
	}
	d.Copy(s.Repository[:])
	s.Epoch = uint32(d.Uvarint(math.MaxUint32))
	d.Copy(s.VM[:])
	d.Copy(s.Run[:])
	s.Owner = d.Uvarint(math.MaxUint64)
	if d.Bool() {
		l := takeLink(d)
		s.Parent = &l
	}
	if err := d.Close(); err != nil {
		return Session{}, fmt.Errorf("%w: session: %w", keys.ErrDamaged, err)
	}
	return s, nil
}
