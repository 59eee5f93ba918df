package repository

import (
	"cmp"
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

// machine is one pass over what one virtual machine has in the store.
type machine struct {
	*pass
	vm keys.ID

	tombstones map[layout.CommitName]commit.Digest
	runs       map[keys.ID][]objectstore.Info // objects, by run
	sessions   []*pin
	done       map[keys.ID]bool // readers that have said so
	listed     map[layout.CommitName]int64
	ofRun      map[keys.ID]bool // runs whose commit's key is taken

	live  map[layout.CommitName]*opened // commits that stay
	going map[layout.CommitName]*opened // with a tombstone; nil if it cannot be read
	gone  map[layout.CommitName]bool    // a marker is in their place
	// locked are those of going that the store would not replace.
	locked map[layout.CommitName]bool

	pinned map[layout.CommitName][]string
	reach  map[string]bool // keys that commits which stay need
	nodes  *nodeCache
}

// pin is one session as it was found.
type pin struct {
	key     string
	run     keys.ID
	session *commit.Session // nil if it cannot be read
	ended   bool
	dead    bool
}

func (p *pass) newMachine(vm keys.ID) *machine {
	return &machine{
		pass: p, vm: vm,
		tombstones: map[layout.CommitName]commit.Digest{}, runs: map[keys.ID][]objectstore.Info{},
		done: map[keys.ID]bool{}, listed: map[layout.CommitName]int64{}, ofRun: map[keys.ID]bool{},
		live: map[layout.CommitName]*opened{}, going: map[layout.CommitName]*opened{}, gone: map[layout.CommitName]bool{},
		locked: map[layout.CommitName]bool{},
		pinned: map[layout.CommitName][]string{}, reach: map[string]bool{},
		nodes: &nodeCache{objects: objects{p.store, vm}},
	}
}

// all goes through the steps. Their order is what makes it safe: each side writes first
// and reads second. Whoever has not seen a tombstone has put his session before it, so
// that the list of sessions, which comes later, shows it; whoever's session has ended
// since has put his commit before that, so that the list of commits, the last, shows it.
// No run is ended before the lists are found to be whole: a marker in the place of a
// commit that is missing would say that it was removed.
func (m *machine) all(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		m.announce,
		m.listTombstones, m.listRuns, m.listSessions, m.listCommits,
		m.open, m.plausible, m.judge, m.explained, m.stay, m.sweep,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) name(sequence uint64, run keys.ID) layout.CommitName {
	return layout.CommitName{VM: m.vm, Sequence: sequence, Run: run}
}

func keyOf(n layout.CommitName) string { return layout.Commit(n.VM, n.Sequence, n.Run) }

// bySequence orders commits as their chain does.
func bySequence(a, b layout.CommitName) int {
	return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), slices.Compare(a.Run[:], b.Run[:]))
}

func (m *machine) listTombstones(ctx context.Context) error {
	for info, err := range m.store.List(ctx, layout.OfVM(layout.Tombstones, m.vm)) {
		if err != nil {
			return err
		}
		n, err := layout.ParseTombstone(info.Key)
		if err != nil {
			continue // not ours
		}
		if _, have := m.tombstones[n]; have {
			continue
		}
		d, there, err := m.repo.tombstone(ctx, n)
		if err != nil {
			return err
		}
		if there {
			m.tombstones[n] = d
		}
	}
	return nil
}

func (m *machine) listRuns(ctx context.Context) error {
	for info, err := range m.store.List(ctx, layout.OfVM(layout.Runs, m.vm)) {
		if err != nil {
			return err
		}
		o, _, err := layout.OfRun(info.Key)
		if err != nil {
			m.result.Unexplained.add(info.Size)
			continue
		}
		m.runs[o.Origin.Run] = append(m.runs[o.Origin.Run], info)
	}
	return nil
}

func (m *machine) listSessions(ctx context.Context) error {
	for info, err := range m.store.List(ctx, layout.OfVM(layout.Sessions, m.vm)) {
		if err != nil {
			return err
		}
		_, run, done, ok := layout.ParseSession(info.Key)
		switch {
		case !ok: // not ours
		case done:
			m.done[run] = true
		default:
			m.sessions = append(m.sessions, &pin{key: info.Key, run: run})
		}
	}
	return nil
}

func (m *machine) listCommits(ctx context.Context) error {
	for info, err := range m.store.List(ctx, layout.OfVM(layout.Commits, m.vm)) {
		if err != nil {
			return err
		}
		n, err := layout.ParseCommit(info.Key)
		if err != nil {
			continue // not ours
		}
		m.listed[n] = info.Size
		m.ofRun[n.Run] = true
	}
	return nil
}

// judge reads the sessions, and ends those of writers that are proven dead.
func (m *machine) judge(ctx context.Context) error {
	for _, s := range m.sessions {
		if err := m.read(ctx, s); err != nil {
			return err
		}
		fate, err := m.fate(ctx, s)
		if err != nil {
			return err
		}
		s.dead = fate == Dead
		if s.ended || !s.dead {
			continue
		}
		if s.session.Kind == commit.ReaderSession {
			s.ended = true
			continue
		}
		if s.ended, err = m.abort(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// read opens a session and finds whether its pin has ended. One that is damaged, or gone
// since it was listed, pins whatever it may have pinned.
func (m *machine) read(ctx context.Context, s *pin) error {
	s.ended = m.ofRun[s.run]
	object, err := objectstore.Get(ctx, m.store, s.key, commit.MaxObject)
	if err != nil {
		if isBroken(readError(err)) {
			return nil
		}
		return fmt.Errorf("read session: %w", err)
	}
	found, err := m.repo.decodeSession(ctx, object)
	if err != nil || found.Repository != m.repo.id || found.VM != m.vm || found.Run != s.run {
		return nil
	}
	s.session = &found
	switch found.Kind {
	case commit.WriterSession:
		_, s.ended = m.listed[m.name(found.Sequence(), s.run)]
	case commit.ReaderSession:
		s.ended, err = m.saidDone(ctx, &found)
	default:
		s.ended = false // a base stays
	}
	return err
}

// saidDone reports whether a reader has ended its pin. What it has not signed itself does
// not end it.
func (m *machine) saidDone(ctx context.Context, s *commit.Session) (bool, error) {
	if !m.done[s.Run] {
		return false, nil
	}
	object, err := objectstore.Get(ctx, m.store, layout.Done(m.vm, s.Run), commit.MaxObject)
	if err == nil {
		err = commit.VerifyDone(object, *s, m.repo.keys.SigningKey())
	}
	if isBroken(readError(err)) {
		return false, nil
	}
	return err == nil, err
}

func (m *machine) fate(ctx context.Context, s *pin) (Fate, error) {
	if s.session == nil || s.session.Kind == commit.BaseSession || !slices.Contains(m.spec.Owners, s.session.Owner) {
		return Unknown, nil
	}
	if s.session.Kind == commit.ReaderSession && s.ended {
		return Dead, nil // it has said so itself
	}
	about := Session{
		Key: s.key, Owner: s.session.Owner, Ended: s.ended,
		Reader: s.session.Kind == commit.ReaderSession,
	}
	if l := s.session.Parent; l != nil {
		ref := refOf(m.vm, *l)
		about.Parent = &ref
	}
	v, err := m.spec.Judge(ctx, about)
	if err != nil {
		return Unknown, fmt.Errorf("judge session %q: %w", s.key, err)
	}
	return v, nil
}

// abort takes the key of a commit that must never be made. If the commit was faster, the
// session counts as it was when it was listed.
func (m *machine) abort(ctx context.Context, s *pin) (ended bool, err error) {
	n := m.name(s.session.Sequence(), s.run)
	m.spec.Report(Act{Kind: ActAbort, Key: keyOf(n), Reason: "its writer is dead"})
	m.result.Aborted++
	if !m.spec.DryRun {
		_, err = objectstore.CreateOrSame(ctx, m.store, keyOf(n), m.marker(n))
	}
	if errors.Is(err, objectstore.ErrExists) {
		m.result.Aborted--
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("end run %s: %w", s.run, err)
	}
	m.listed[n] = commit.MarkerBytes
	m.ofRun[n.Run], m.gone[n] = true, true
	return true, nil
}

func (m *machine) marker(n layout.CommitName) []byte {
	h := m.repo.place(n)
	h.Epoch = m.repo.keys.Epoch()
	return commit.EncodeAborted(m.spec.Key, h)
}

// open reads what is in the place of each commit. A marker of a run that has no objects
// hides nothing, and is believed by its size.
func (m *machine) open(ctx context.Context) error {
	for _, n := range slices.SortedFunc(maps.Keys(m.listed), bySequence) {
		size := m.listed[n]
		_, tombstone := m.tombstones[n]
		if m.gone[n] || size == commit.MarkerBytes && !tombstone && len(m.runs[n.Run]) == 0 {
			m.gone[n] = true
			continue
		}
		if err := m.openCommit(ctx, n, tombstone); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) openCommit(ctx context.Context, n layout.CommitName, tombstone bool) error {
	o, err := m.repo.readSigned(ctx, CommitRef{Key: keyOf(n)})
	switch {
	case errors.Is(err, ErrAborted):
		m.gone[n] = true
	case tombstone && isBroken(err):
		m.going[n] = nil
	case err != nil:
		return err
	case tombstone && o.digest == m.tombstones[n]:
		m.going[n] = o
	default:
		m.live[n] = o
	}
	return nil
}
