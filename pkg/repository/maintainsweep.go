package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// sweep deletes what is of no use and was so before: commits first, so that none ever
// stands on what is gone, then packs and keys, sessions, and tombstones last.
func (m *machine) sweep(ctx context.Context) error {
	useless := m.useless()
	if err := m.removeCommits(ctx); err != nil {
		return err
	}
	held, unknown, err := m.heldByGoing(ctx)
	if err != nil {
		return err
	}
	for _, info := range useless {
		locked, is := held[listedAs(info.Key)]
		if locked {
			m.result.Locked.add(info.Size)
		}
		if _, err := m.delete(ctx, info, "no backup reaches it", !unknown && !is); err != nil {
			return err
		}
	}
	if err := m.endSessions(ctx); err != nil {
		return err
	}
	return m.endTombstones(ctx)
}

// heldByGoing are the keys that commits need which are announced to go and are still
// there, true of those that a lock keeps there; unknown says that one of them cannot be read.
func (m *machine) heldByGoing(ctx context.Context) (held map[string]bool, unknown bool, err error) {
	held = map[string]bool{}
	for _, n := range slices.SortedFunc(maps.Keys(m.going), bySequence) {
		o := m.going[n]
		if o == nil {
			return nil, true, nil
		}
		needed := map[string]bool{}
		err := m.need(ctx, o, needed)
		for key := range needed {
			held[key] = held[key] || m.locked[n]
		}
		switch {
		case isBroken(err):
			return nil, true, nil
		case err != nil:
			return nil, false, fmt.Errorf("commit %q: %w", keyOf(n), err)
		}
	}
	return held, false, nil
}

// due reports whether a candidate may be deleted in this pass.
func (m *machine) due(key string) bool {
	since, ok := m.before[key]
	within := m.spec.MaxDeletes == 0 || m.deletes < m.spec.MaxDeletes
	return ok && within && m.spec.Now.Unix()-since >= int64(m.spec.Interval.Seconds())
}

// wait leaves a candidate to a later pass.
func (m *machine) wait(key string, bytes int64) {
	m.result.Waiting.add(bytes)
	m.spec.Report(Act{Kind: ActWait, Key: key, Bytes: bytes, Reason: "candidate"})
	if len(m.next) == commit.MaxCandidates {
		return
	}
	since, ok := m.before[key]
	if !ok {
		since = m.spec.Now.Unix()
	}
	m.next = append(m.next, commit.Candidate{Key: key, Since: since})
}

// removeCommits puts the marker in the place of each commit that is due. From there on it
// is gone, and its key is taken for ever.
func (m *machine) removeCommits(ctx context.Context) error {
	for _, n := range slices.SortedFunc(maps.Keys(m.going), bySequence) {
		key := keyOf(n)
		if !m.due(key) {
			m.wait(key, m.listed[n])
			continue
		}
		m.spec.Report(Act{Kind: ActRemove, Key: key, Bytes: m.listed[n], Reason: "it has a tombstone, and nobody stands on it"})
		m.deletes++
		if !m.spec.DryRun {
			_, err := m.store.Replace(ctx, key, m.marker(n))
			if errors.Is(err, objectstore.ErrLocked) {
				m.locked[n] = true
				m.result.Locked.add(m.listed[n])
				m.wait(key, m.listed[n])
				continue // it is there until its lock ends, and so is what it needs
			}
			if err != nil {
				return err
			}
		}
		digest := m.tombstones[n]
		m.result.Removed = append(m.result.Removed, refOf(m.vm, commit.Link{Sequence: n.Sequence, Run: n.Run, Digest: digest}))
		m.gone[n] = true
		delete(m.going, n)
	}
	return nil
}

// delete removes an object that is due, unless something else must go first.
func (m *machine) delete(ctx context.Context, info objectstore.Info, reason string, free bool) (gone bool, err error) {
	if !free || !m.due(info.Key) {
		m.wait(info.Key, info.Size)
		return false, nil
	}
	m.spec.Report(Act{Kind: ActDelete, Key: info.Key, Bytes: info.Size, Reason: reason})
	if !m.spec.DryRun {
		err := m.store.Delete(ctx, info.Key)
		if errors.Is(err, objectstore.ErrLocked) {
			m.result.Locked.add(info.Size)
			m.wait(info.Key, info.Size)
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	m.deletes++
	m.result.Deleted.add(info.Size)
	if o, _, err := layout.OfRun(info.Key); err == nil && o.Kind != layout.KindDataKey {
		m.result.Packs.add(info.Size)
	}
	return true, nil
}

// endSessions removes sessions that have ended and whose makers are gone, and after a
// reader's session what has ended it.
func (m *machine) endSessions(ctx context.Context) error {
	there := map[keys.ID]bool{}
	for _, s := range m.sessions {
		there[s.run] = true
		if !s.ended || !s.dead {
			delete(m.done, s.run) // it is needed as long as the session
			continue
		}
		gone, err := m.delete(ctx, objectstore.Info{Key: s.key}, "its run has ended", true)
		if err != nil {
			return err
		}
		there[s.run] = !gone
	}
	for _, run := range slices.SortedFunc(maps.Keys(m.done), func(a, b keys.ID) int { return slices.Compare(a[:], b[:]) }) {
		info := objectstore.Info{Key: layout.Done(m.vm, run)}
		if _, err := m.delete(ctx, info, "the session that it ended is gone", !there[run]); err != nil {
			return err
		}
	}
	return nil
}

// endTombstones removes the tombstones of commits whose place a marker has taken.
func (m *machine) endTombstones(ctx context.Context) error {
	for _, n := range slices.SortedFunc(maps.Keys(m.tombstones), bySequence) {
		if !m.gone[n] {
			continue
		}
		key := layout.Tombstone(n.VM, n.Sequence, n.Run)
		m.spec.Report(Act{Kind: ActDelete, Key: key, Reason: "its commit is gone"})
		if m.spec.DryRun {
			continue
		}
		err := m.store.Delete(ctx, key)
		if errors.Is(err, objectstore.ErrLocked) {
			m.result.Locked.add(0)
			continue
		}
		if err != nil {
			return err
		}
		m.result.Deleted.add(0)
	}
	return nil
}
