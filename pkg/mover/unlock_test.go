package mover

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/ticket"
)

// holder answers from what is in a request alone, as kubectl vmstate unlock does: it has no store.
type holder struct {
	t   *testing.T
	ids []age.Identity
	// spoil changes what is answered, for as long as it says so.
	spoil    func(q *ticket.Request, a *ticket.Ticket) (sealed []byte, spoiled bool)
	refusals []string
	requests [][]byte
}

func (h *holder) Ask(ctx context.Context, request []byte, refusal string) ([]byte, error) {
	if refusal != "" {
		h.refusals = append(h.refusals, refusal)
	} else {
		h.requests = append(h.requests, request)
	}
	if len(h.refusals) > 3 {
		return nil, errors.New("the holder gives up")
	}
	q, err := ticket.Decode(request)
	if err != nil {
		h.t.Fatal(err)
	}
	a, err := repository.AnswerTo(ctx, q, h.ids, nil, repository.Known{})
	if err != nil {
		return nil, err
	}
	answer := &ticket.Ticket{Request: ticket.IDOf(request), Expires: time.Now().Add(time.Hour), Epochs: a.Epochs, Data: a.Data}
	if h.spoil != nil && len(h.refusals) == 0 {
		if sealed, spoiled := h.spoil(q, answer); spoiled {
			return sealed, nil
		}
	}
	return seal(h.t, answer, q.Recipient), nil
}

func seal(t *testing.T, a *ticket.Ticket, recipient string) []byte {
	t.Helper()
	sealed, err := a.Seal(recipient)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

// locked is a pod that holds no identity, and the holder of one.
func locked(t *testing.T) (*pod, *holder, ExportResult, config.Import) {
	t.Helper()
	p, done, task := backedUp(t)
	if err := os.RemoveAll(p.Paths.Identities); err != nil {
		t.Fatal(err)
	}
	ids, err := keys.ParseIdentities([]byte(p.identity.Secret))
	if err != nil {
		t.Fatal(err)
	}
	h := &holder{t: t, ids: ids}
	p.Holder = h
	task.Unlock = &config.Unlock{Restore: "restore-uid"}
	return p, h, done, task
}

// TestUnlock: a restore comes through with tickets, and neither request nor ticket shows the identity or a key.
func TestUnlock(t *testing.T) {
	p, h, done, task := locked(t)
	found, err := Resolve(t.Context(), p.Env, config.Resolve{VMNamespace: "prod", VMName: vmName, Unlock: task.Unlock}, nil)
	if err != nil || found.Digest != done.Digest {
		t.Fatalf("resolve: %+v, %v", found.Commit, err)
	}
	want := p.disk(t, "root", 1) // as it was exported
	if err := os.Remove(filepath.Join(p.Paths.Volumes, "root", imageName)); err != nil {
		t.Fatal(err)
	}
	volumes, err := Import(t.Context(), p.Env, task, nil)
	if err != nil || len(volumes) != 3 {
		t.Fatalf("import: %+v, %v", volumes, err)
	}
	got, err := os.ReadFile(filepath.Join(p.Paths.Volumes, "root", imageName))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("disk differs: %v", err)
	}
	if len(h.requests) != 4 {
		t.Errorf("%d requests, want index and data keys of two tasks", len(h.requests))
	}
	for _, r := range h.requests {
		if strings.Contains(string(r), p.identity.Secret) {
			t.Error("a request holds the identity")
		}
		t.Logf("request of %d bytes", len(r))
	}
}

// TestUnlockRefuses: only the ticket for this request, in time, with the true keys is taken. The one that follows is.
func TestUnlockRefuses(t *testing.T) {
	stranger, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	data := func(q *ticket.Request) bool { return q.Commit != nil }
	for name, tc := range map[string]struct {
		spoil func(t *testing.T, q *ticket.Request, a *ticket.Ticket) ([]byte, bool)
		says  string
	}{
		"Expired": {func(t *testing.T, q *ticket.Request, a *ticket.Ticket) ([]byte, bool) {
			a.Expires = time.Now().Add(-time.Second)
			return seal(t, a, q.Recipient), true
		}, "expired"},
		"OtherRequest": {func(t *testing.T, q *ticket.Request, a *ticket.Ticket) ([]byte, bool) {
			a.Request[0] ^= 1
			return seal(t, a, q.Recipient), data(q)
		}, "answers another request"},
		"OtherRecipient": {func(t *testing.T, q *ticket.Request, a *ticket.Ticket) ([]byte, bool) {
			return seal(t, a, stranger.Recipient().String()), data(q)
		}, "another process"},
		"Garbage": {func(*testing.T, *ticket.Request, *ticket.Ticket) ([]byte, bool) { return []byte("x"), true }, "refused"},
		"KeyLeftOut": {func(t *testing.T, q *ticket.Request, a *ticket.Ticket) ([]byte, bool) {
			a.Data = nil
			return seal(t, a, q.Recipient), data(q)
		}, "lacks the key of run"},
		"OtherKey": {func(t *testing.T, q *ticket.Request, a *ticket.Ticket) ([]byte, bool) {
			for o, key := range a.Data {
				key[0] ^= 1
				a.Data[o] = key
			}
			return seal(t, a, q.Recipient), data(q)
		}, "not the key that the backup names"},
		"OtherIndexKey": {func(t *testing.T, q *ticket.Request, a *ticket.Ticket) ([]byte, bool) {
			key := a.Epochs[1]
			key[0] ^= 1
			if !data(q) {
				a.Epochs[1] = key
			}
			return seal(t, a, q.Recipient), !data(q)
		}, "not those that the key file names"},
	} {
		t.Run(name, func(t *testing.T) {
			p, h, _, task := locked(t)
			h.spoil = func(q *ticket.Request, a *ticket.Ticket) ([]byte, bool) { return tc.spoil(t, q, a) }
			if _, err := Import(t.Context(), p.Env, task, nil); err != nil {
				t.Fatal(err)
			}
			if len(h.refusals) != 1 || !strings.Contains(h.refusals[0], tc.says) {
				t.Errorf("refusals %q, want one that says %q", h.refusals, tc.says)
			}
		})
	}
}

// TestUnlockStoreAway: a store that does not answer while a ticket is looked at says nothing about the ticket. It is asked
// again, and the ticket is taken; one that will not answer without somebody's doing ends the task with its own error.
func TestUnlockStoreAway(t *testing.T) {
	for name, index := range map[string]bool{"IndexKeys": true, "DataKeys": false} {
		t.Run(name, func(t *testing.T) {
			for kind, passes := range map[error]bool{objectstore.ErrUnreachable: true, objectstore.ErrDenied: false} {
				p, h, _, task := locked(t)
				faults := faultstore.New(p.Store, faultstore.Faults{})
				p.Store = faults
				left := 0
				h.spoil = func(q *ticket.Request, _ *ticket.Ticket) ([]byte, bool) {
					if (q.Commit == nil) == index {
						left = 2
						faults.Set(faultstore.Faults{Before: func(faultstore.Call) error {
							if left--; left < 0 {
								return nil
							}
							return kind
						}})
					}
					return nil, false
				}
				_, err := Import(t.Context(), p.Env, task, nil)
				if len(h.refusals) > 0 || left >= 0 && passes {
					t.Errorf("%v: refused with %q, %d failures left", kind, h.refusals, left)
				}
				if passes && err != nil || !passes && !errors.Is(err, kind) {
					t.Errorf("%v: import ends with %v", kind, err)
				}
			}
		})
	}
}

// TestUnlockNobody: a task that is to ask and cannot is malformed, not a wait without end.
func TestUnlockNobody(t *testing.T) {
	p, _, _, task := locked(t)
	p.Holder = nil
	if _, err := Import(t.Context(), p.Env, task, nil); !errors.Is(err, ErrTask) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.Holder = holderFunc(func() ([]byte, error) { cancel(); <-ctx.Done(); return nil, ctx.Err() })
	if _, err := Import(ctx, p.Env, task, nil); !errors.Is(err, context.Canceled) || Final(err) {
		t.Errorf("told to stop while waiting: %v, final %t", err, Final(err))
	}
}

func (h *holder) Done(context.Context) error { return nil }

type holderFunc func() ([]byte, error)

func (f holderFunc) Ask(context.Context, []byte, string) ([]byte, error) { return f() }

func (f holderFunc) Done(context.Context) error { return nil }
