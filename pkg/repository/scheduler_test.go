package repository_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// A stage is a store whose calls wait until a scheduler lets them happen, one at a time.
// What runs on it is the product's code, unchanged. The scheduler tries every order: it
// runs the actors again from the start for each choice that it has not made yet, and
// leaves off where it has been before.
//
// Where it has been is told by what every actor has seen, call by call, and by what the
// store holds. Who has made an object tells what it holds, so ciphertext does not matter.
type stage struct {
	mu      sync.Mutex
	objects map[string]thing
	pending []*call
	actors  []*actor
	watch   func(s *stage, op, key string) error
}

// thing is one object, and who made it.
type thing struct {
	body []byte
	by   string
}

// call is one call that waits.
type call struct {
	who     *process
	op, key string
	// look finds what the call would see, and what it would change: nil changes nothing.
	look func() (seen string, change *thing)
	done chan error
}

// actor is a program that may be killed and started again.
type actor struct {
	name     string
	removes  bool // it is one that deletes
	program  func(ctx context.Context, p *process) error
	restarts int // how often it is started again after it was killed
	crashes  int // how often it may be killed
	// wrap changes how its calls reach the store: a broken program, made of this one.
	wrap func(objectstore.Deleter) objectstore.Deleter

	seen  uint64 // a hash of all that it has seen
	over  bool
	err   error
	alive *process
}

// process is one start of an actor. Its store is a stage.
type process struct {
	*actor
	stage *stage
	gone  bool
}

// seeing is what an actor has seen when it has seen this as well.
func (a *actor) seeing(text string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%x %s", a.seen, text)
	return h.Sum64()
}

func (a *actor) see(text string) { a.seen = a.seeing(text) }

// store is what the program works with.
func (p *process) store() objectstore.Deleter {
	if p.wrap != nil {
		return p.wrap(p)
	}
	return p
}

func (p *process) call(op, key string, look func() (string, *thing)) error {
	c := &call{who: p, op: op, key: key, look: look, done: make(chan error, 1)}
	p.stage.mu.Lock()
	if p.gone {
		p.stage.mu.Unlock()
		return errKilled
	}
	p.stage.pending = append(p.stage.pending, c)
	p.stage.mu.Unlock()
	return <-c.done
}

// tell lets an actor learn something that no store has told it.
func (p *process) tell(text string) {
	p.stage.mu.Lock()
	defer p.stage.mu.Unlock()
	p.see(text)
}

// forget says that nothing of what a process has seen matters to what it does from here
// on, but what is told.
func (p *process) forget(but string) {
	p.stage.mu.Lock()
	defer p.stage.mu.Unlock()
	p.seen = 0
	p.see(but)
}

// put is the object that a process makes. Of what is encrypted anew each time, the maker
// and what he has seen tell what it holds; of the rest, its bytes do.
func (p *process) put(key string, body []byte) *thing {
	var by string
	if key[0] == 'r' || bytes.HasPrefix(body, []byte("VMSTCMT1")) {
		by = fmt.Sprintf("%s %x", p.name, p.seen)
	} else {
		h := fnv.New64a()
		h.Write(body)
		by = fmt.Sprintf("%x", h.Sum64())
	}
	return &thing{bytes.Clone(body), by}
}

func (p *process) Create(_ context.Context, key string, body []byte) (info objectstore.Info, err error) {
	lost := p.call("Create", key, func() (string, *thing) {
		if _, taken := p.stage.objects[key]; taken {
			err = fmt.Errorf("create %q: %w", key, objectstore.ErrExists)
			return "exists", nil
		}
		err = nil
		return "created", p.put(key, body)
	})
	return objectstore.Info{Key: key, Size: int64(len(body)), CRC32C: objectstore.Checksum(body)}, cmp.Or(lost, err)
}

func (p *process) Replace(_ context.Context, key string, body []byte) (objectstore.Info, error) {
	lost := p.call("Replace", key, func() (string, *thing) { return "replaced", p.put(key, body) })
	return objectstore.Info{Key: key, Size: int64(len(body)), CRC32C: objectstore.Checksum(body)}, lost
}

func (p *process) Delete(_ context.Context, key string) error {
	return p.call("Delete", key, func() (string, *thing) { return "deleted", &thing{} })
}

func (p *process) Open(_ context.Context, key string, offset, length int64) (r io.ReadCloser, err error) {
	lost := p.call("Open", key, func() (string, *thing) {
		r, err = direct{objects: p.stage.objects}.Open(context.Background(), key, offset, length)
		return cmp.Or(p.stage.objects[key].by, "absent"), nil
	})
	return r, cmp.Or(lost, err)
}

func (p *process) Stat(_ context.Context, key string) (info objectstore.Info, err error) {
	lost := p.call("Stat", key, func() (string, *thing) {
		t, ok := p.stage.objects[key]
		info, err = objectstore.Info{Key: key, Size: int64(len(t.body))}, nil
		if !ok {
			err = fmt.Errorf("stat %q: %w", key, objectstore.ErrNotFound)
		}
		return cmp.Or(t.by, "absent"), nil
	})
	return info, cmp.Or(lost, err)
}

func (p *process) List(_ context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		var found []objectstore.Info
		lost := p.call("List", prefix, func() (string, *thing) {
			var names []string
			found = nil
			for _, key := range slices.Sorted(maps.Keys(p.stage.objects)) {
				if strings.HasPrefix(key, prefix) {
					found = append(found, objectstore.Info{Key: key, Size: int64(len(p.stage.objects[key].body))})
					names = append(names, key)
				}
			}
			if prefix == "c/" || prefix == "s/" {
				return "machines", nil // which of their objects there are makes no difference
			}
			return strings.Join(names, " "), nil
		})
		if lost != nil {
			yield(objectstore.Info{}, lost)
			return
		}
		for _, info := range found {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// kill ends a process: no call of it happens any more.
func (s *stage) kill(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.gone = true
	p.see("killed")
	s.pending = slices.DeleteFunc(s.pending, func(c *call) bool {
		if c.who == p {
			c.done <- errKilled
		}
		return c.who == p
	})
}

// state tells where a run is when c has happened: what each actor has seen, and what is
// there. The calls that wait follow from that.
func (s *stage) state(c *call) string {
	h := fnv.New128a()
	var change *thing
	for _, a := range s.actors {
		seen := a.seen
		if c != nil && a == c.who.actor {
			var text string
			text, change = c.look()
			seen = a.seeing(c.op + " " + c.key + " " + text)
		}
		fmt.Fprintf(h, "%x %v %d %d|", seen, a.over, a.restarts, a.crashes)
	}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if change == nil || key != c.key {
			fmt.Fprintf(h, "%s %s|", key, s.objects[key].by)
		}
	}
	if change != nil && change.by != "" {
		fmt.Fprintf(h, "changed %s %s|", c.key, change.by)
	}
	return string(h.Sum(nil))
}

// start runs an actor until it ends or is killed for good.
func (s *stage) start(ctx context.Context, a *actor) {
	for {
		p := &process{actor: a, stage: s}
		s.mu.Lock()
		a.alive = p
		s.mu.Unlock()
		err := a.program(ctx, p)
		s.mu.Lock()
		again := p.gone && a.restarts > 0
		if again {
			a.restarts--
		} else {
			a.over, a.err = true, err
		}
		s.mu.Unlock()
		if !again {
			return
		}
	}
}

// direct reads a stage's store without a scheduler.
type direct struct {
	objectstore.Deleter
	objects map[string]thing
}

func (d direct) Open(_ context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	t, ok := d.objects[key]
	if !ok {
		return nil, fmt.Errorf("open %q: %w", key, objectstore.ErrNotFound)
	}
	if length < 0 {
		length = int64(len(t.body)) - offset
	}
	return io.NopCloser(bytes.NewReader(t.body[offset : offset+length])), nil
}
