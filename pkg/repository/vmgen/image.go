package vmgen

import "io"

const (
	// group is the part of an image that is a hole or full of extents.
	group = 16 << 20
	// block is what a change overwrites at a time.
	block = 64 << 10
)

type extent struct {
	kind   kind
	seed   uint64
	length int
}

// isHole tells whether a group of an image is a hole: 40 % are.
func isHole(seed uint64, group int64) bool {
	r := &splitMix{seed ^ uint64(group)*0xA24BAED4963EE407 ^ 0x5ca1ab1e}
	r.next()
	return r.below(100) < 40
}

// Image writes the image of that size and seed to w, which reads as zeros before.
// Holes are not written. With 4 GiB and seed 1 its SHA-256 is
// f834f89f226c36324dd8244a9df37f34022a3a960db0c6aba2d4fe0d141cd3f5.
func Image(w io.WriterAt, size int64, seed uint64) error {
	g := &generator{words: newDictionary(), random: &splitMix{seed}}
	buffer := make([]byte, group)
	for off := int64(0); off < size; off += group {
		if isHole(seed, off/group) {
			continue
		}
		part := buffer[:min(int64(group), size-off)]
		g.group(part)
		if _, err := w.WriteAt(part, off); err != nil {
			return err
		}
	}
	return nil
}

type generator struct {
	words   *dictionary
	random  *splitMix
	history []extent
}

// group fills a group with extents of 4 KiB to 4 MiB: 5 % zero, 20 % text, 45 %
// binary, 20 % random, 10 % copies of earlier ones.
func (g *generator) group(b []byte) {
	for at := 0; at < len(b); {
		n := min(4096<<g.random.below(11), len(b)-at)
		x := g.random.below(100)
		e := extent{kind: pick(x, 5, 25, 70, 90), seed: g.random.next(), length: n}
		if e.kind == copied && len(g.history) > 0 {
			e = g.history[e.seed%uint64(len(g.history))]
			n = min(n, e.length)
			g.words.fill(e.kind, b[at:at+n], e.seed)
			at += n
			continue
		}
		if e.kind == copied {
			e.kind = binaryLike
		}
		g.words.fill(e.kind, b[at:at+n], e.seed)
		if e.kind != zero {
			g.history = append(g.history, e)
		}
		at += n
	}
}

// pick is the kind for x below 100, given the upper limits of all but the last.
func pick(x, zeros, texts, binaries, randoms uint64) kind {
	switch {
	case x < zeros:
		return zero
	case x < texts:
		return text
	case x < binaries:
		return binaryLike
	case x < randoms:
		return random
	default:
		return copied
	}
}

// Scatter overwrites percent of an image with blocks of 64 KiB, at places that are
// not holes: 10 % zero, 20 % text, 45 % binary, 25 % random. After it with 1 percent
// the image named at Image has SHA-256
// 61ddf7f5fcdbe64e710536f8ec5062553068313d967ae94e76c5d6bdba6bc500.
func Scatter(w io.WriterAt, size int64, seed uint64, percent float64) error {
	return change(w, size, seed, percent, 1)
}

// Cluster is Scatter with runs of 16 blocks, a MiB.
func Cluster(w io.WriterAt, size int64, seed uint64, percent float64) error {
	return change(w, size, seed, percent, 16)
}

func change(w io.WriterAt, size int64, seed uint64, percent float64, run int64) error {
	words := newDictionary()
	blocks := size / block
	want := int(float64(blocks) * percent / 100)
	r := &splitMix{seed ^ 0xC0FFEE}
	buffer := make([]byte, block)
	seen := map[int64]bool{}
	free := func(n int64) bool { return n < blocks && !seen[n] && !isHole(seed, n*block/group) }
	for len(seen) < want {
		first := int64(r.below(uint64(blocks)))
		if isHole(seed, first*block/group) {
			continue
		}
		for n := first; n < first+run && len(seen) < want; n++ {
			if !free(n) {
				continue
			}
			seen[n] = true
			x := r.below(100)
			words.fill(pick(x, 10, 30, 75, 100), buffer, r.next())
			if _, err := w.WriteAt(buffer, n*block); err != nil {
				return err
			}
		}
	}
	return nil
}
