package repository_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// explorer tries all orders of a scenario.
type explorer struct {
	t *testing.T
	// begin makes the actors and the store of one run; end checks what they have left.
	begin func() *stage
	end   func(s *stage) error
	// eager calls happen at once, in the order in which they come.
	eager func(c *call) bool
	// limit bounds the runs; 0 is none.
	limit int

	seen, ends  map[string]bool
	runs, calls int
	failed      error
	trace       []string
}

// all tries every order and returns the first error, with the calls that led to it.
func (e *explorer) all() error {
	e.seen, e.ends = map[string]bool{}, map[string]bool{}
	todo := [][]int{nil}
	for len(todo) > 0 {
		prefix := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		todo = append(todo, e.run(prefix)...)
		if e.runs++; e.failed != nil {
			return fmt.Errorf("%w\n\t%s", e.failed, strings.Join(e.trace, "\n\t"))
		}
		if e.limit > 0 && e.runs >= e.limit {
			return fmt.Errorf("%d runs were not enough", e.runs)
		}
	}
	return nil
}

// run goes one way, by prefix as far as that goes, and returns the ways that it has not
// taken.
func (e *explorer) run(prefix []int) (others [][]int) {
	synctest.Test(e.t, func(*testing.T) {
		s := e.begin()
		e.trace = nil
		ctx := context.Background()
		var all sync.WaitGroup
		for _, a := range s.actors {
			all.Go(func() { s.start(ctx, a) })
		}
		others = e.play(s, prefix)
		for _, a := range s.actors {
			a.restarts = 0
		}
		for _, a := range s.actors {
			s.kill(a.alive)
		}
		all.Wait()
	})
	return others
}

// play lets calls happen until none waits, or until all that could be next was there
// before.
func (e *explorer) play(s *stage, prefix []int) (others [][]int) {
	taken := []int{}
	for {
		synctest.Wait()
		ready := e.ready(s)
		if len(ready) == 0 {
			e.finish(s)
			return others
		}
		choice := 0
		switch {
		case ready[0].eager:
		case len(taken) < len(prefix):
			choice = prefix[len(taken)]
			taken = append(taken, choice)
		default:
			fresh := e.fresh(ready)
			if len(fresh) == 0 {
				return others
			}
			for _, other := range fresh[1:] {
				others = append(others, append(slices.Clone(taken), other))
			}
			choice = fresh[0]
			taken = append(taken, choice)
		}
		if e.failed = ready[choice].happen(); e.failed != nil {
			return nil
		}
	}
}

// fresh are the steps that lead where no run has been.
func (e *explorer) fresh(ready []step) (out []int) {
	for i := range ready {
		if next := ready[i].next(); !e.seen[next] {
			e.seen[next] = true
			out = append(out, i)
		}
	}
	return out
}

// step is what can be next.
type step struct {
	eager  bool
	happen func() error
	next   func() string // the state after it
}

// ready are the steps that can be next: calls that wait, and kills.
func (e *explorer) ready(s *stage) (out []step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.SortStableFunc(s.pending, func(a, b *call) int {
		return strings.Compare(a.who.name+a.op+a.key, b.who.name+b.op+b.key)
	})
	for _, c := range s.pending {
		one := step{happen: func() error { return e.step(s, c) }, next: func() string { return s.state(c) }}
		if e.eager(c) {
			one.eager = true
			return []step{one}
		}
		out = append(out, one)
	}
	for _, a := range s.actors {
		if a.crashes > 0 && slices.ContainsFunc(s.pending, func(c *call) bool { return c.who == a.alive }) {
			out = append(out, e.crash(s, a))
		}
	}
	return out
}

func (e *explorer) crash(s *stage, a *actor) step {
	return step{
		happen: func() error {
			a.crashes--
			e.trace = append(e.trace, a.name+" is killed")
			s.kill(a.alive)
			return nil
		},
		next: func() string {
			before := a.seen
			a.crashes--
			a.see("killed")
			defer func() { a.crashes++; a.seen = before }()
			return s.state(nil)
		},
	}
}

// step lets one call happen.
func (e *explorer) step(s *stage, c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, change := c.look()
	c.who.see(c.op + " " + c.key + " " + seen)
	switch {
	case change == nil:
	case change.by == "":
		delete(s.objects, c.key)
	default:
		s.objects[c.key] = *change
	}
	e.calls++
	e.trace = append(e.trace, fmt.Sprintf("%s: %s %s: %.60s", c.who.name, c.op, c.key, seen))
	s.pending = slices.DeleteFunc(s.pending, func(other *call) bool { return other == c })
	err := s.watch(s, c.op, c.key)
	c.done <- nil
	return err
}

// finish checks what a whole run has left, once for each that differs.
func (e *explorer) finish(s *stage) {
	state := s.state(nil)
	if e.ends[state] {
		return
	}
	e.ends[state] = true
	e.failed = e.end(s)
}
