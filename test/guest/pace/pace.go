// Package pace says how often the guest steps by itself.
//
//	off      never
//	fast     without pause
//	3s       every 3 s
//	3s-10s   at random intervals, evenly spread from 3 s to 10 s
package pace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// ErrInvalid is returned for text that is no pace.
var ErrInvalid = errors.New("invalid pace: want off, fast, an interval like 3s, or a range like 3s-10s")

// Pace is a parsed pace. The zero value is off.
type Pace struct {
	on       bool
	min, max time.Duration
}

// Parse reads a pace; empty text is off.
func Parse(s string) (Pace, error) {
	switch s {
	case "", "off":
		return Pace{}, nil
	case "fast":
		return Pace{on: true}, nil
	}
	low, high, isRange := strings.Cut(s, "-")
	if !isRange {
		high = low
	}
	p := Pace{on: true}
	var err1, err2 error
	p.min, err1 = time.ParseDuration(low)
	p.max, err2 = time.ParseDuration(high)
	if err1 != nil || err2 != nil || p.min <= 0 || p.max < p.min {
		return Pace{}, fmt.Errorf("pace %q: %w", s, ErrInvalid)
	}
	return p, nil
}

// On says whether the guest steps by itself at all.
func (p Pace) On() bool { return p.on }

// Next returns the pause before the next step.
func (p Pace) Next() time.Duration {
	if p.max == p.min {
		return p.min
	}
	return p.min + rand.N(p.max-p.min+1)
}

// String returns what Parse reads.
func (p Pace) String() string {
	switch {
	case !p.on:
		return "off"
	case p.max == 0:
		return "fast"
	case p.max == p.min:
		return p.min.String()
	default:
		return p.min.String() + "-" + p.max.String()
	}
}
