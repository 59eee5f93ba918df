package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// announce puts the tombstones of the backups that are to go.
func (m *machine) announce(ctx context.Context) error {
	var asked []Removal
	for _, r := range m.spec.Remove {
		if n, err := layout.ParseCommit(r.Key); err == nil && n.VM == m.vm {
			asked = append(asked, r)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	newest, err := m.newestBut(ctx, asked)
	if err != nil {
		return err
	}
	slices.SortFunc(asked, func(a, b Removal) int { return -bySequence(nameOf(a.CommitRef), nameOf(b.CommitRef)) })
	for _, r := range asked {
		err := m.mayGo(ctx, r, &newest)
		switch {
		case errors.Is(err, ErrAborted):
			m.result.Removed = append(m.result.Removed, r.CommitRef)
			continue
		case isOfOne(err) || errors.Is(err, ErrNewest):
			m.result.Refused = append(m.result.Refused, Refusal{CommitRef: r.CommitRef, Err: err})
			continue
		case err != nil:
			return err
		}
		if err := m.bury(ctx, r.CommitRef); err != nil {
			return err
		}
	}
	return nil
}

func nameOf(ref CommitRef) layout.CommitName {
	n, _ := layout.ParseCommit(ref.Key) // of keys that were parsed before
	return n
}

// newestBut is the highest sequence of a backup that can be used and is not asked to go,
// 0 if there is none.
func (m *machine) newestBut(ctx context.Context, asked []Removal) (uint64, error) {
	var there []layout.CommitName
	for info, err := range m.store.List(ctx, layout.OfVM(layout.Commits, m.vm)) {
		if err != nil {
			return 0, err
		}
		n, err := layout.ParseCommit(info.Key)
		if err == nil && !slices.ContainsFunc(asked, func(r Removal) bool { return r.Key == info.Key }) {
			there = append(there, n)
		}
	}
	slices.SortFunc(there, bySequence)
	for _, n := range slices.Backward(there) {
		_, err := m.repo.readCommit(ctx, CommitRef{Key: keyOf(n)})
		if errors.Is(err, ErrAborted) || isOfOne(err) {
			continue
		}
		if err != nil {
			return 0, err
		}
		_, tombstone, err := m.repo.tombstone(ctx, n)
		if err != nil {
			return 0, err
		}
		if !tombstone {
			return n.Sequence, nil
		}
	}
	return 0, nil
}

// mayGo says why a backup must stay. A damaged one may go; one that is not the one that
// is meant may not. newest is the newest that stays.
func (m *machine) mayGo(ctx context.Context, r Removal, newest *uint64) error {
	n := nameOf(r.CommitRef)
	want, err := parseDigest(r.Digest)
	if err != nil {
		return err
	}
	o, err := m.repo.readCommit(ctx, CommitRef{Key: r.Key})
	switch {
	case isBroken(err):
		return nil
	case err != nil:
		return err
	case o.digest != want:
		return fmt.Errorf("commit %q: %w: its digest is not the one that is to be removed", r.Key, ErrNotAuthentic)
	case !r.Force && n.Sequence > *newest:
		*newest = n.Sequence
		return fmt.Errorf("commit %q: %w", r.Key, ErrNewest)
	default:
		return nil
	}
}

// bury puts the tombstone of a backup, over whatever else somebody has put there.
func (m *machine) bury(ctx context.Context, ref CommitRef) error {
	n := nameOf(ref)
	want, err := parseDigest(ref.Digest)
	if err != nil {
		return err
	}
	have, there, err := m.repo.tombstone(ctx, n)
	if err != nil {
		return err
	}
	if !there || have != want {
		h := m.repo.place(n)
		h.Epoch = m.repo.keys.Epoch()
		key := layout.Tombstone(n.VM, n.Sequence, n.Run)
		m.spec.Report(Act{Kind: ActTombstone, Key: key, Reason: "its backup is to be removed"})
		m.result.Tombstones++
		if !m.spec.DryRun {
			if _, err := m.store.Replace(ctx, key, commit.EncodeTombstone(m.spec.Key, h, want)); err != nil {
				return err
			}
		}
	}
	m.tombstones[n] = want
	return nil
}

// plausible refuses lists that cannot be whole: whatever is missing in them would be
// taken for dead.
func (m *machine) plausible(context.Context) error {
	for _, ref := range m.spec.Known {
		if err := m.there(ref.Key, "it is known to be there"); err != nil {
			return err
		}
	}
	for n, o := range m.live {
		for _, l := range o.record.Live {
			if err := m.there(refOf(m.vm, l).Key, fmt.Sprintf("%q says that it is there", keyOf(n))); err != nil {
				return err
			}
		}
	}
	return nil
}

// there refuses that a commit of this machine is not listed.
func (m *machine) there(key, why string) error {
	n, err := layout.ParseCommit(key)
	if err != nil || n.VM != m.vm || m.lost[key] {
		return nil
	}
	if _, ok := m.listed[n]; !ok {
		return fmt.Errorf("%w: commit %q is not listed, and %s; if it is lost for good, say so", ErrMissing, key, why)
	}
	return nil
}

// explained refuses sessions that stand on a commit which is not listed, and runs that have
// objects, and neither a session nor anything in the place of their commit: every run has
// the one until it has the other.
func (m *machine) explained(context.Context) error {
	known := map[keys.ID]bool{}
	for _, s := range m.sessions {
		known[s.run] = true
		if s.session == nil || s.ended || s.session.Parent == nil {
			continue
		}
		if err := m.there(refOf(m.vm, *s.session.Parent).Key, fmt.Sprintf("%q stands on it", s.key)); err != nil {
			return err
		}
	}
	var first error
	for run, list := range m.runs {
		folder := layout.OfVM(layout.Runs, m.vm) + run.String() + "/"
		if known[run] || m.ofRun[run] || m.lost[folder] {
			continue
		}
		for _, o := range list {
			m.result.Unexplained.add(o.Size)
		}
		first = fmt.Errorf("%w: %q has objects, and neither its session nor its commit is listed; "+
			"if it belongs to nothing, say so", ErrMissing, folder)
	}
	return first
}

// stay finds which commits stay for now, and all that they need.
func (m *machine) stay(ctx context.Context) error {
	for _, s := range m.sessions {
		switch {
		case s.ended:
		case s.session == nil:
			for n := range m.going {
				m.pinned[n] = append(m.pinned[n], s.key)
			}
		case s.session.Parent != nil:
			n := m.name(s.session.Parent.Sequence, s.session.Parent.Run)
			if _, ok := m.going[n]; ok {
				m.pinned[n] = append(m.pinned[n], s.key)
			}
		}
	}
	for n, sessions := range m.pinned {
		m.result.Pinned = append(m.result.Pinned, Pin{CommitRef: CommitRef{Key: keyOf(n)}, Sessions: sessions})
		o := m.going[n]
		if o == nil {
			return fmt.Errorf("commit %q: %w: it is pinned, and cannot be read", keyOf(n), ErrDamaged)
		}
		m.live[n] = o
		delete(m.going, n)
	}
	slices.SortFunc(m.result.Pinned, func(a, b Pin) int { return bySequence(nameOf(a.CommitRef), nameOf(b.CommitRef)) })
	for _, n := range slices.SortedFunc(maps.Keys(m.live), bySequence) {
		if err := m.need(ctx, m.live[n], m.reach); err != nil {
			return fmt.Errorf("commit %q: %w", keyOf(n), err)
		}
	}
	return nil
}

// need adds the keys of all packs and data keys that a commit reaches.
func (m *machine) need(ctx context.Context, o *opened, into map[string]bool) error {
	packs, err := index.OpenPacks(ctx, o.nodes(), m.nodes, o.record.Packs)
	if err != nil {
		return fmt.Errorf("read pack table: %w", err)
	}
	for i := range o.record.Tail {
		into[packNameOf(&o.record.Tail[i].Pack).key(m.vm)] = true
	}
	err = packs.All(ctx, func(_ uint64, p index.Pack) error {
		into[packNameOf(&p).key(m.vm)] = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("read pack table: %w", err)
	}
	dataKeys, err := index.OpenKeys(ctx, o.nodes(), m.nodes, o.record.Keys)
	if err != nil {
		return fmt.Errorf("read key table: %w", err)
	}
	err = dataKeys.All(ctx, func(_ uint64, k index.DataKey) error {
		into[layout.DataKey(m.vm, k.Origin)] = true
		return nil
	})
	if err != nil {
		return fmt.Errorf("read key table: %w", err)
	}
	return nil
}

// nodeCache keeps what was fetched: the tables of backups in a chain share nodes.
type nodeCache struct {
	objects objects
	kept    map[index.Location][]byte
	bytes   int64
}

// maxNodeCache bounds what is kept, in bytes; when it is reached, it begins anew.
const maxNodeCache = 64 << 20

// Fetch reads a range of an index pack, or remembers it.
func (c *nodeCache) Fetch(ctx context.Context, l index.Location) ([]byte, error) {
	if b, ok := c.kept[l]; ok {
		return b, nil
	}
	b, err := c.objects.Fetch(ctx, l)
	if err != nil {
		return nil, err
	}
	if c.kept == nil || c.bytes+l.Length > maxNodeCache {
		c.kept, c.bytes = map[index.Location][]byte{}, 0
	}
	c.kept[l] = b
	c.bytes += l.Length
	return b, nil
}

// stands reports whether an object of a run must stay whatever reaches it: its run may
// still commit.
func (m *machine) stands(run keys.ID) bool {
	return slices.ContainsFunc(m.sessions, func(s *pin) bool { return s.run == run && !s.ended })
}

// listedAs is the key by which tables list an object of a run.
func listedAs(key string) string {
	_, first, _ := layout.OfRun(key) // keys of runs were parsed when they were listed
	return first
}

// useless are the objects of runs that no commit which stays reaches.
func (m *machine) useless() []objectstore.Info {
	var out []objectstore.Info
	for run, list := range m.runs {
		if m.stands(run) {
			continue
		}
		for _, info := range list {
			if !m.reach[listedAs(info.Key)] {
				out = append(out, info)
			}
		}
	}
	slices.SortFunc(out, func(a, b objectstore.Info) int { return slices.Compare([]byte(a.Key), []byte(b.Key)) })
	return out
}
