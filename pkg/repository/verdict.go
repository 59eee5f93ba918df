package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// judge says what is known of the backups: of all of them at the end of the virtual
// machine, before that of the damaged ones.
func (m *machineVerify) judge(ctx context.Context, done bool) error {
	if err := m.forgetRemoved(ctx); err != nil {
		return err
	}
	bad := m.damaged()
	for _, c := range m.commits {
		verdict, err := m.verdict(ctx, c, bad)
		if err != nil {
			return err
		}
		if verdict.Outcome == OutcomeDamaged || done && verdict.Outcome != "" {
			m.result.Backups = append(m.result.Backups, verdict)
		}
	}
	return nil
}

// forgetRemoved drops what was found of objects that no backup needs any more: a remover takes them away while they are
// being read. Who needs them is looked up anew, since that is what changes.
func (m *machineVerify) forgetRemoved(ctx context.Context) error {
	bad := m.damaged()
	if len(bad) == 0 {
		return nil
	}
	commits, err := m.repo.verifyCommits(ctx, m.id)
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, c := range commits {
		if c.err != nil {
			return nil // it may need any of them
		}
		name, err := layout.ParseCommit(c.ref.Key)
		if err != nil {
			return nil
		}
		if _, going, err := m.repo.tombstone(ctx, name); err != nil {
			return err
		} else if going {
			continue
		}
		l, err := m.lostOf(ctx, c, bad)
		if err != nil {
			return err
		}
		for d := range l.objects() {
			needed[d.Key] = true
		}
	}
	m.state.Damaged = slices.DeleteFunc(m.state.Damaged, func(d DamagedObject) bool {
		return machineOf(d.Key) == m.id.String() && !needed[d.Key]
	})
	return nil
}

// damaged are the packs of this virtual machine that are known to be damaged.
func (m *machineVerify) damaged() map[string]DamagedObject {
	out := map[string]DamagedObject{}
	for _, d := range m.state.Damaged {
		if machineOf(d.Key) == m.id.String() {
			out[d.Key] = d
		}
	}
	return out
}

// verdict on one backup. It has no outcome if the backup came too late for this round,
// or is being removed.
func (m *machineVerify) verdict(ctx context.Context, c *verifyCommit, bad map[string]DamagedObject) (Verdict, error) {
	v := Verdict{CommitRef: c.ref, VM: c.vm, Backup: c.id}
	switch {
	case isBroken(c.err):
		v.Outcome, v.Reason = OutcomeDamaged, c.err.Error()
	case c.err != nil:
		v.Outcome, v.Reason = OutcomeUnknown, c.err.Error()
	default:
		if err := m.weigh(ctx, c, bad, &v); err != nil {
			return v, err
		}
	}
	if v.Outcome == OutcomeVerified && m.state.Overflow {
		v.Outcome, v.Reason = OutcomeUnknown, fmt.Sprintf("more than %d objects of the store are damaged", maxDamaged)
	}
	if v.Outcome == OutcomeDamaged {
		return v, m.spareRemoved(ctx, c, &v)
	}
	return v, nil
}

// weigh looks what is taken away from a backup by what is damaged.
func (m *machineVerify) weigh(ctx context.Context, c *verifyCommit, bad map[string]DamagedObject, v *Verdict) error {
	if m.state.seen(c.digest) {
		v.Outcome = OutcomeVerified
	}
	if proof := m.state.proof(c.digest); proof != nil { // it says more closely what is hurt
		proof.judge(v)
		return nil
	}
	if len(bad) == 0 && c.broken == nil {
		return nil
	}
	l, err := m.lostOf(ctx, c, bad)
	if err != nil || l.empty() && c.broken == nil {
		return err
	}
	o, err := m.repo.readSigned(ctx, c.ref)
	if errors.Is(err, ErrNoCommit) || errors.Is(err, ErrAborted) {
		v.Outcome = "" // removed since it was listed
		return nil
	}
	if err != nil {
		return err
	}
	if v.Volumes, err = m.repo.hurt(ctx, o, l); err != nil {
		return err
	}
	switch {
	case c.broken != nil:
		v.Outcome, v.Reason = OutcomeDamaged, c.broken.Error()
	case len(v.Volumes) > 0:
		v.Outcome, v.Reason = OutcomeDamaged, l.reason()
	}
	return nil
}

// lostOf is what a backup lists of what is damaged. A table that cannot be read all
// through does not hide what is: then all that is damaged counts.
func (m *machineVerify) lostOf(ctx context.Context, c *verifyCommit, bad map[string]DamagedObject) (lost, error) {
	l := newLost()
	err := c.eachPack(ctx, m.objects, 0, index.End, func(p index.Numbered[index.Pack]) {
		if d, ok := bad[packNameOf(&p.Entry).key(m.id)]; ok {
			l.add(d)
		}
	})
	if isBroken(err) {
		for _, d := range bad {
			l.add(d)
		}
		c.broken = cmp.Or(c.broken, err)
	} else if err != nil {
		return l, err
	}
	err = c.eachKey(ctx, m.objects, func(ordinals Extent, err error) error {
		l.ordinals = append(l.ordinals, ordinals)
		c.broken = cmp.Or(c.broken, err)
		return nil
	}, func(k index.DataKey) error {
		if d, ok := bad[layout.DataKey(m.id, k.Origin)]; ok {
			l.add(d)
		}
		return nil
	})
	return l, err
}

// maxNamed is how many objects a reason names.
const maxNamed = 5

func (l *lost) reason() string {
	var out []string
	for d := range l.objects() {
		out = append(out, fmt.Sprintf("%s is %s", d.Key, d.Why))
	}
	slices.Sort(out)
	if more := len(out) - maxNamed; more > 0 {
		out = append(out[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", ")
}

// spareRemoved takes the verdict on a backup back that is gone, or is being removed: then
// its packs may be missing, and that is no damage. It asks after a pack was found missing,
// and a remover puts the tombstone first.
func (m *machineVerify) spareRemoved(ctx context.Context, c *verifyCommit, v *Verdict) error {
	name, err := layout.ParseCommit(c.ref.Key)
	if err != nil {
		return nil // not the name of a backup, so nobody removes it as one
	}
	_, err = m.repo.store.Stat(ctx, layout.Tombstone(name.VM, name.Sequence, name.Run))
	switch {
	case err == nil:
		v.Outcome, v.Volumes, v.Reason = OutcomeUnknown, nil, "it is being removed"
	case !errors.Is(err, objectstore.ErrNotFound):
		return fmt.Errorf("look for tombstone: %w", err)
	default:
		if _, err = m.repo.store.Stat(ctx, c.ref.Key); errors.Is(err, objectstore.ErrNotFound) {
			v.Outcome = ""
			return nil
		}
	}
	return err
}
