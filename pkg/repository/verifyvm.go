package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
	"github.com/vmstate/vmstate/pkg/repository/pack"
)

const (
	// rangePacks is how many ordinals are looked up together in the tables of all
	// backups, and rangeEntries how many packs may come of it: 10 MiB.
	rangePacks   = 1 << 14
	rangeEntries = 1 << 16
	// verifyBatch is how many packs are read before the state moves on.
	verifyBatch = 32
	// verifyWorkers read packs at once, as far as verifyMemory lets them.
	verifyWorkers = 4
)

// verifyCommit is what the verification holds of a backup: not its record, which may be
// large, and there may be many.
type verifyCommit struct {
	ref    CommitRef
	digest commit.Digest
	epoch  *keys.Epoch
	packs  index.TableRoot
	keys   index.TableRoot
	tail   []commit.TailPack
	// err is why there is no record.
	err error
	vm  VM
	id  BackupID
	// broken is what of the tables cannot be read.
	broken error
}

// verifyPack is a pack to be read, with the keys of the backups that list it.
type verifyPack struct {
	index.Numbered[index.Pack]
	epoch *keys.Epoch
}

// machineVerify is the verification of one virtual machine.
type machineVerify struct {
	*verifier
	id      keys.ID
	commits []*verifyCommit
	objects objects
	// looked says that it is known what was put over the objects.
	looked bool
}

// lookBehind looks, once, whether something was put over the objects of the virtual machine
// since they were made: that is not what was written, and not what is verified.
func (m *machineVerify) lookBehind(ctx context.Context) bool {
	if m.looked {
		return false
	}
	m.looked = true
	found := m.repo.lookBehind(ctx, m.id)
	m.state.Covered = m.state.Covered || found
	return found
}

// machine reads what is left of a virtual machine. done says that this was all of it.
func (v *verifier) machine(ctx context.Context, vm keys.ID) (done bool, err error) {
	m := &machineVerify{verifier: v, id: vm, objects: objects{v.repo.store, vm}}
	if m.commits, err = v.repo.verifyCommits(ctx, vm); err != nil {
		return false, err
	}
	v.state.enter(vm, m.commits)
	if v.state.Covered { // an earlier call knew of what this one does not
		m.lookBehind(ctx)
	}
	for v.state.Next < m.end() && !v.spent() {
		packs, next, err := m.collect(ctx)
		if err != nil {
			return false, err
		}
		if err := m.read(ctx, packs, next); err != nil {
			return false, err
		}
	}
	done = v.state.Next >= m.end()
	if done {
		if err := m.readKeys(ctx); err != nil {
			return false, err
		}
		if m.spec.Full {
			if done, err = m.proveAll(ctx); err != nil {
				return false, err
			}
			m.opening = nil
		}
	}
	return done, m.judge(ctx, done)
}

// verifyCommits reads the records of a virtual machine. One that is damaged stays in the
// list with its error.
func (r *Repository) verifyCommits(ctx context.Context, vm keys.ID) ([]*verifyCommit, error) {
	var out []*verifyCommit
	for info, err := range r.store.List(ctx, layout.CommitsOf(vm)) {
		if err != nil {
			return nil, fmt.Errorf("list commits: %w", err)
		}
		c := &verifyCommit{ref: CommitRef{Key: info.Key}}
		o, err := r.readSigned(ctx, c.ref)
		switch {
		case errors.Is(err, ErrAborted), errors.Is(err, ErrNoCommit):
			continue // ended for good, or removed since it was listed
		case err != nil && !isOfOne(err):
			return nil, err
		case err != nil:
			c.err = err
		default:
			c.ref, c.digest, c.epoch = o.ref, o.digest, o.epoch
			c.packs, c.keys, c.tail = o.record.Packs, o.record.Keys, o.record.Tail
			c.vm, c.id = VM(o.record.VM), BackupID(o.record.Backup)
		}
		out = append(out, c)
	}
	return out, nil
}

// end is behind the highest ordinal of any backup.
func (m *machineVerify) end() uint64 {
	end := uint64(0)
	for _, c := range m.commits {
		end = max(end, c.packs.Next)
		for _, p := range c.tail {
			end = max(end, p.Ordinal+1)
		}
	}
	return end
}

// collect gathers the packs from state.Next on, until next, that any backup reaches.
func (m *machineVerify) collect(ctx context.Context) (packs []verifyPack, next uint64, err error) {
	for width := uint64(rangePacks); ; width /= 4 {
		next = min(m.state.Next+width, m.end())
		found := map[index.Pack]verifyPack{}
		for _, c := range m.commits {
			if err := m.collectOf(ctx, c, next, found); err != nil {
				return nil, 0, err
			}
		}
		if len(found) > rangeEntries && width > 1 {
			continue
		}
		for _, p := range found {
			packs = append(packs, p)
		}
		slices.SortFunc(packs, func(a, b verifyPack) int {
			return cmp.Or(cmp.Compare(a.Ordinal, b.Ordinal), comparePackName(packNameOf(&a.Entry), packNameOf(&b.Entry)))
		})
		return packs, next, nil
	}
}

// collectOf adds the packs that one backup lists. A table that cannot be read is damage
// of that backup.
func (m *machineVerify) collectOf(ctx context.Context, c *verifyCommit, next uint64, found map[index.Pack]verifyPack) error {
	if c.err != nil {
		return nil
	}
	add := func(p index.Numbered[index.Pack]) {
		same := p.Entry
		same.Live, same.Total = 0, 0
		found[same] = verifyPack{p, c.epoch}
	}
	err := c.eachPack(ctx, m.objects, m.state.Next, next, add)
	if isBroken(err) && m.lookBehind(ctx) {
		err = c.eachPack(ctx, m.objects, m.state.Next, next, add)
	}
	if isBroken(err) {
		c.broken = err
		return nil
	}
	return err
}

// eachPack calls do for the packs that a backup lists at the ordinals [from, to).
func (c *verifyCommit) eachPack(ctx context.Context, o objects, from, to uint64, do func(index.Numbered[index.Pack])) error {
	for _, p := range c.tail {
		if p.Ordinal >= from && p.Ordinal < to {
			do(index.Numbered[index.Pack]{Ordinal: p.Ordinal, Entry: p.Pack})
		}
	}
	walk := index.WalkPacks(index.NewNodes(c.epoch.Set, o.vm), o, c.packs)
	for at := from; at < to; at = walk.Next() {
		first, err := walk.Seek(ctx, at)
		if err != nil {
			return fmt.Errorf("pack table of %q: %w", c.ref.Key, err)
		}
		if first == index.End || first >= to {
			return nil
		}
		entries, err := walk.Entries(ctx)
		if err != nil {
			return fmt.Errorf("pack table of %q: %w", c.ref.Key, err)
		}
		for _, p := range entries {
			if p.Ordinal >= from && p.Ordinal < to {
				do(p)
			}
		}
	}
	return nil
}

// read reads the packs, in the order of ordinals, until next or until this call's part
// is read. The state moves on behind each batch.
func (m *machineVerify) read(ctx context.Context, packs []verifyPack, next uint64) error {
	for len(packs) > 0 && !m.spent() {
		n := m.due(packs)
		found, err := m.batch(ctx, packs[:n])
		if err != nil {
			return err
		}
		m.state.passed(packs[n-1].Ordinal+1, found)
		packs = packs[n:]
		m.tell()
	}
	if len(packs) == 0 {
		m.state.passed(next, nil)
	}
	return nil
}

// due is how many packs are read next: all at one ordinal, and no more than are left of
// this call's part.
func (m *machineVerify) due(packs []verifyPack) int {
	n, bytes := 1, packs[0].Entry.Size
	for n < len(packs) {
		enough := n >= verifyBatch || m.left >= 0 && m.result.Bytes+bytes >= m.left
		if enough && packs[n].Ordinal != packs[n-1].Ordinal {
			break
		}
		bytes += packs[n].Entry.Size
		n++
	}
	return n
}

// batch reads some packs at once and returns those that are damaged.
func (m *machineVerify) batch(ctx context.Context, packs []verifyPack) ([]DamagedObject, error) {
	found, err := m.readBatch(ctx, packs)
	if err != nil || len(found) == 0 || !m.lookBehind(ctx) {
		return found, err
	}
	m.result.Packs -= int64(len(found)) // each counts once
	return m.readBatch(ctx, slices.DeleteFunc(slices.Clone(packs), func(p verifyPack) bool {
		key := packNameOf(&p.Entry).key(m.id)
		return !slices.ContainsFunc(found, func(d DamagedObject) bool { return d.Key == key })
	}))
}

func (m *machineVerify) readBatch(ctx context.Context, packs []verifyPack) ([]DamagedObject, error) {
	var mu sync.Mutex
	var found []DamagedObject
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(verifyWorkers)
	for _, p := range packs {
		group.Go(func() error {
			key := packNameOf(&p.Entry).key(m.id)
			n, err := m.reader.check(ctx, key, p.Entry, pack.NewTagger(p.epoch.Set, m.id))
			bad, damaged := errors.AsType[damage](err)
			if err != nil && !damaged {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			m.result.Packs++
			m.result.Bytes += n
			if damaged {
				found = append(found, DamagedObject{Key: key, Why: bad.why, Ordinal: p.Ordinal})
			}
			return nil
		})
	}
	return found, group.Wait()
}
