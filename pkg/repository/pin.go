package repository

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// UseKeys lets a repository that was opened with identities pin what it reads. ErrForeign
// if they are keys of another one.
func (r *Repository) UseKeys(k *Keys) error {
	if err := keys.Owns(r.format, k); err != nil {
		return err
	}
	r.keys = k
	return nil
}

// ReadPin holds one backup for a reader, so that no garbage collection removes it.
type ReadPin struct {
	repo    *Repository
	session commit.Session
}

// maxPins bounds how often one reader starts again after its end.
const maxPins = 64

// Pin holds a backup until Done. uid names the reader, as SessionKey does: one that
// starts again finds its own pin, and one that starts again after Done is uid/1, uid/2
// and so on. ErrNoKeys if the repository is open for reading only: then nothing but the
// interval of garbage collection protects the reader. ErrNoCommit if the backup is gone or
// announced to go: whoever removes it may not have seen the pin.
func (r *Repository) Pin(ctx context.Context, c *Commit, uid string, owner uint64) (*ReadPin, error) {
	if r.keys == nil {
		return nil, ErrNoKeys
	}
	n, err := layout.ParseCommit(c.Key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	link, err := linkOf(c.CommitRef, n.VM)
	if err != nil {
		return nil, err
	}
	p := &ReadPin{repo: r, session: commit.Session{
		Kind: commit.ReaderSession, Repository: r.id, Epoch: r.keys.Epoch(), VM: n.VM, Owner: owner, Parent: &link,
	}}
	for i := range maxPins {
		p.session.Run = r.keys.Set().Run(n.VM, pinName(uid, i))
		if ended, err := p.put(ctx); err != nil || !ended {
			if err == nil {
				err = p.check(ctx, c)
			}
			return p, err
		}
	}
	return nil, fmt.Errorf("%w: reader %q has ended %d times", ErrInvalid, uid, maxPins)
}

// pinName names the pin of a reader that has ended n pins before.
func pinName(uid string, n int) string {
	if n == 0 {
		return uid
	}
	return fmt.Sprintf("%s/%d", uid, n)
}

// ReadBy reports whether a session is a pin of the reader uid, whatever it reads and however often it
// has begun again. False for other sessions, and without keys.
func (r *Repository) ReadBy(s Session, uid string) bool {
	vm, run, _, ok := layout.ParseSession(s.Key)
	if r.keys == nil || !s.Reader || !ok {
		return false
	}
	for i := range maxPins {
		if r.keys.Set().Run(vm, pinName(uid, i)) == run {
			return true
		}
	}
	return false
}

// put stores the pin, and reports whether it had been ended already.
func (p *ReadPin) put(ctx context.Context) (ended bool, err error) {
	key := layout.Session(p.session.VM, p.session.Run)
	if _, err := objectstore.CreateOrSame(ctx, p.repo.store, key, p.session.Encode(p.repo.keys)); err != nil {
		return false, fmt.Errorf("pin backup: %w", err)
	}
	_, err = p.repo.store.Stat(ctx, layout.Done(p.session.VM, p.session.Run))
	if errors.Is(err, objectstore.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// check looks, after the pin was put, whether anybody removes the backup.
func (p *ReadPin) check(ctx context.Context, c *Commit) error {
	_, tombstone, err := p.repo.tombstone(ctx, nameOf(c.CommitRef))
	if err != nil {
		return err
	}
	if tombstone {
		return fmt.Errorf("commit %q: %w: it is being removed", c.Key, ErrNoCommit)
	}
	_, err = p.repo.readCommit(ctx, c.CommitRef)
	if errors.Is(err, ErrAborted) {
		return fmt.Errorf("%w: it was removed: %w", ErrNoCommit, err)
	}
	return err
}

// Done ends the pin. A pin that nobody ends is dropped when its owner says that the
// reader is dead.
func (p *ReadPin) Done(ctx context.Context) error {
	key := layout.Done(p.session.VM, p.session.Run)
	object := commit.EncodeDone(p.repo.keys, p.session.VM, p.session.Run)
	if _, err := objectstore.CreateOrSame(ctx, p.repo.store, key, object); err != nil {
		return fmt.Errorf("end pin: %w", err)
	}
	return nil
}
