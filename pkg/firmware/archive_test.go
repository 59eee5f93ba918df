package firmware

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// bigTree holds incompressible content, so that small chunks are several.
func bigTree(t testing.TB) Tree {
	t.Helper()
	noise := make([]byte, 20_000)
	r := rand.NewChaCha8([32]byte{1})
	if _, err := r.Read(noise); err != nil {
		t.Fatal(err)
	}
	noisy := file("nvram/noise", noise)
	noisy.Xattrs = map[string][]byte{"user.a": {0, 1, '\n', '='}, "user.b": {}}
	return stateTree(t).with(noisy, file("nvram/empty", []byte{}))
}

const smallChunk = 4096

func TestPackUnpack(t *testing.T) {
	for name, tree := range map[string]Tree{"State": stateTree(t), "Big": bigTree(t), "Empty": {}} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{smallChunk, MaxChunkBytes} {
				chunks, err := pack(tree, size)
				if err != nil {
					t.Fatal(err)
				}
				again, err := pack(tree, size)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(chunks, again, sameBytes); diff != "" {
					t.Errorf("a second pack differs: %s", diff)
				}
				for i, c := range chunks {
					if len(c) > size {
						t.Errorf("chunk %d has %d bytes, more than %d", i, len(c), size)
					}
				}
				got, err := Unpack(chunks, 0)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tree, got, sameBytes); diff != "" {
					t.Errorf("Unpack() mismatch (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestUnpackAnyOrder(t *testing.T) {
	chunks, err := pack(bigTree(t), smallChunk)
	if err != nil {
		t.Fatal(err)
	}
	if len(chunks) < 3 {
		t.Fatalf("%d chunks, too few for this test", len(chunks))
	}
	chunks[0], chunks[2] = chunks[2], chunks[0]
	if _, err := Unpack(chunks, 0); err != nil {
		t.Errorf("Secrets come in any order: %v", err)
	}
}

func TestUnpackRefuses(t *testing.T) {
	chunks, err := pack(bigTree(t), smallChunk)
	if err != nil {
		t.Fatal(err)
	}
	others, err := pack(bigTree(t).without("nvram/empty"), smallChunk)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(i int, c []byte) [][]byte {
		out := append([][]byte(nil), chunks...)
		out[i] = c
		return out
	}
	resealed := func(c []byte, at int, b byte) []byte { // a forger who knows the format
		c = altered(c, at, b)
		sum := sha256.Sum256(c[:len(c)-sha256.Size])
		return append(c[:len(c)-sha256.Size:len(c)-sha256.Size], sum[:]...)
	}
	last := len(chunks) - 1
	cases := map[string]struct {
		in   [][]byte
		max  int64
		says string
		want error
	}{
		"None":         {nil, 0, "0 chunks", ErrArchive},
		"FirstMissing": {chunks[1:], 0, "among", ErrArchive},
		"LastMissing":  {chunks[:last], 0, "among", ErrArchive},
		"Twice":        {replace(1, chunks[0]), 0, "twice", ErrArchive},
		"OneTooMany":   {append(append([][]byte(nil), chunks...), chunks[0]), 0, "among", ErrArchive},
		"OtherArchive": {replace(1, others[1]), 0, "another archive", ErrArchive},
		"Cut":          {replace(1, chunks[1][:len(chunks[1])-1]), 0, "number 1 is cut", ErrArchive},
		"CutToNothing": {replace(1, nil), 0, "number 1 is cut", ErrArchive},
		"BitFlip":      {replace(2, altered(chunks[2], 500, chunks[2][500]^1)), 0, "number 2 is cut or altered", ErrArchive},
		"Renumbered":   {replace(1, resealed(chunks[1], 9, 0)), 0, "twice", ErrArchive},
		"Forged":       {replace(1, resealed(chunks[1], 500, chunks[1][500]^1)), 0, "another digest", ErrArchive},
		"TooLarge":     {chunks, 1000, "more than is allowed", ErrTooLarge},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Unpack(tc.in, tc.max)
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("Unpack() = %v, want %v that says %q", err, tc.want, tc.says)
			}
		})
	}
}

// TestEveryByteIsCovered alters each byte of a one-chunk archive in turn.
func TestEveryByteIsCovered(t *testing.T) {
	chunks, err := Pack(treeOf(directory("a"), file("a/x", []byte("state"))))
	if err != nil {
		t.Fatal(err)
	}
	for at := range chunks[0] {
		if _, err := Unpack([][]byte{altered(chunks[0], at, chunks[0][at]^1)}, 0); !errors.Is(err, ErrArchive) {
			t.Fatalf("an altered byte at %d is taken: %v", at, err)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	chunks, err := pack(treeOf(directory("a"), file("a/x", bytes.Repeat([]byte("state"), 100))), 200)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(chunks[0], chunks[1])
	f.Add(chunks[1], chunks[0])
	f.Fuzz(func(t *testing.T, a, b []byte) {
		tree, err := Unpack([][]byte{a, b}, 1<<20)
		if err != nil && !errors.Is(err, ErrArchive) && !errors.Is(err, ErrTooLarge) {
			t.Errorf("error of another kind: %v", err)
		}
		if err == nil && tree.Validate() != nil {
			t.Errorf("a tree that breaks the rules: %v", tree.Validate())
		}
	})
}

// FuzzPayload goes past the digests, where only a forger gets.
func FuzzPayload(f *testing.F) {
	payload, err := compress(treeOf(directory("a"), file("a/x", []byte("state"))))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(payload)
	f.Fuzz(func(t *testing.T, b []byte) {
		tree, err := decompress(b, 1<<20)
		if err != nil && !errors.Is(err, ErrArchive) && !errors.Is(err, ErrTooLarge) {
			t.Errorf("error of another kind: %v", err)
		}
		if tree.Bytes() > 1<<20 {
			t.Errorf("%d bytes where 1 MiB is allowed", tree.Bytes())
		}
	})
}
