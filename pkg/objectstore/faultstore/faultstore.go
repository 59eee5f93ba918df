// Package faultstore wraps an objectstore.Store and fails on cue: before a call,
// after it (the answer is lost), or in what it reads. It also counts the calls,
// so that a test can say how many requests something costs.
package faultstore

import (
	"sync"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Op names a method of Store.
type Op string

const (
	Create    Op = "Create"
	Open      Op = "Open"
	Stat      Op = "Stat"
	List      Op = "List"
	Delete    Op = "Delete"
	Replace   Op = "Replace"
	Retention Op = "Retention"
	Retain    Op = "Retain"
)

// Call is one call of a method. N counts all calls of one Store from 1. Key is
// the prefix for List. Offset and Length are those of Open; Length is the length
// of the body for Create and Replace.
type Call struct {
	N              int
	Op             Op
	Key            string
	Offset, Length int64
}

// Faults says what goes wrong. Each function may be nil. They are called from
// the goroutines of the callers, one at a time.
type Faults struct {
	// Before, if it returns an error, ends the call with it; nothing was done.
	Before func(Call) error
	// After, if it returns an error, ends a call with it that was done: the answer
	// was lost. For List it is called after the last object.
	After func(Call) error
	// Alter changes what Open yields: bytes flipped, cut or swapped.
	Alter func(Call, []byte) []byte
}

// Store is an objectstore.Store with faults.
type Store struct {
	inner objectstore.Store

	mu     sync.Mutex
	faults Faults
	calls  []Call
	total  int
}

var _ objectstore.Deleter = (*Store)(nil)

// New wraps inner. With no faults it behaves as inner does.
func New(inner objectstore.Store, faults Faults) *Store {
	return &Store{inner: inner, faults: faults}
}

// Set replaces the faults from the next call on.
func (s *Store) Set(faults Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = faults
}

// Calls returns the calls so far and forgets them; numbers go on.
func (s *Store) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// Count tells how many of calls are of op.
func Count(calls []Call, op Op) int {
	n := 0
	for _, c := range calls {
		if c.Op == op {
			n++
		}
	}
	return n
}

// FailAt fails call number n with err, before it is done.
func FailAt(n int, err error) func(Call) error {
	return func(c Call) error {
		if c.N == n {
			return err
		}
		return nil
	}
}

// FailFrom fails every call from number n on with err, as if the store had gone.
func FailFrom(n int, err error) func(Call) error {
	return func(c Call) error {
		if c.N >= n {
			return err
		}
		return nil
	}
}
