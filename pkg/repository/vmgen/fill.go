// Package vmgen makes synthetic disk images, and changes to them, that are the same
// on every machine: the images by which the engine is measured ("vmgen-1"). It
// depends on no random generator but its own.
package vmgen

import (
	"encoding/binary"
	"strings"
)

// splitMix is splitmix64.
type splitMix struct{ state uint64 }

func (r *splitMix) next() uint64 {
	r.state += 0x9E3779B97F4A7C15
	z := r.state
	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
	z = (z ^ (z >> 27)) * 0x94D049BB133111EB
	return z ^ (z >> 31)
}

func (r *splitMix) below(n uint64) uint64 { return r.next() % n }

func (r *splitMix) fraction() float64 { return float64(r.next()>>11) / (1 << 53) }

const letters = "etaoinshrdlucmfwypvbgkjqxz"

type dictionary [8192]string

func newDictionary() *dictionary {
	var d dictionary
	r := &splitMix{0xD1C7}
	for i := range d {
		n := 2 + r.below(10)
		var b strings.Builder
		for range n {
			u := r.fraction()
			b.WriteByte(letters[int(u*u*26)])
		}
		d[i] = b.String()
	}
	return &d
}

// kind is what a part of an image holds.
type kind int

const (
	zero kind = iota
	text
	binaryLike
	random
	copied
)

func (d *dictionary) fill(k kind, b []byte, seed uint64) {
	switch k {
	case text:
		d.text(b, seed)
	case binaryLike:
		fillBinary(b, seed)
	case random:
		fillRandom(b, seed)
	default:
		clear(b)
	}
}

// text is words of which some are frequent, twelve a line.
func (d *dictionary) text(b []byte, seed uint64) {
	r := &splitMix{seed}
	words := 0
	for i := 0; i < len(b); {
		u := r.fraction()
		i += copy(b[i:], d[int(u*u*u*8192)])
		if i == len(b) {
			return
		}
		words++
		b[i] = ' '
		if words%12 == 0 {
			b[i] = '\n'
		}
		i++
	}
}

// fillBinary is like machine code and tables: repeats, zeros, small numbers.
func fillBinary(b []byte, seed uint64) {
	r := &splitMix{seed}
	for i := 0; i < len(b); {
		x := r.below(100)
		switch {
		case x < 35 && i > 64:
			i = repeat(r, b, i)
		case x < 60:
			end := min(len(b), i+4+int(r.below(21)))
			clear(b[i:end])
			i = end
		default:
			for n := 8 + int(r.below(17)); n > 0 && i < len(b); n-- {
				u := r.fraction()
				b[i] = byte(u * u * 256)
				i++
			}
		}
	}
}

func repeat(r *splitMix, b []byte, i int) int {
	n := 16 + int(r.below(49))
	from := i - 1 - int(r.below(uint64(min(i, 32768)-1)))
	for k := 0; k < n && i < len(b); k++ {
		b[i] = b[from+k]
		i++
	}
	return i
}

func fillRandom(b []byte, seed uint64) {
	r := &splitMix{seed}
	i := 0
	for ; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.next())
	}
	for ; i < len(b); i++ {
		b[i] = byte(r.next())
	}
}
