package wire

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

func TestRoundTrip(t *testing.T) {
	b := AppendUvarint(nil, math.MaxUint64)
	b = AppendBytes(b, []byte{1, 2, 3})
	b = AppendString(b, "text")
	b = AppendInt(b, 300)
	b = AppendBool(b, true)
	b = append(b, 0xde, 0xad, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2)
	d := NewDecoder(b)
	type fields struct {
		number  uint64
		bytes   string
		text    string
		small   int
		truth   bool
		sixteen uint16
		thirty  uint32
		sixty   uint64
	}
	got := fields{
		d.Uvarint(math.MaxUint64), string(d.Bytes(3)), d.String(4), d.Int(300),
		d.Bool(), d.Uint16(), d.Uint32(), d.Uint64(),
	}
	want := fields{math.MaxUint64, "\x01\x02\x03", "text", 300, true, 0xdead, 1, 2}
	if got != want || d.Close() != nil {
		t.Errorf("read %+v, %v; want %+v", got, d.Close(), want)
	}
}

// TestRefusals: what another encoder might have written is not read.
func TestRefusals(t *testing.T) {
	cases := map[string]struct {
		in   []byte
		read func(*Decoder)
	}{
		"Overlong":     {[]byte{0x80, 0x00}, func(d *Decoder) { d.Uvarint(9) }},
		"Overflow":     {bytes.Repeat([]byte{0xff}, 11), func(d *Decoder) { d.Uvarint(math.MaxUint64) }},
		"Cut":          {[]byte{0x80}, func(d *Decoder) { d.Uvarint(9) }},
		"OverLimit":    {[]byte{10}, func(d *Decoder) { d.Uvarint(9) }},
		"BytesCut":     {[]byte{3, 1, 2}, func(d *Decoder) { d.Bytes(9) }},
		"BytesTooLong": {[]byte{3, 1, 2, 3}, func(d *Decoder) { d.Bytes(2) }},
		"Truth":        {[]byte{2}, func(d *Decoder) { d.Bool() }},
		"Rest":         {[]byte{1, 1}, func(d *Decoder) { d.Bool() }},
		"Short":        {[]byte{1}, func(d *Decoder) { d.Uint16() }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := NewDecoder(tc.in)
			tc.read(d)
			if err := d.Close(); !errors.Is(err, ErrMalformed) {
				t.Errorf("error is %v", err)
			}
		})
	}
}

// FuzzUvarint: a number that is read has the bytes that would be written for it.
func FuzzUvarint(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte{0xff, 0x01})
	f.Fuzz(func(t *testing.T, in []byte) {
		d := NewDecoder(in)
		v := d.Uvarint(math.MaxUint64)
		if d.Close() == nil && !bytes.Equal(AppendUvarint(nil, v), in) {
			t.Errorf("%x was read as %d", in, v)
		}
	})
}
