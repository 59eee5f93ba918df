package index

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
)

const (
	// groupGap is the largest gap of foreign bytes that is read along rather than
	// split a read in two.
	groupGap = 32 << 10
	// groupBytes is the largest read of nodes.
	groupBytes = 4 << 20
)

// group is one read that covers several children of an inner node.
type group struct {
	Location
	last int // the highest slot in it; behind that the bytes are let go
	data []byte
	err  error // why there is none; it is not asked for again
}

// loader reads the children of one inner node in few requests.
type loader struct {
	fetch  Fetcher
	groups []group
	of     [FanOut]int16
}

// plan joins children that lie near each other in one pack. It reads nothing yet.
func (l *loader) plan(n *inner) {
	l.groups = l.groups[:0]
	slots := make([]int, 0, FanOut)
	for i := range n.children {
		if !n.children[i].Zero() {
			slots = append(slots, i)
		}
	}
	slices.SortFunc(slots, func(a, b int) int { return compareLocation(n.children[a].Location, n.children[b].Location) })
	for _, s := range slots {
		at := n.children[s].Location
		if k := len(l.groups) - 1; k >= 0 && l.groups[k].takes(at) {
			g := &l.groups[k]
			g.Length = max(g.End(), at.End()) - g.Offset
			g.last = max(g.last, s)
		} else {
			l.groups = append(l.groups, group{Location: at, last: s})
		}
		l.of[s] = int16(len(l.groups) - 1)
	}
}

func compareLocation(a, b Location) int {
	return cmp.Or(
		bytes.Compare(a.Origin.Run[:], b.Origin.Run[:]),
		cmp.Compare(a.Origin.Attempt, b.Origin.Attempt),
		cmp.Compare(a.Number, b.Number),
		cmp.Compare(a.Offset, b.Offset))
}

func (g *group) takes(at Location) bool {
	return g.Origin == at.Origin && g.Number == at.Number &&
		at.Offset-g.End() <= groupGap && at.End()-g.Offset <= groupBytes
}

// sealed returns the bytes of the child in slot s. Slots are asked for in order.
func (l *loader) sealed(ctx context.Context, n *inner, s int) ([]byte, error) {
	g, at := &l.groups[l.of[s]], n.children[s].Location
	if g.err != nil {
		return nil, g.err
	}
	if g.data == nil {
		data, err := l.fetch.Fetch(ctx, g.Location)
		if errors.Is(err, ErrDamaged) && g.Location != at {
			return l.fetch.Fetch(ctx, at) // others of the group may lie behind a cut
		}
		if err != nil {
			g.err = err
			return nil, err
		}
		if int64(len(data)) != g.Length {
			return nil, fmt.Errorf("%w: %d bytes read, not %d", ErrDamaged, len(data), g.Length)
		}
		g.data = data
	}
	part := g.data[at.Offset-g.Offset : at.End()-g.Offset]
	if s >= g.last {
		g.data = nil
	}
	return part, nil
}
