package main

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmstate/vmstate/test/guest/pace"
)

// counter is a generator without devices; it is its own budget of limit steps.
type counter struct {
	mu    sync.Mutex
	n     uint64
	limit uint64
}

func (c *counter) Step() (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	return c.n, nil
}

func (c *counter) Spent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n >= c.limit
}

func (c *counter) steps() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

func mustPace(t *testing.T, s string) pace.Pace {
	t.Helper()
	p, err := pace.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// loop is stepper.run with an end: the test bubble must not leave a goroutine.
func loop(s *stepper, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		default:
			s.turn()
		}
	}
}

func TestStepperPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{limit: 1000}
		s := newStepper(c, c)
		done := make(chan struct{})
		go loop(s, done)
		time.Sleep(time.Hour)
		if n := c.steps(); n != 0 {
			t.Errorf("%d steps at pace off", n)
		}
		s.set(mustPace(t, "3s"))
		time.Sleep(31 * time.Second)
		if n := c.steps(); n != 10 {
			t.Errorf("%d steps in 31 s at 3s, want 10", n)
		}
		s.set(pace.Pace{})
		time.Sleep(time.Hour)
		if n := c.steps(); n != 10 {
			t.Errorf("%d steps after pace off, want 10", n)
		}
		close(done)
		s.set(pace.Pace{})
	})
}

func TestStepperStopsBeforeTheStoreIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{limit: 5}
		s := newStepper(c, c)
		done := make(chan struct{})
		go loop(s, done)
		s.set(mustPace(t, "1s"))
		time.Sleep(time.Minute)
		if n := c.steps(); n != 5 {
			t.Errorf("%d steps with room for 5", n)
		}
		if _, err := s.step(); !errors.Is(err, errEFIBudget) {
			t.Errorf("step without room: got %v, want errEFIBudget", err)
		}
		close(done)
		s.set(pace.Pace{})
	})
}

func TestFindOption(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"Alone":  {"vmstate.step=3s-10s\n", "3s-10s"},
		"Among":  {"quiet vmstate.step=fast loglevel=1", "fast"},
		"Prefix": {"xvmstate.step=fast", ""},
		"None":   {"quiet", ""},
	}
	for name, tc := range cases {
		got, ok := findOption(tc.text, stepOption)
		if got != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: got %q %v, want %q", name, got, ok, tc.want)
		}
	}
}
