// Package queue decides whose mover may work for a store that bounds how many do.
//
//	kind           goes before            its mover
//	Restore        all others             import
//	Backup         maintenance            export
//	Maintenance    nobody; after a day    maintain
//	Verification   of waiting, backups    verify
//
// Of one kind goes first what has waited longest. Who may begin is recorded in the store's status before its Job is made, by
// one write that fails if the status is another than was read: so two managers never let in more than the limit, whatever their
// caches say. A turn is given back by nothing but the end of its mover, or of what waits for it.
//
// What the decision is made of must be read in this order, past caches: the store, those who wait, the Jobs. Who was let in and
// does not wait any more has made its Job before that, so the list of Jobs, which is the last, shows it.
//
// How many there are on a node is the scheduler's to keep, which alone knows where a pod can be: each mover has a slot, from 1 to
// the limit, and two of one slot repel each other (package job). The slot is chosen so that few are in each other's way.
package queue

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

const (
	// overdue is how long maintenance and verification wait for backups at most: locks are extended when a week is left.
	overdue = 24 * time.Hour
	// pace is the time between two records of nothing but places among those who wait.
	pace = 3 * time.Second
	// maxListed bounds those who wait that are listed; a status has room for some thousand bytes only.
	maxListed = 100
)

// Candidate is somebody who waits for a mover, or has begun already and waits for its Job.
type Candidate struct {
	v1alpha1.MoverTurn
	// Begun says that it cannot be kept back any more.
	Begun bool
	// Node that its mover is likely to be on; "" if that is not known.
	Node string
}

// Mover is a Job that has not ended, or of which a pod has not.
type Mover struct {
	v1alpha1.MoverTurn
	// Node of its pod; "" before it has one.
	Node string
}

// Observed is all that a plan knows.
type Observed struct {
	Now    time.Time
	Limits *v1alpha1.StoreLimits
	// Recorded is what was decided before; nil for nothing.
	Recorded *v1alpha1.MoversStatus
	// Candidates and Movers in any order.
	Candidates []Candidate
	Movers     []Mover
}

// Limited says that a store bounds how many movers there are. False for none.
func Limited(s *v1alpha1.VMStateStore) bool {
	return s != nil && s.Spec.Limits != nil && (s.Spec.Limits.Movers > 0 || s.Spec.Limits.MoversPerNode > 0)
}

// Waits says that somebody must wait for its turn.
func Waits(s *v1alpha1.VMStateStore, kind v1alpha1.MoverKind, uid types.UID) bool {
	return Limited(s) && Working(s.Status.Movers, kind, uid) == nil
}

// Working is the turn of somebody who may begin, or has; nil if there is none.
func Working(m *v1alpha1.MoversStatus, kind v1alpha1.MoverKind, uid types.UID) *v1alpha1.MoverTurn {
	if m == nil {
		return nil
	}
	return find(m.Working, kind, uid)
}

// SlotOf is the slot of somebody who may begin; 0 where nodes are not bounded.
func SlotOf(s *v1alpha1.VMStateStore, kind v1alpha1.MoverKind, uid types.UID) int32 {
	if t := Working(s.Status.Movers, kind, uid); t != nil && Limited(s) {
		return t.Slot
	}
	return 0
}

func find(turns []v1alpha1.MoverTurn, kind v1alpha1.MoverKind, uid types.UID) *v1alpha1.MoverTurn {
	for i := range turns {
		if turns[i].Kind == kind && turns[i].UID == uid {
			return &turns[i]
		}
	}
	return nil
}

// Plan decides who may begin, and where the others stand. again is when it is to be asked again for a record that was put off; 0 if
// none was.
func Plan(in Observed) (m *v1alpha1.MoversStatus, again time.Duration) {
	p := newPlan(in)
	slices.SortFunc(p.waiting, p.order)
	free := len(p.waiting)
	if most := int(in.Limits.Movers); most > 0 {
		free = min(free, max(0, most-len(p.working)))
	}
	for _, c := range p.waiting[:free] {
		p.admit(c)
	}
	p.waiting = p.waiting[free:]
	m = p.status()
	old := in.Recorded
	if old == nil || !same(m.Working, old.Working) || old.At == nil {
		return m, 0
	}
	if same(m.Waiting, old.Waiting) && m.WaitingCount == old.WaitingCount {
		return old, 0
	}
	if wait := pace - in.Now.Sub(old.At.Time); wait > 0 {
		return old, wait
	}
	return m, 0
}

type plan struct {
	Observed
	working []Mover
	waiting []Candidate
}

// newPlan tells those at work from those that wait.
func newPlan(in Observed) *plan {
	p := &plan{Observed: in}
	for _, m := range in.Movers {
		if t := Working(in.Recorded, m.Kind, m.UID); t != nil {
			m.Since = t.Since
		}
		p.working = append(p.working, m)
	}
	for _, c := range in.Candidates {
		if slices.ContainsFunc(p.working, func(m Mover) bool { return m.Kind == c.Kind && m.UID == c.UID }) {
			continue
		}
		switch t := Working(in.Recorded, c.Kind, c.UID); {
		case t != nil: // was let in: nobody takes that back
			p.working = append(p.working, Mover{MoverTurn: *t, Node: c.Node})
		case c.Begun:
			p.admit(c)
		default:
			p.waiting = append(p.waiting, c)
		}
	}
	return p
}

func (p *plan) admit(c Candidate) {
	c.Slot = p.slot(c.Node)
	p.working = append(p.working, Mover{MoverTurn: c.MoverTurn, Node: c.Node})
}

// slot is the one that is in nobody's way on a node, or in the way of fewest; 0 where nodes are not bounded.
func (p *plan) slot(node string) (best int32) {
	least := 0
	for s := int32(1); s <= p.Limits.MoversPerNode; s++ {
		cost := 0
		for _, m := range p.working {
			switch {
			case m.Slot != s:
			case m.Node == "" || node == "" || m.Node == node:
				cost += 1000 // would wait for that one, or may
			default:
				cost++
			}
		}
		if best == 0 || cost < least {
			best, least = s, cost
		}
	}
	return best
}

// order of those who wait.
func (p *plan) order(a, b Candidate) int {
	return cmp.Or(cmp.Compare(p.rank(a), p.rank(b)), a.Since.Compare(b.Since.Time), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Kind, b.Kind))
}

func (p *plan) rank(c Candidate) int {
	switch {
	case c.Kind == v1alpha1.MoverRestore:
		return 0
	case c.Kind == v1alpha1.MoverBackup:
		return 2
	case p.Now.Sub(c.Since.Time) >= overdue:
		return 1
	default:
		return 3
	}
}

// status lists everybody in an order that does not change while nothing does. What the store waits for itself is always
// listed: how long it has waited is known from there.
func (p *plan) status() *v1alpha1.MoversStatus {
	at := metav1.NewTime(p.Now)
	m := &v1alpha1.MoversStatus{At: &at, WaitingCount: int32(len(p.waiting))}
	for _, w := range p.working {
		m.Working = append(m.Working, w.MoverTurn)
	}
	slices.SortFunc(m.Working, func(a, b v1alpha1.MoverTurn) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), cmp.Compare(a.UID, b.UID), cmp.Compare(a.Kind, b.Kind))
	})
	for i, c := range p.waiting {
		own := c.Kind == v1alpha1.MoverMaintenance || c.Kind == v1alpha1.MoverVerification
		if i < maxListed || own {
			m.Waiting = append(m.Waiting, c.MoverTurn)
		}
	}
	return m
}

// same compares two lists as they are written: times in seconds.
func same(a, b []v1alpha1.MoverTurn) bool {
	return slices.EqualFunc(a, b, func(x, y v1alpha1.MoverTurn) bool {
		return x.Kind == y.Kind && x.Name == y.Name && x.UID == y.UID && x.Slot == y.Slot && x.Since.Unix() == y.Since.Unix()
	})
}
