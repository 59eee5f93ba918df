package main

import (
	"sync"
	"time"

	"github.com/vmstate/vmstate/test/guest/pace"
)

const printInterval = time.Second

// storeBudget says when the variable store has no room for another step.
type storeBudget interface{ Spent() bool }

// generator makes the next generation; *protocol.Guest is one.
type generator interface{ Step() (uint64, error) }

// stepper steps by itself at a pace that may change at any time.
type stepper struct {
	guest  generator
	budget storeBudget
	wake   chan struct{}

	mu     sync.Mutex // guards pace and closed
	pace   pace.Pace
	closed bool

	stepMu  sync.Mutex // held during a step
	printed time.Time
}

func newStepper(g generator, b storeBudget) *stepper {
	return &stepper{guest: g, budget: b, wake: make(chan struct{}, 1)}
}

// set changes the pace; a pause that is running starts anew.
func (s *stepper) set(p pace.Pace) {
	s.mu.Lock()
	s.pace = p
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// close lets a step in flight end and allows no further one.
func (s *stepper) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.set(pace.Pace{})
	s.stepMu.Lock() // never unlocked: the machine goes down
}

// run never returns.
func (s *stepper) run() {
	for {
		s.turn()
	}
}

// turn waits for what the pace asks for and then steps; a change of pace ends it.
func (s *stepper) turn() {
	s.mu.Lock()
	p := s.pace
	s.mu.Unlock()
	if !p.On() {
		<-s.wake
		return
	}
	if pause := p.Next(); pause > 0 {
		select {
		case <-s.wake:
			return
		case <-time.After(pause):
		}
	}
	s.stepAndSay()
}

func (s *stepper) stepAndSay() {
	gen, err := s.step()
	if err != nil {
		s.set(pace.Pace{})
		say("STEPS STOPPED error=%q", err.Error())
		return
	}
	if now := time.Now(); now.Sub(s.printed) >= printInterval {
		s.printed = now
		say("STEP gen=%d", gen)
	}
}

// step makes one generation unless the variable store is nearly full.
func (s *stepper) step() (uint64, error) {
	s.stepMu.Lock()
	defer s.stepMu.Unlock()
	if s.budget.Spent() {
		return 0, errEFIBudget
	}
	return s.guest.Step()
}
