package ticket

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/wire"
)

// MaxTicket bounds a sealed ticket in bytes.
const MaxTicket = MaxRequest

// ErrRefused: a ticket is not the answer to the request, or its time is over.
var ErrRefused = errors.New("ticket is refused")

// Ticket hands over keys. It is good for one request.
type Ticket struct {
	Request ID
	// Expires is until when the asking process may accept it, to the second. It binds honest processes only.
	Expires time.Time
	// Epochs are index keys: what the age file of the epoch holds.
	Epochs map[uint32][keys.PayloadBytes]byte
	// Data keys of attempts.
	Data map[keys.Origin][32]byte
}

// Seal encrypts a ticket to the recipient of the request.
func (t *Ticket) Seal(recipient string) ([]byte, error) {
	r, err := keys.ParseRecipients([]string{recipient})
	if err != nil {
		return nil, err
	}
	return r.Wrap(t.encode())
}

func (t *Ticket) encode() []byte {
	b := append([]byte(magicTicket), t.Request[:]...)
	b = wire.AppendInt(b, t.Expires.Unix())
	b = wire.AppendInt(b, len(t.Epochs))
	for _, e := range slices.Sorted(maps.Keys(t.Epochs)) {
		payload := t.Epochs[e]
		b = append(wire.AppendUvarint(b, uint64(e)), payload[:]...)
	}
	b = wire.AppendInt(b, len(t.Data))
	for _, o := range slices.SortedFunc(maps.Keys(t.Data), compareOrigins) {
		key := t.Data[o]
		b = append(appendOrigin(b, o), key[:]...)
	}
	return b
}

func compareOrigins(a, b keys.Origin) int {
	return cmp.Or(bytes.Compare(a.Run[:], b.Run[:]), cmp.Compare(a.Attempt, b.Attempt))
}

// Open opens a ticket for request with the identity that the request was made with. ErrRefused if it is for another
// recipient or another request, or has expired by now.
func Open(sealed []byte, identity age.Identity, request ID, now time.Time) (*Ticket, error) {
	plain, err := keys.UnwrapUpTo(sealed, []age.Identity{identity}, MaxTicket)
	if errors.Is(err, keys.ErrWrongIdentity) {
		return nil, fmt.Errorf("%w: it is sealed to another process than the one that asks", ErrRefused)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	t, err := decode(plain)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	case t.Request != request:
		return nil, fmt.Errorf("%w: it answers another request", ErrRefused)
	case now.After(t.Expires):
		return nil, fmt.Errorf("%w: it has expired at %s", ErrRefused, t.Expires.UTC().Format(time.RFC3339))
	}
	return t, nil
}

// Covers is ErrRefused unless the ticket has every key that q asks for.
func (t *Ticket) Covers(q *Request) error {
	for _, e := range q.Epochs {
		if _, ok := t.Epochs[e]; !ok {
			return fmt.Errorf("%w: it lacks the index keys of epoch %d", ErrRefused, e)
		}
	}
	for _, o := range q.Origins {
		if _, ok := t.Data[o]; !ok {
			return fmt.Errorf("%w: it lacks the key of run %s", ErrRefused, o.Run)
		}
	}
	return nil
}

func decode(plain []byte) (*Ticket, error) {
	if !bytes.HasPrefix(plain, []byte(magicTicket)) {
		return nil, fmt.Errorf("%w: not a ticket", keys.ErrDamaged)
	}
	d := wire.NewDecoder(plain[len(magicTicket):])
	t := &Ticket{Epochs: map[uint32][keys.PayloadBytes]byte{}, Data: map[keys.Origin][32]byte{}}
	d.Copy(t.Request[:])
	t.Expires = time.Unix(d.Int64(), 0)
	for last, i := -1, d.Int(maxEpochs); i > 0 && d.Err() == nil; i-- {
		e := int(d.Uvarint(math.MaxUint32))
		if e <= last {
			d.Fail("epochs are not in order")
		}
		last = e
		t.Epochs[uint32(e)] = [keys.PayloadBytes]byte(take(d, keys.PayloadBytes))
	}
	var last *keys.Origin
	for i := d.Int(maxOrigins); i > 0 && d.Err() == nil; i-- {
		o := takeOrigin(d)
		if last != nil && compareOrigins(*last, o) >= 0 {
			d.Fail("attempts are not in order")
		}
		last = &o
		t.Data[o] = [32]byte(take(d, 32))
	}
	if err := d.Close(); err != nil {
		return nil, fmt.Errorf("%w: ticket: %w", keys.ErrDamaged, err)
	}
	return t, nil
}

// take copies n bytes; zeros where there are fewer, which the decoder remembers.
func take(d *wire.Decoder, n int) []byte {
	out := make([]byte, n)
	d.Copy(out)
	return out
}
