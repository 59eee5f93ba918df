package repository_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// randomDisk is a mix of zeros, text that compresses and bytes that do not.
func randomDisk(r *rand.Rand, size int) []byte {
	d := make([]byte, size)
	for at := 0; at < size; {
		n := min(1+r.IntN(200<<10), size-at)
		scribble(r, d[at:at+n])
		at += n
	}
	return d
}

func scribble(r *rand.Rand, b []byte) {
	switch r.IntN(4) {
	case 0:
		clear(b)
	case 1:
		word := fmt.Sprintf("word%d ", r.IntN(1000))
		for i := range b {
			b[i] = word[i%len(word)]
		}
	default:
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	}
}

// change edits a disk as a guest would: overwrites, moves, zeroes, grows, shrinks.
func change(r *rand.Rand, d []byte) []byte {
	switch r.IntN(8) {
	case 0:
		return append(d, randomDisk(r, r.IntN(3<<20))...)
	case 1:
		return d[:len(d)-r.IntN(len(d)/4+1)]
	}
	for range r.IntN(6) {
		if len(d) < 2 {
			break
		}
		at := r.IntN(len(d))
		n := min(r.IntN(300<<10), len(d)-at)
		if r.IntN(3) == 0 {
			copy(d[at:at+n], d[r.IntN(len(d)):])
		} else {
			scribble(r, d[at:at+n])
		}
	}
	return d
}

// TestChainsRestore is the property that the whole package stands for: whatever is
// backed up, in whatever chain, every backup restores to the byte.
func TestChainsRestore(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 0))
			w := newWorld(t, nil)
			in := input{
				disks: [][]byte{randomDisk(r, 1+r.IntN(9<<20)), randomDisk(r, r.IntN(3<<20))},
				files: map[string]string{"tpm2-00.permall": "secret", "empty": "", "nvram": string(randomDisk(r, 80<<10))},
			}
			parent := w.backup("b0", nil, in)
			w.mustRestore(parent.CommitRef, in)
			for i := range 6 {
				in = in.clone()
				for d := range in.disks {
					in.disks[d] = change(r, in.disks[d])
				}
				in.files["tpm2-00.permall"] += fmt.Sprint("generation ", i)
				next := w.backup(fmt.Sprint("b", i+1), parent, in)
				if next.Full || next.Sequence != uint64(i+2) {
					t.Fatalf("backup %d is full=%v with sequence %d", i+1, next.Full, next.Sequence)
				}
				w.mustRestore(next.CommitRef, in)
				parent = next
			}
		})
	}
}
