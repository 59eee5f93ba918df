package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// checksum finds the best mode that the store both takes and verifies.
func (p *probe) checksum(ctx context.Context) bool {
	if modes := p.target.Modes(); len(modes) == 1 {
		p.found(CheckChecksum, OK, "there is no network between here and the store")
		return p.use(modes[0])
	}
	var refused []string
	var last error
	for _, mode := range p.target.Modes() {
		verifies, err := p.try(ctx, mode)
		switch {
		case err == nil && verifies:
			p.found(CheckChecksum, OK, "%s: the store takes it, and refuses a body that does not match%s", mode, but(refused))
			return p.use(mode)
		case err == nil:
			refused = append(refused, mode+" (taken, not verified)")
			p.result.Checksum = mode
		case hopeless(err):
			return p.failed(CheckChecksum, "write a test object", err)
		default:
			refused = append(refused, fmt.Sprintf("%s (%v)", mode, err))
			last = err
		}
	}
	if p.result.Checksum == "" {
		return p.failed(CheckChecksum, "write a test object in any checksum mode", last)
	}
	p.found(CheckChecksum, Warning, "%s: the store verifies no checksum of what it is sent%s. Damage on the way is found when a backup is read, not when it is written", p.result.Checksum, but(refused))
	return p.use(p.result.Checksum)
}

// hopeless tells an error that another mode cannot cure.
func hopeless(err error) bool {
	for _, kind := range []error{objectstore.ErrUnreachable, objectstore.ErrDenied, objectstore.ErrNoBucket, objectstore.ErrFull, objectstore.ErrClockSkew, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func but(refused []string) string {
	if len(refused) == 0 {
		return ""
	}
	return fmt.Sprintf("; not usable: %q", refused)
}

func (p *probe) try(ctx context.Context, mode string) (verifies bool, err error) {
	store, err := p.target.Open(mode)
	if err != nil {
		return false, err
	}
	p.store = store
	key, body := p.key("checksum-"+mode), randomBody(300_007)
	if err := p.create(ctx, key, body); err != nil {
		return false, err
	}
	if p.wanted().Lock { // servers ask for a checksum of their own choice where there is a retention
		key := p.key(LockedName + mode)
		if _, err := p.store.Create(ctx, key, body[:1000]); err != nil {
			return false, err
		}
		p.locked = append(p.locked, key)
	}
	return p.target.Verifies(ctx, mode, p.key("falsified-"+mode))
}

func (p *probe) use(mode string) bool {
	p.result.Checksum = mode
	store, err := p.target.Open(mode)
	if err != nil {
		return p.failed(CheckChecksum, "open "+p.target.Name(), err)
	}
	p.store = store
	return true
}

func (p *probe) create(ctx context.Context, key string, body []byte) error {
	_, err := p.store.Create(ctx, key, body)
	if err == nil {
		p.created[key] = body
	}
	return err
}

func (p *probe) conditional(ctx context.Context) bool {
	key, first := p.key("conditional"), randomBody(1000)
	if err := p.create(ctx, key, first); err != nil {
		return p.failed(CheckConditional, "create an object", err)
	}
	_, err := p.store.Create(ctx, key, randomBody(1001))
	if err == nil {
		return p.failed(CheckConditional, "create the same object twice", fmt.Errorf("%w: the second overwrote the first", ErrNoConditionalWrites))
	}
	if !errors.Is(err, objectstore.ErrExists) {
		return p.failed(CheckConditional, "create the same object twice", fmt.Errorf("%w: %w", ErrNoConditionalWrites, err))
	}
	p.found(CheckConditional, OK, "the store refuses to overwrite an object")
	return true
}

// race has several writers create one key at once, a few times over. Multi-site
// endpoints fail it: each site takes its own.
func (p *probe) race(ctx context.Context) bool {
	const rounds, writers = 3, 8
	for round := range rounds {
		key := p.key(fmt.Sprintf("race-%d", round))
		winners, err := p.raceOnce(ctx, key, writers)
		if err != nil {
			return p.failed(CheckRace, fmt.Sprintf("create one object %d times at once", writers), err)
		}
		if winners != 1 {
			err := fmt.Errorf("%w: %d of %d writers were told that they created it", ErrNoConditionalWrites, winners, writers)
			return p.failed(CheckRace, fmt.Sprintf("create one object %d times at once", writers), err)
		}
	}
	p.found(CheckRace, OK, "of %d writers at once exactly one wins", writers)
	return true
}

func (p *probe) raceOnce(ctx context.Context, key string, writers int) (winners int, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			body := randomBody(2000)
			_, createErr := p.store.Create(ctx, key, body)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case createErr == nil:
				winners++
				p.created[key] = body
			case !errors.Is(createErr, objectstore.ErrExists):
				err = createErr
			}
		})
	}
	wg.Wait()
	return winners, err
}

func (p *probe) read(ctx context.Context) bool {
	for key, body := range p.created {
		got, err := objectstore.Get(ctx, p.store, key, int64(len(body)))
		if err != nil {
			return p.failed(CheckRead, "read an object back", err)
		}
		from, length := len(body)/3, len(body)/3
		part, err := objectstore.GetRange(ctx, p.store, key, int64(from), int64(length))
		if err != nil {
			return p.failed(CheckRead, "read part of an object", err)
		}
		if !bytes.Equal(got, body) || !bytes.Equal(part, body[from:from+length]) {
			return p.failed(CheckRead, "read an object back", fmt.Errorf("%w: it is not what was written", objectstore.ErrCorrupted))
		}
	}
	p.found(CheckRead, OK, "objects and parts of them read back as they were written")
	return true
}

func (p *probe) list(ctx context.Context) bool {
	var listed []string
	for info, err := range p.store.List(ctx, p.dir+"/") {
		if err != nil {
			return p.failed(CheckList, "list objects", err)
		}
		if body, ours := p.created[info.Key]; ours && int64(len(body)) == info.Size {
			listed = append(listed, info.Key)
		}
	}
	if len(listed) != len(p.created) {
		err := fmt.Errorf("%d of %d objects just written are listed with their size", len(listed), len(p.created))
		return p.failed(CheckList, "list objects", err)
	}
	if !slices.IsSorted(listed) {
		return p.failed(CheckList, "list objects", errors.New("they are not in the order of their keys"))
	}
	p.found(CheckList, OK, "objects are listed at once after they were written")
	return true
}

func (p *probe) delete(ctx context.Context) bool {
	for _, mode := range p.target.Modes() { // those that were taken in spite of a false checksum
		p.created[p.key("falsified-"+mode)] = nil
	}
	for key := range p.created {
		if err := p.remove(ctx, key); err != nil {
			p.found(CheckDelete, Warning, "delete an object: %v. Backups can be written and restored, but %d test objects of a few KiB stay below %q", err, len(p.created), p.dir)
			return true
		}
		if _, err := p.store.Stat(ctx, key); !errors.Is(err, objectstore.ErrNotFound) {
			p.found(CheckDelete, Warning, "a deleted object is still there (%v): deleting takes effect late", err)
			return true
		}
	}
	p.sweep(ctx)
	p.found(CheckDelete, OK, "deleted objects are gone at once")
	return true
}

// remove deletes key with its versions. Credentials that may not delete versions leave
// markers over what the probe wrote.
func (p *probe) remove(ctx context.Context, key string) error {
	if !p.setup.Versioned {
		return p.store.Delete(ctx, key)
	}
	err := objectstore.Remove(ctx, p.store, key)
	if errors.Is(err, objectstore.ErrDenied) || errors.Is(err, objectstore.ErrLocked) {
		return p.store.Delete(ctx, key)
	}
	return err
}

// randomBody is different each time, so that a body tells its writer.
func randomBody(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}
