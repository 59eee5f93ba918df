// Package probe asks a store whether it keeps the contract of objectstore.Store,
// before backups are trusted to it, and says in words for a person what it found.
//
// It writes a few small objects below "probe/", races writers against each other,
// reads, lists and deletes. What stands in the way is a Failed finding; after one
// that makes the rest pointless, the rest is not tried.
package probe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Outcome of a check.
type Outcome string

const (
	// OK: as it should be.
	OK Outcome = "OK"
	// Warning: works, with a limit that the message names.
	Warning Outcome = "Warning"
	// Failed: stands in the way; the message says what to do.
	Failed Outcome = "Failed"
)

// Finding is what one check found.
type Finding struct {
	Check   string
	Outcome Outcome
	Message string
}

// The checks, in the order in which they are made.
const (
	CheckConnect     = "Connect"
	CheckEncrypted   = "Encrypted"
	CheckClock       = "Clock"
	CheckBucket      = "Versions"
	CheckLock        = "ObjectLock"
	CheckChecksum    = "Checksum"
	CheckEncryption  = "ServerSideEncryption"
	CheckConditional = "ConditionalWrite"
	CheckRace        = "ConcurrentWrites"
	CheckRead        = "ReadBack"
	CheckList        = "ListAfterWrite"
	CheckDelete      = "Delete"
)

// ErrNoConditionalWrites: the store overwrites an object, or lets two writers both
// believe that they created it.
var ErrNoConditionalWrites = errors.New("no conditional writes")

// Target is a store and what only its implementation can tell of it.
type Target interface {
	// Modes are the checksum modes to try, the best first. The last must need
	// nothing of the store.
	Modes() []string
	// Open returns the store with one of the modes.
	Open(mode string) (objectstore.Store, error)
	// Verifies creates key with a checksum that is not that of its body, and tells
	// whether the store refused it.
	Verifies(ctx context.Context, mode, key string) (bool, error)
	// Skew is how far the store's clock is ahead of ours, as the last answer told;
	// false if no answer told.
	Skew() (time.Duration, bool)
	// Encrypted tells whether the connection is.
	Encrypted() bool
	// Name is the store for a person: an address without credentials.
	Name() string
}

// Result is what a probe found.
type Result struct {
	// Findings, one for each check that was made, in order.
	Findings []Finding
	// Checksum is the mode to use; empty if none works.
	Checksum string
	// Err is the first failure: one of the errors of objectstore or
	// ErrNoConditionalWrites where that fits. Nil if no finding is Failed.
	Err error
}

// Run probes target. It returns early only when ctx ends, with that as Err.
func Run(ctx context.Context, target Target) Result {
	p := &probe{target: target, dir: "probe/" + rand.Text()}
	for _, check := range []func(context.Context) bool{
		p.connect, p.encrypted, p.clock, p.bucket, p.checksum, p.conditional, p.race, p.encryption, p.read, p.list, p.lock, p.delete,
	} {
		if !check(ctx) {
			break
		}
	}
	return p.result
}

// probe is one run. Each check returns whether it makes sense to go on.
type probe struct {
	target  Target
	dir     string
	store   objectstore.Store
	result  Result
	created map[string][]byte
	setup   Bucket
	locked  []string // keys that cannot be deleted yet
}

func (p *probe) key(name string) string { return p.dir + "/" + name }

func (p *probe) found(check string, outcome Outcome, format string, args ...any) {
	p.result.Findings = append(p.result.Findings, Finding{check, outcome, fmt.Sprintf(format, args...)})
}

// failed records err as a failure of check, with what to do about it, and ends the probe.
func (p *probe) failed(check, attempt string, err error) bool {
	p.found(check, Failed, "%s: %v. %s", attempt, err, p.advice(err))
	if p.result.Err == nil {
		p.result.Err = fmt.Errorf("%s: %w", attempt, err)
	}
	return false
}

func (p *probe) connect(ctx context.Context) bool {
	p.created = map[string][]byte{}
	modes := p.target.Modes()
	store, err := p.target.Open(modes[len(modes)-1])
	if err != nil {
		return p.failed(CheckConnect, "open "+p.target.Name(), err)
	}
	_, err = store.Stat(ctx, p.key("absent"))
	if !errors.Is(err, objectstore.ErrNotFound) {
		if err == nil {
			err = errors.New("the store says that it holds an object that nobody made")
		}
		return p.failed(CheckConnect, "ask "+p.target.Name()+" for an object that does not exist", err)
	}
	p.found(CheckConnect, OK, "%s answers and takes the credentials", p.target.Name())
	return true
}

func (p *probe) encrypted(context.Context) bool {
	if !p.target.Encrypted() {
		p.found(CheckEncrypted, Warning, "the connection is plain http: backups are encrypted and signed all the same, but who listens sees object names and sizes, and can disturb. Use https if the server offers it")
		return true
	}
	p.found(CheckEncrypted, OK, "the connection is encrypted")
	return true
}

// Servers refuse requests at 15 minutes; warn long before.
const maxSkew = time.Minute

func (p *probe) clock(context.Context) bool {
	skew, known := p.target.Skew()
	switch {
	case !known:
		p.found(CheckClock, OK, "the store does not tell its time")
	case skew.Abs() > maxSkew:
		p.found(CheckClock, Warning, "the store's clock is %s; requests are refused from 15 minutes on. Set the clock (NTP) of the store or of the nodes", ahead(skew))
	default:
		p.found(CheckClock, OK, "the store's clock is within %s of ours", maxSkew)
	}
	return true
}

func ahead(skew time.Duration) string {
	if skew < 0 {
		return skew.Abs().Round(time.Second).String() + " behind ours"
	}
	return skew.Round(time.Second).String() + " ahead of ours"
}
