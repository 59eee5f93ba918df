// Package frame compresses and seals units together: up to 1 MiB that is new in one
// run becomes one frame, compressed by zstd and sealed by AES-256-GCM under the data
// key of the attempt. A frame does not depend on the pack that holds it.
package frame

import (
	"crypto/cipher"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

const (
	// MaxPlain is the largest content of a frame in bytes.
	MaxPlain = 1 << 20
	// Overhead is what sealing adds: the GCM tag.
	Overhead = 16
	// MaxSealed bounds a sealed frame: contents are kept raw if zstd gains nothing.
	MaxSealed = MaxPlain + Overhead
	// rawShare: contents are kept raw unless zstd saves more than 1/32, some 3 %.
	rawShare = 32
)

// ErrDamaged: a frame does not open, or not to what it was.
var ErrDamaged = keys.ErrDamaged

// Sealer makes the frames of one attempt. It is used from one goroutine.
type Sealer struct {
	aead cipher.AEAD
	aad  []byte
	zstd *zstd.Encoder
	tmp  []byte
}

// Binding is what a frame is sealed to besides its key and counter.
type Binding struct {
	Repository, VM keys.ID
	Origin         keys.Origin
}

func (b Binding) aad() []byte {
	out := append(b.Repository[:len(b.Repository):len(b.Repository)], b.Origin.Run[:]...)
	return binary.BigEndian.AppendUint16(out, b.Origin.Attempt)
}

// NewSealer seals under the frame key that belongs to data, the attempt's data key.
func NewSealer(data [32]byte, b Binding) (*Sealer, error) {
	enc, err := zstd.NewWriter(nil,
		zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(MaxPlain),
		zstd.WithSingleSegment(true),
		zstd.WithEncoderCRC(false),
		zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("make zstd encoder: %w", err)
	}
	return &Sealer{
		aead: keys.AEAD(keys.FrameKey(data, b.Repository, b.VM, b.Origin)),
		aad:  b.aad(),
		zstd: enc,
	}, nil
}

// Seal appends the frame with this counter to dst and tells whether plain is in it
// uncompressed. A counter is used once in an attempt. plain has 1 to MaxPlain bytes.
func (s *Sealer) Seal(dst []byte, counter uint64, plain []byte) (sealed []byte, raw bool) {
	s.tmp = s.zstd.EncodeAll(plain, s.tmp[:0])
	body := s.tmp
	if len(body) > len(plain)-len(plain)/rawShare {
		body, raw = plain, true
	}
	nonce := nonce(counter)
	return s.aead.Seal(dst, nonce[:], body, binary.BigEndian.AppendUint64(s.aad, counter)), raw
}

func nonce(counter uint64) (n [12]byte) {
	binary.BigEndian.PutUint64(n[4:], counter)
	return n
}

// Opener opens the frames of one attempt. It is used from one goroutine.
type Opener struct {
	aead cipher.AEAD
	aad  []byte
	zstd *zstd.Decoder
}

// NewDecoder makes the zstd decoder that Openers of one goroutine share.
func NewDecoder() (*zstd.Decoder, error) {
	d, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(MaxPlain),
		zstd.WithDecoderMaxWindow(MaxPlain))
	if err != nil {
		return nil, fmt.Errorf("make zstd decoder: %w", err)
	}
	return d, nil
}

// NewOpener opens what NewSealer's sealed with the same key and binding.
func NewOpener(data [32]byte, b Binding, d *zstd.Decoder) *Opener {
	return &Opener{
		aead: keys.AEAD(keys.FrameKey(data, b.Repository, b.VM, b.Origin)),
		aad:  b.aad(),
		zstd: d,
	}
}

// Open returns the contents of a frame, which must be length bytes. sealed is
// overwritten; dst, from its start, may be.
func (o *Opener) Open(dst, sealed []byte, counter uint64, raw bool, length int) ([]byte, error) {
	nonce := nonce(counter)
	body, err := o.aead.Open(sealed[:0], nonce[:], sealed, binary.BigEndian.AppendUint64(o.aad, counter))
	if err != nil {
		return nil, fmt.Errorf("%w: seal does not match", ErrDamaged)
	}
	if raw {
		dst = append(dst[:0], body...)
	} else if dst, err = o.zstd.DecodeAll(body, dst[:0]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if len(dst) != length {
		return nil, fmt.Errorf("%w: it holds %d bytes, not %d", ErrDamaged, len(dst), length)
	}
	return dst, nil
}
