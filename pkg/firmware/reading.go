package firmware

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
)

// FileReading is what one look at one file saw.
type FileReading struct {
	Path  string `json:"path"`
	Inode uint64 `json:"inode"`
	// ChangeTime is the inode's ctime in nanoseconds since 1970. Its step is the
	// kernel's tick on older kernels, which is why contents are compared as well.
	ChangeTime int64 `json:"changeTimeNanoseconds"`
	Size       int64 `json:"sizeBytes"`
	// Digest is of the content.
	Digest string `json:"digest"`
}

// Reading is what one look at a state volume saw, file by file. Two equal readings
// mean that no file was written, replaced, added or removed between the start of
// the later part of the first and the start of the second: a rewrite with the same
// bytes still moves the ctime, a replacement the inode.
type Reading struct {
	Files []FileReading `json:"files"`
}

// Digest identifies the reading by its canonical encoding (see the package comment).
func (r Reading) Digest() string {
	h := sha256.New()
	putString(h, "vmstate.io/firmware-reading/v1")
	putNumber(h, uint64(len(r.Files)))
	for _, f := range r.Files {
		putString(h, f.Path)
		putNumber(h, f.Inode)
		putNumber(h, uint64(f.ChangeTime))
		putNumber(h, uint64(f.Size))
		putString(h, f.Digest)
	}
	return digestText(h)
}

// Bytes is the sum of all file sizes.
func (r Reading) Bytes() int64 {
	var n int64
	for _, f := range r.Files {
		n += f.Size
	}
	return n
}

// Change says in plain words how one file differs between two readings.
type Change struct {
	Path string `json:"path"`
	What string `json:"what"`
}

func (c Change) String() string { return c.Path + " " + c.What }

// Compare lists what changed from r to later, by path; nothing means unchanged.
func (r Reading) Compare(later Reading) []Change {
	was := make(map[string]FileReading, len(r.Files))
	for _, f := range r.Files {
		was[f.Path] = f
	}
	var changes []Change
	for _, now := range later.Files {
		before, ok := was[now.Path]
		delete(was, now.Path)
		if what := difference(before, now, ok); what != "" {
			changes = append(changes, Change{Path: now.Path, What: what})
		}
	}
	for p := range was {
		changes = append(changes, Change{Path: p, What: "was removed"})
	}
	slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Path, b.Path) })
	return changes
}

func difference(before, now FileReading, existed bool) string {
	switch {
	case !existed:
		return "is new"
	case before.Size != now.Size:
		return fmt.Sprintf("changed its size from %d to %d bytes", before.Size, now.Size)
	case before.Digest != now.Digest && before.Inode != now.Inode:
		return "was replaced by another content"
	case before.Digest != now.Digest:
		return "was written"
	case before.Inode != now.Inode:
		return "was replaced by the same content"
	case before.ChangeTime != now.ChangeTime:
		return "was touched: same content, other change time"
	default:
		return ""
	}
}
