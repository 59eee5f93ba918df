// Package wire is the binary encoding that sealed structures are written in.
//
// Every value has exactly one encoding, and Decoder refuses any other: whole
// numbers are big-endian of fixed width or the shortest LEB128, byte strings carry
// their length, and nothing may follow the last field. Values that a hash or a
// signature covers can therefore be compared as bytes.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrMalformed: the bytes are not the encoding of anything.
var ErrMalformed = errors.New("malformed encoding")

// AppendUvarint appends v as the shortest LEB128, 1 to 10 bytes.
func AppendUvarint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

// AppendBytes appends the length of v as LEB128, then v.
func AppendBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// AppendString is AppendBytes for text.
func AppendString(b []byte, v string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// AppendInt appends a number that is never negative.
func AppendInt[T ~int | ~int64](b []byte, v T) []byte {
	if v < 0 {
		panic(fmt.Sprintf("wire: negative number %d", v))
	}
	return binary.AppendUvarint(b, uint64(v))
}

// AppendBool appends one byte, 0 or 1.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// Decoder reads fields in order. The first error sticks, and every later field is
// zero; Close returns it.
type Decoder struct {
	rest []byte
	err  error
}

// NewDecoder reads b, which must not change meanwhile.
func NewDecoder(b []byte) *Decoder { return &Decoder{rest: b} }

// Fail records an error of the caller's own checks.
func (d *Decoder) Fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
	d.rest = nil
}

// Fixed returns the next n bytes, as part of the input; nil if there are fewer.
func (d *Decoder) Fixed(n int) []byte {
	if d.err != nil || n < 0 || len(d.rest) < n {
		d.Fail("%d bytes are left where %d are needed", len(d.rest), n)
		return nil
	}
	out := d.rest[:n:n]
	d.rest = d.rest[n:]
	return out
}

// Copy fills dst with the next len(dst) bytes.
func (d *Decoder) Copy(dst []byte) { copy(dst, d.Fixed(len(dst))) }

// Byte reads one byte.
func (d *Decoder) Byte() byte {
	if b := d.Fixed(1); b != nil {
		return b[0]
	}
	return 0
}

// Uint16 reads two bytes.
func (d *Decoder) Uint16() uint16 {
	if b := d.Fixed(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

// Uint32 reads four bytes.
func (d *Decoder) Uint32() uint32 {
	if b := d.Fixed(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// Uint64 reads eight bytes.
func (d *Decoder) Uint64() uint64 {
	if b := d.Fixed(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// Bool reads one byte, 0 or 1.
func (d *Decoder) Bool() bool {
	b := d.Byte()
	if b > 1 {
		d.Fail("%d is not a truth value", b)
	}
	return b == 1
}

// Uvarint reads a number up to limit.
func (d *Decoder) Uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(d.rest)
	switch {
	case n <= 0:
		d.Fail("cut or overlong number")
		return 0
	case n > 1 && d.rest[n-1] == 0:
		d.Fail("number is not in its shortest form")
		return 0
	case v > limit:
		d.Fail("number %d is over %d", v, limit)
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// Int reads a number from 0 to limit.
func (d *Decoder) Int(limit int) int { return int(d.Uvarint(uint64(limit))) }

// Int64 reads a number from 0 to the largest int64.
func (d *Decoder) Int64() int64 { return int64(d.Uvarint(math.MaxInt64)) }

// Bytes reads a byte string of at most limit bytes, as part of the input.
func (d *Decoder) Bytes(limit int) []byte { return d.Fixed(d.Int(limit)) }

// String reads text of at most limit bytes.
func (d *Decoder) String(limit int) string { return string(d.Bytes(limit)) }

// Left reports whether bytes are left to be read.
func (d *Decoder) Left() bool { return len(d.rest) > 0 }

// Err is the first error so far.
func (d *Decoder) Err() error { return d.err }

// Close returns the first error, or one if bytes are left.
func (d *Decoder) Close() error {
	if d.err == nil && len(d.rest) > 0 {
		d.Fail("%d bytes follow the last field", len(d.rest))
	}
	return d.err
}
