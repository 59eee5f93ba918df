package repository_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// protocol is a small repository that writers, removers and readers are let loose on.
type protocol struct {
	*collector
	objects map[string]thing
	base    []*repository.Result // the chain that is there
	in      input
	needs   map[string][]string // of commits, by who made them
	// full has every call wait, also those that are eager otherwise.
	full bool
}

// newProtocol has a chain of n backups of a disk of four units.
func newProtocol(t *testing.T, n int) *protocol {
	t.Helper()
	p := &protocol{collector: newCollector(t), objects: map[string]thing{}, needs: map[string][]string{}}
	p.full = os.Getenv("VMSTATE_MODEL") == "full"
	p.in = input{disks: [][]byte{noise(1, 64<<10)}}
	var parent *repository.Result
	for i := range n {
		p.in = p.in.clone()
		copy(p.in.disks[0][i<<14:], noise(uint64(10+i), 1<<14))
		parent = p.backup(fmt.Sprint("base", i), parent, p.in)
		p.base = append(p.base, parent)
	}
	p.keep()
	return p
}

// keep has every run begin with what the store holds now.
func (p *protocol) keep() {
	for key, body := range contents(p.t, p.store) {
		p.objects[key] = thing{body, "base " + key}
	}
}

// announced is newProtocol after the pass that announces that its oldest backup goes.
func announced(t *testing.T, n int) *protocol {
	p := newProtocol(t, n)
	first := p.maintainSpec(p.base[0])
	first.Remove[0].Force = true
	_, err := p.collector.writer.Maintain(t.Context(), first)
	must(t, err)
	p.keep()
	return p
}

// cast is who is on the stage.
type cast struct {
	writers  []*actor
	removers []*actor
	readers  []*actor
	// lies: every process is said to be dead, also those that are at work.
	lies bool
	// early: every read is made at once. With three at work there are too many orders
	// otherwise; those that this leaves out are tried with each two of them.
	early bool
}

// run is one run of a scenario.
type playing struct {
	*protocol
	cast
	stage   *stage
	held    map[string][]string // what readers hold: the needs of it
	results map[string]repository.CommitRef
	asked   map[repository.CommitRef]bool // to go, while the actors were at work
}

// backupOf is the backup that an actor makes: what is behind # tells its attempts apart.
func backupOf(name string) string {
	backup, _, _ := strings.Cut(name, "#")
	return backup
}

// writer makes one backup.
func (r *playing) writer(name string, parent *repository.Result) *actor {
	return &actor{name: name, program: func(ctx context.Context, p *process) error {
		repo, err := repository.OpenWithKeys(ctx, p.store(), r.keys)
		if err != nil {
			return err
		}
		b, err := repo.Begin(ctx, r.spec(backupOf(name), parent))
		if err != nil {
			return err
		}
		defer b.Close()
		in := r.in.clone()
		copy(in.disks[0][3<<14:], noise(99, 1<<14))
		result, err := run(ctx, b, in)
		if err == nil {
			r.stage.mu.Lock()
			r.results[backupOf(name)] = result.CommitRef
			r.stage.mu.Unlock()
		}
		return err
	}}
}

// remover makes some passes, an interval of nothing apart.
func (r *playing) remover(name string, passes int, remove ...*repository.Result) *actor {
	return &actor{name: name, removes: true, program: func(ctx context.Context, p *process) error {
		repo, err := repository.OpenWithKeys(ctx, p.store(), r.keys)
		if err != nil {
			return err
		}
		for i := range passes {
			p.forget(fmt.Sprint("pass ", i))
			spec := repository.MaintainSpec{
				Store: p.store(), Key: r.key, Now: r.now.Add(time.Duration(i) * time.Second), Judge: r.judge(p),
			}
			for _, b := range remove {
				spec.Remove = append(spec.Remove, repository.Removal{CommitRef: b.CommitRef, Force: true})
			}
			result, err := repo.Maintain(ctx, spec)
			if err != nil {
				return err
			}
			for _, h := range result.Held {
				return h.Err
			}
		}
		return nil
	}}
}

// judge looks whether the maker of a session is still at work.
func (r *playing) judge(p *process) func(context.Context, repository.Session) (repository.Fate, error) {
	return func(_ context.Context, s repository.Session) (repository.Fate, error) {
		fate := repository.Dead
		r.stage.mu.Lock()
		for _, a := range slices.Concat(r.writers, r.readers) {
			key, err := r.collector.world.writer.SessionKey("vm-uid", "uid-"+backupOf(a.name))
			if err != nil {
				return 0, err
			}
			if key == s.Key && !a.over && !r.lies {
				fate = repository.Alive
			}
		}
		r.stage.mu.Unlock()
		p.tell(fmt.Sprint(s.Key, fate))
		return fate, nil
	}
}

// reader pins a backup, holds it for a while, and lets go.
func (r *playing) reader(name string, ref repository.CommitRef) *actor {
	return &actor{name: name, program: func(ctx context.Context, p *process) error {
		repo, err := repository.OpenWithKeys(ctx, p.store(), r.keys)
		if err != nil {
			return err
		}
		pin, err := repo.Pin(ctx, &repository.Commit{Result: repository.Result{CommitRef: ref}}, "uid-"+name, 0)
		if errors.Is(err, repository.ErrNoCommit) {
			return nil
		}
		if err != nil {
			return err
		}
		r.hold(ref, r.needs["base "+ref.Key])
		defer r.hold(ref, nil)
		if err := p.call("Hold", ref.Key, func() (string, *thing) { return "", nil }); err != nil {
			return err
		}
		return pin.Done(ctx)
	}}
}

func (r *playing) hold(ref repository.CommitRef, needs []string) {
	r.stage.mu.Lock()
	defer r.stage.mu.Unlock()
	r.held[ref.Key] = needs
}

// watch holds to the properties at every step: no commit that is there, and nothing that
// a reader holds, ever lacks an object that it needs.
func (r *playing) watch(s *stage, op, key string) error {
	if op == "Create" && key[0] == 'c' {
		return r.whole(key)
	}
	if op != "Delete" && op != "Replace" {
		return nil
	}
	for c, t := range s.objects {
		if c[0] == 'c' && slices.Contains(r.needs[t.by], key) {
			return fmt.Errorf("%s of %q, which the commit %q needs", op, key, c)
		}
	}
	for c, needs := range r.held {
		if needs != nil && (c == key || slices.Contains(needs, key)) {
			return fmt.Errorf("%s of %q, while a reader holds %q", op, key, c)
		}
	}
	if op == "Replace" && key[0] == 'c' {
		return r.whole(key)
	}
	return nil
}

// whole checks that all is there that a new commit needs.
func (r *playing) whole(key string) error {
	t, ok := r.stage.objects[key]
	if !ok || !bytes.HasPrefix(t.body, []byte("VMSTCMT1")) {
		return nil
	}
	repo, err := repository.OpenWithKeys(context.Background(), direct{objects: r.stage.objects}, r.keys)
	if err != nil {
		return err
	}
	needs, err := repo.Needs(context.Background(), repository.CommitRef{Key: key})
	if err != nil {
		return fmt.Errorf("commit %q cannot be read: %w", key, err)
	}
	r.needs[t.by] = needs
	for _, n := range needs {
		if _, ok := r.stage.objects[n]; !ok {
			return fmt.Errorf("commit %q was made and needs %q, which is gone", key, n)
		}
	}
	return nil
}

// rest lets everybody be gone, makes two more passes, and checks that nothing of no use
// is left, every backup is whole, and what a writer was told is there is there.
func (r *playing) rest(s *stage) error {
	store := memstore.New()
	for key, t := range s.objects {
		if _, err := store.Create(context.Background(), key, t.body); err != nil {
			return err
		}
	}
	repo, err := repository.OpenWithKeys(context.Background(), store, r.keys)
	if err != nil {
		return err
	}
	dead := func(context.Context, repository.Session) (repository.Fate, error) { return repository.Dead, nil }
	for i := range 3 {
		spec := repository.MaintainSpec{Store: store, Key: r.key, Now: r.now.Add(time.Duration(i+10) * time.Second), Judge: dead, DryRun: i == 2}
		result, err := repo.Maintain(context.Background(), spec)
		switch {
		case err != nil:
			return err
		case len(result.Held) > 0:
			return fmt.Errorf("at rest: %w", result.Held[0].Err)
		case i == 2 && (result.Waiting.Objects > 0 || result.Deleted.Objects > 0 || result.Unexplained.Objects > 0):
			return fmt.Errorf("two passes at rest have left %+v", result)
		}
	}
	for c, err := range repo.Commits(context.Background()) {
		if err == nil {
			err = repo.Check(context.Background(), c)
		}
		if err != nil {
			return fmt.Errorf("at rest: %w", err)
		}
	}
	for name, ref := range r.results {
		if _, err := repo.Commit(context.Background(), ref); err != nil && !r.asked[ref] {
			return fmt.Errorf("backup %q, of which its writer was told that it is there: %w", name, err)
		}
	}
	return nil
}

// explore tries all orders of a cast and returns the first that breaks a property.
func (p *protocol) explore(set func(*playing) cast) (*explorer, error) {
	for _, b := range p.base {
		needs, err := p.collector.world.writer.Needs(p.t.Context(), b.CommitRef)
		must(p.t, err)
		p.needs["base "+b.Key] = needs
	}
	var now *playing
	var e *explorer
	e = &explorer{
		t: p.t, limit: 2_000_000,
		begin: func() *stage {
			now = &playing{protocol: p, held: map[string][]string{}, results: map[string]repository.CommitRef{}, asked: map[repository.CommitRef]bool{}}
			now.stage = &stage{objects: maps.Clone(p.objects), watch: now.watch}
			now.cast = set(now)
			e.eager = p.eager(now.cast)
			now.stage.actors = slices.Concat(now.writers, now.removers, now.readers)
			return now.stage
		},
		end: func(s *stage) error { return now.rest(s) },
	}
	err := e.all()
	return e, err
}

// eager are calls whose order with others makes no difference, or makes one only for
// the better: reads of what is never changed, and reads that fail if they come later than
// a deletion. Whoever reads early believes, and goes on to do harm if there is harm to do.
// What a remover alone reads and deletes nobody but he changes.
func (p *protocol) eager(of cast) func(*call) bool {
	begins := func(key string, prefixes ...string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
	}
	return func(c *call) bool {
		read := c.op == "Open" || c.op == "Stat"
		switch {
		case c.op == "List" && (c.key == layout.Commits || c.key == layout.Sessions):
			return true
		case read && begins(c.key, keys.FormatKey, "k/", "a/maintenance"):
			return true
		case p.full:
			return false
		case read && (of.early || begins(c.key, "r/", "s/")):
			return true
		case of.early && c.op == "Delete" && c.key[0] == 'r':
			return true // it is checked against the commits of now, and those to come against it
		case c.op == "Create" && c.key[0] == 'r' && !strings.HasSuffix(c.key, ".age"):
			return true // a run that has a data key may as well have its packs
		case len(of.removers) > 1 || !c.who.removes:
			return false
		case c.op == "Delete":
			return !begins(c.key, "t/")
		case c.op == "List":
			return begins(c.key, "a/", "t/")
		default:
			return read || begins(c.key, "a/")
		}
	}
}

var _ objectstore.Deleter = (*process)(nil)

// latest makes passes, each of which removes what is there.
func (r *playing) latest(name string, passes int) *actor {
	return &actor{name: name, removes: true, program: func(ctx context.Context, p *process) error {
		for range passes {
			p.forget("")
			repo, err := repository.OpenWithKeys(ctx, p.store(), r.keys)
			if err != nil {
				return err
			}
			var there []*repository.Result
			for c, err := range repo.Commits(ctx) {
				if err != nil {
					return err
				}
				there = append(there, &c.Result)
				r.stage.mu.Lock()
				r.asked[c.CommitRef] = true
				r.stage.mu.Unlock()
			}
			if err := r.remover(name, 1, there...).program(ctx, p); err != nil {
				return err
			}
		}
		return nil
	}}
}
