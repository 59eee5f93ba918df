// Package ticket is how the keys of one backup come to a restore without the identity that opens them.
//
// Who restores makes an identity of its own, in memory, and publishes a Request: that identity's recipient, what it
// asks for, and an excerpt of the store that proves what it asks for to somebody who cannot reach the store. Whoever
// holds an identity of the repository reads it, and answers with a Ticket: the keys, sealed to that recipient, for
// this very request, until a given time. A ticket is no secret: nobody but the process that asked can open it.
//
// FORMAT.md tells both to the byte.
package ticket

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"

	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/wire"
)

const (
	magicRequest = "VMSTREQ1"
	magicTicket  = "VMSTTKT1"
)

// Limits of a request. MaxRequest keeps it, as base64, below what etcd takes in one object (1.5 MiB).
const (
	MaxRequest = 900 << 10
	maxText    = 4096
	maxEpochs  = 1 << 16
	maxOrigins = 1 << 16
	maxPieces  = 1 << 16
)

// Commit names the backup that data keys are asked for.
type Commit struct {
	Key    string
	Digest [32]byte
}

// Request asks for keys. Either Epochs or Commit with Origins is set.
type Request struct {
	Repository keys.ID
	// Restore is the UID of the object that the keys are for.
	Restore string
	// Recipient of the identity that the asking process holds in memory.
	Recipient string
	// Epochs whose index keys are asked for.
	Epochs []uint32
	// Commit whose data keys are asked for, and of which attempts.
	Commit  *Commit
	Origins []keys.Origin
	Excerpt Excerpt
}

// ID is the SHA-256 of an encoded request.
type ID [32]byte

// IDOf names an encoded request.
func IDOf(request []byte) ID { return sha256.Sum256(request) }

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Encode returns the bytes that are published.
func (r *Request) Encode() []byte {
	b := append([]byte(magicRequest), r.Repository[:]...)
	b = wire.AppendString(b, r.Restore)
	b = wire.AppendString(b, r.Recipient)
	b = wire.AppendInt(b, len(r.Epochs))
	for _, e := range r.Epochs {
		b = wire.AppendUvarint(b, uint64(e))
	}
	b = wire.AppendBool(b, r.Commit != nil)
	if r.Commit != nil {
		b = wire.AppendString(b, r.Commit.Key)
		b = append(b, r.Commit.Digest[:]...)
	}
	b = wire.AppendInt(b, len(r.Origins))
	for _, o := range r.Origins {
		b = appendOrigin(b, o)
	}
	return r.Excerpt.append(b)
}

// Decode reads what Encode wrote. What it says is not proven yet.
func Decode(request []byte) (*Request, error) {
	if len(request) > MaxRequest || !bytes.HasPrefix(request, []byte(magicRequest)) {
		return nil, fmt.Errorf("%w: not a request for keys", keys.ErrDamaged)
	}
	d := wire.NewDecoder(request[len(magicRequest):])
	r := &Request{}
	d.Copy(r.Repository[:])
	r.Restore, r.Recipient = d.String(maxText), d.String(maxText)
	for range d.Int(maxEpochs) {
		if d.Err() == nil {
			r.Epochs = append(r.Epochs, uint32(d.Uvarint(math.MaxUint32)))
		}
	}
	if d.Bool() {
		r.Commit = &Commit{Key: d.String(maxText)}
		d.Copy(r.Commit.Digest[:])
	}
	for range d.Int(maxOrigins) {
		if d.Err() == nil {
			r.Origins = append(r.Origins, takeOrigin(d))
		}
	}
	r.Excerpt = takeExcerpt(d)
	if err := d.Close(); err != nil {
		return nil, fmt.Errorf("%w: request for keys: %w", keys.ErrDamaged, err)
	}
	if (len(r.Epochs) > 0) == (r.Commit != nil) || (len(r.Origins) > 0) != (r.Commit != nil) {
		return nil, fmt.Errorf("%w: a request is for index keys, or for data keys of one backup", keys.ErrDamaged)
	}
	return r, nil
}

func appendOrigin(b []byte, o keys.Origin) []byte {
	return append(append(b, o.Run[:]...), byte(o.Attempt>>8), byte(o.Attempt))
}

func takeOrigin(d *wire.Decoder) keys.Origin {
	var o keys.Origin
	d.Copy(o.Run[:])
	o.Attempt = d.Uint16()
	return o
}
