package mover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/ticket"
)

// Holder is whoever has an identity, somewhere outside of the cluster.
type Holder interface {
	// Ask publishes an encoded ticket.Request and waits, as long as it takes, for an answer that it has not given
	// before. refusal says why the last one was not taken; empty for a new request.
	Ask(ctx context.Context, request []byte, refusal string) (sealed []byte, err error)
	// Done says that all keys are there.
	Done(ctx context.Context) error
}

// reading is a repository that is open for one restore, with an identity or with the keys that its holder hands over.
type reading struct {
	*repository.Repository
	env     Env
	rootKey []byte
	unlock  *config.Unlock
	// identity that tickets are sealed to. It ends with this process.
	identity *age.HybridIdentity
	handed   repository.Handed
}

// open opens the repository for reading.
func (e Env) open(ctx context.Context, rootKey []byte, unlock *config.Unlock) (*reading, error) {
	r := &reading{env: e, rootKey: rootKey, unlock: unlock}
	if unlock == nil {
		ids, err := e.identities()
		if err != nil {
			return nil, err
		}
		if r.Repository, err = e.expecting(ctx)(repository.OpenWithIdentities(ctx, e.Store, ids, rootKey)); err != nil {
			return nil, err
		}
		return r, nil
	}
	if e.Holder == nil || unlock.Restore == "" {
		return nil, fmt.Errorf("%w: nobody can be asked for keys", ErrTask)
	}
	var err error
	if r.identity, err = age.GenerateHybridIdentity(); err != nil {
		return nil, fmt.Errorf("generate identity: %w", err)
	}
	request, err := repository.IndexRequest(ctx, e.Store, unlock.Restore, r.identity.Recipient().String())
	if err != nil {
		return nil, err
	}
	err = r.ask(ctx, request, func(t *ticket.Ticket) error {
		r.handed = repository.Handed{Epochs: t.Epochs, Data: map[keys.Origin][32]byte{}}
		r.Repository, err = e.expecting(ctx)(repository.OpenHanded(ctx, e.Store, r.handed, rootKey))
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// expecting takes a repository that was opened if its store shows what the cluster knows of its keys, and has it refuse
// whatever would not be shown later.
func (e Env) expecting(ctx context.Context) func(*repository.Repository, error) (*repository.Repository, error) {
	return func(r *repository.Repository, err error) (*repository.Repository, error) {
		if err != nil {
			return nil, err
		}
		r.Expect(e.Known)
		return r, r.Shows(ctx)
	}
}

// commit opens a record. A marker in its place says that the backup was removed.
func (r *reading) commit(ctx context.Context, c config.Commit) (*repository.Commit, error) {
	found, err := r.Commit(ctx, repository.CommitRef{Key: c.Key, Digest: c.Digest})
	if errors.Is(err, repository.ErrAborted) {
		return nil, fmt.Errorf("%w: it was removed: %w", repository.ErrNoCommit, err)
	}
	return found, err
}

// openData makes the data of one backup readable: with an identity it is already.
func (r *reading) openData(ctx context.Context, c *repository.Commit) error {
	if r.unlock == nil {
		return nil
	}
	requests, err := r.DataRequests(ctx, c, r.unlock.Restore, r.identity.Recipient().String())
	if err != nil {
		return fmt.Errorf("ask for the keys of backup %q: %w", c.Backup.Name, err)
	}
	for _, q := range requests {
		err := r.ask(ctx, q, func(t *ticket.Ticket) error {
			if err := r.Proves(ctx, c, t.Data); err != nil {
				return err
			}
			maps.Copy(r.handed.Data, t.Data)
			return nil
		})
		if err != nil {
			return err
		}
	}
	opened, err := r.env.expecting(ctx)(repository.OpenHanded(ctx, r.env.Store, r.handed, r.rootKey))
	if err != nil {
		return err
	}
	r.Repository = opened
	if err := r.env.Holder.Done(ctx); err != nil {
		return fmt.Errorf("say that the keys have come: %w", err)
	}
	return nil
}

// ask waits for a ticket that answers q, and that accept takes. Others are refused, and waiting goes on.
func (r *reading) ask(ctx context.Context, q *ticket.Request, accept func(*ticket.Ticket) error) error {
	body, refusal := q.Encode(), ""
	for {
		sealed, err := r.env.Holder.Ask(ctx, body, refusal)
		if err != nil {
			return fmt.Errorf("wait for a ticket: %w", err)
		}
		t, wrong := ticket.Open(sealed, r.identity, ticket.IDOf(body), time.Now())
		if wrong == nil {
			wrong = t.Covers(q)
		}
		if wrong == nil {
			wrong, err = r.compare(ctx, func() error { return accept(t) })
		}
		if wrong == nil || err != nil {
			return err
		}
		refusal = wrong.Error()
	}
}

const (
	// storePause is the first pause after a store did not answer while a ticket was looked at; it doubles up to longestStorePause.
	storePause        = 500 * time.Millisecond
	longestStorePause = 30 * time.Second
	// storeAway is how long a ticket is kept for a store that does not answer: somebody has typed for it.
	storeAway = 15 * time.Minute
)

// compare has the keys of a ticket compared with what the store names. wrong is what is the matter with the ticket; err
// is about the store, and says nothing about the ticket: where another try may cure it, it is tried again.
func (r *reading) compare(ctx context.Context, accept func() error) (wrong, err error) {
	began := time.Now()
	for pause := storePause; ; pause = min(2*pause, longestStorePause) {
		err := accept()
		switch {
		case err == nil:
			return nil, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, repository.ErrNotAuthentic), errors.Is(err, repository.ErrNoIdentity):
			return err, nil
		case Final(err), time.Since(began) >= storeAway:
			return nil, fmt.Errorf("compare the ticket with the store: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}
