package repository_test

import (
	"context"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// casts are the scenarios, each on a repository with one backup; RemoversMeet on one with
// two, of which the first is announced to go and the second stands on it.
func casts() map[string]func(*playing) cast {
	crashing := func(a *actor, crashes, restarts int) *actor {
		a.crashes, a.restarts = crashes, restarts
		return a
	}
	return map[string]func(*playing) cast{
		// A backup on one that is being removed. The two orders that break two-step fossil
		// collection are among these: it begins between collection and deletion, and it
		// begins before the collection and commits after the deletion.
		"WriterRemover": func(r *playing) cast {
			return cast{writers: []*actor{r.writer("w", r.base[0])}, removers: []*actor{r.remover("g", 2, r.base[0])}}
		},
		// The writer is killed at any call, and is started again.
		"KilledWriter": func(r *playing) cast {
			return cast{
				writers:  []*actor{crashing(r.writer("w", r.base[0]), 1, 1)},
				removers: []*actor{r.remover("g", 2, r.base[0])},
			}
		},
		// The remover is killed at any call, and is started again.
		"KilledRemover": func(r *playing) cast {
			return cast{
				writers:  []*actor{r.writer("w", r.base[0])},
				removers: []*actor{crashing(r.remover("g", 2, r.base[0]), 1, 1)},
			}
		},
		// A writer at work is said to be dead.
		"Zombie": func(r *playing) cast {
			return cast{lies: true, writers: []*actor{r.writer("w", r.base[0])}, removers: []*actor{r.remover("g", 2, r.base[0])}}
		},
		"TwoWriters": func(r *playing) cast {
			return cast{
				early:    true,
				writers:  []*actor{r.writer("v", r.base[0]), r.writer("w", r.base[0])},
				removers: []*actor{r.remover("g", 2, r.base[0])},
			}
		},
		// Two attempts of one backup, which is itself removed when it is there.
		"TwoAttempts": func(r *playing) cast {
			return cast{
				lies: true, early: true,
				writers:  []*actor{r.writer("w#1", nil), r.writer("w#2", nil)},
				removers: []*actor{r.latest("g", 2)},
			}
		},
		// One announces what the other deletes, beside a backup on it.
		"TwoRemovers": func(r *playing) cast {
			return cast{
				early:    true,
				writers:  []*actor{r.writer("w", r.base[0])},
				removers: []*actor{r.remover("f", 1, r.base[0]), r.remover("g", 1, r.base[0])},
			}
		},
		// Each may have done, or found done, what the other is at.
		"RemoversMeet": func(r *playing) cast {
			return cast{removers: []*actor{r.remover("f", 1, r.base[0]), r.remover("g", 1, r.base[0])}}
		},
		"Reader": func(r *playing) cast {
			return cast{
				readers:  []*actor{crashing(r.reader("q", r.base[0].CommitRef), 1, 0)},
				removers: []*actor{r.remover("g", 2, r.base[0])},
			}
		},
	}
}

// large are the scenarios that take longer: up to a minute each, and several under the race
// detector.
var large = map[string]bool{"KilledWriter": true, "TwoWriters": true, "TwoAttempts": true, "TwoRemovers": true}

// protocolOf is the repository that a scenario begins with.
func protocolOf(t *testing.T, scenario string) *protocol {
	if scenario == "RemoversMeet" {
		return announced(t, 2)
	}
	return newProtocol(t, 1)
}

// TestProtocol tries every order of the calls of writers, removers and readers, of whom
// some are killed or said to be dead.
func TestProtocol(t *testing.T) {
	for name, set := range casts() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if large[name] && os.Getenv("VMSTATE_MODEL") == "" {
				t.Skip("takes long; VMSTATE_MODEL=large runs it, VMSTATE_MODEL=full with every call in every order")
			}
			began := time.Now()
			e, err := protocolOf(t, name).explore(set)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states, %d runs, %d ends, %d calls in %s", len(e.seen), e.runs, len(e.ends), e.calls, time.Since(began).Round(time.Second))
		})
	}
}

// TestBrokenProtocol breaks the order of steps, in one way after the other, and expects
// that TestProtocol would have noticed.
func TestBrokenProtocol(t *testing.T) {
	cases := map[string]struct {
		of     string // the scenario
		writer wrapper
		remove wrapper
	}{
		"SessionsListedBeforeTombstone": {of: "WriterRemover", remove: func(_ *protocol, d objectstore.Deleter) objectstore.Deleter { return &listsFirst{Deleter: d} }},
		"SessionAfterCheck":             {of: "WriterRemover", writer: func(_ *protocol, d objectstore.Deleter) objectstore.Deleter { return &sessionLate{Deleter: d} }},
		"UnconditionalCommit":           {of: "Zombie", writer: func(_ *protocol, d objectstore.Deleter) objectstore.Deleter { return &overwriting{d} }},
		"NoMarker":                      {of: "Zombie", remove: func(_ *protocol, d objectstore.Deleter) objectstore.Deleter { return &unmarked{d} }},
		"PacksBeforeCommit":             {of: "WriterRemover", remove: func(_ *protocol, d objectstore.Deleter) objectstore.Deleter { return &commitsLast{Deleter: d} }},
		"OneSessionSeen":                {of: "TwoWriters", remove: func(p *protocol, d objectstore.Deleter) objectstore.Deleter { return &fewSessions{d, p.objects, 1} }},
		"ReaderNotSeen":                 {of: "Reader", remove: func(p *protocol, d objectstore.Deleter) objectstore.Deleter { return &fewSessions{d, p.objects, 0} }},
		"SecondAttemptCommitsOver":      {of: "TwoAttempts", writer: func(_ *protocol, d objectstore.Deleter) objectstore.Deleter { return &overwriting{d} }},
		"ListedBeforeCandidates": {of: "TwoRemovers", remove: func(_ *protocol, d objectstore.Deleter) objectstore.Deleter {
			return &listsEarly{listsFirst{Deleter: d}}
		}},
		"TombstoneFirst":              {of: "KilledRemover", remove: func(_ *protocol, d objectstore.Deleter) objectstore.Deleter { return &tombstoneFirst{d} }},
		"KilledWithSessionAfterCheck": {of: "KilledWriter", writer: func(_ *protocol, d objectstore.Deleter) objectstore.Deleter { return &sessionLate{Deleter: d} }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if large[tc.of] && os.Getenv("VMSTATE_MODEL") == "" {
				t.Skip("takes as long as its scenario, which VMSTATE_MODEL=large runs")
			}
			p := protocolOf(t, tc.of)
			e, err := p.explore(func(r *playing) cast {
				c := casts()[tc.of](r)
				for _, a := range c.writers {
					a.wrap = tc.writer.once(p)
				}
				for _, a := range c.removers {
					a.wrap = tc.remove.once(p)
				}
				return c
			})
			if err == nil {
				t.Fatalf("not noticed in %d states", len(e.seen))
			}
			t.Logf("noticed after %d states: %.300s", len(e.seen), err)
		})
	}
}

// wrapper breaks a program by what it does to its store.
type wrapper func(p *protocol, d objectstore.Deleter) objectstore.Deleter

// once wraps a store once for all that an actor does.
func (w wrapper) once(p *protocol) func(objectstore.Deleter) objectstore.Deleter {
	if w == nil {
		return nil
	}
	var wrapped objectstore.Deleter
	return func(d objectstore.Deleter) objectstore.Deleter {
		if wrapped == nil {
			wrapped = w(p, d)
		}
		return wrapped
	}
}

// listsFirst lists runs and sessions before it puts a tombstone, and goes by these lists.
type listsFirst struct {
	objectstore.Deleter
	lists map[string][]objectstore.Info
}

func (l *listsFirst) Replace(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	if vm, ok := strings.CutPrefix(key, "t/"); ok {
		if err := l.take(ctx, vm[:strings.IndexByte(vm, '/')+1]); err != nil {
			return objectstore.Info{}, err
		}
	}
	return l.Deleter.Replace(ctx, key, body)
}

func (l *listsFirst) take(ctx context.Context, machine string) error {
	l.lists = map[string][]objectstore.Info{}
	for _, prefix := range []string{"r/" + machine, "s/" + machine} {
		for info, err := range l.Deleter.List(ctx, prefix) {
			if err != nil {
				return err
			}
			l.lists[prefix] = append(l.lists[prefix], info)
		}
	}
	return nil
}

func (l *listsFirst) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	if list, ok := l.lists[prefix]; ok {
		return func(yield func(objectstore.Info, error) bool) {
			for _, info := range list {
				if !yield(info, nil) {
					return
				}
			}
		}
	}
	return l.Deleter.List(ctx, prefix)
}

// sessionLate puts its session when all has been looked at.
type sessionLate struct {
	objectstore.Deleter
	key  string
	body []byte
}

func (l *sessionLate) Create(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	if key[0] == 's' {
		l.key, l.body = key, slices.Clone(body)
		return objectstore.Info{Key: key, Size: int64(len(body))}, nil
	}
	if l.body != nil {
		if _, err := l.Deleter.Create(ctx, l.key, l.body); err != nil {
			return objectstore.Info{}, err
		}
		l.body = nil
	}
	return l.Deleter.Create(ctx, key, body)
}
