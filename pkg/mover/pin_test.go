package mover

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/dirstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
)

// remover is the maintenance of a store from which one backup is to go, a pass an hour.
type remover struct {
	env      Env
	task     config.Maintain
	now      time.Time
	sessions []string
}

func newRemover(t *testing.T, p *pod, goes *config.Commit) *remover {
	t.Helper()
	r := &remover{env: p.Env, now: time.Now(), task: config.Maintain{Remove: []config.Commit{*goes}, IntervalSeconds: 3600}}
	r.env.Paths.MaintenanceKey = filepath.Join(t.TempDir(), "maintenance-key")
	return r
}

// pass tells the Job which restores may be reading, as the manager does.
func (r *remover) pass(t *testing.T, readers ...string) MaintainResult {
	t.Helper()
	r.now = r.now.Add(time.Hour)
	r.task.Readers, r.task.Ended = readers, r.sessions
	out, err := Maintain(t.Context(), r.env, r.task, r.now, &folderKeeper{t: t, dir: r.env.Paths.MaintenanceKey})
	if err != nil || len(out.Held) > 0 {
		t.Fatalf("maintenance: %+v, %v", out, err)
	}
	r.sessions = out.Sessions
	return out
}

// halfWay has do called once, when the first pack is opened for its data.
func halfWay(inner objectstore.Store, do func()) objectstore.Store {
	var once sync.Once
	return faultstore.New(inner, faultstore.Faults{Before: func(c faultstore.Call) error {
		if c.Op == faultstore.Open && strings.HasPrefix(c.Key, "r/") {
			once.Do(do)
		}
		return nil
	}})
}

// packs counts the objects of all runs.
func packs(t *testing.T, s objectstore.Store) (n int) {
	t.Helper()
	for _, err := range s.List(t.Context(), "r/") {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// TestImportPins: a backup that is to go stays as long as a restore reads it, through any number of passes, and goes
// when that has ended. If nobody says that the reader is alive, it goes, and the import says so: this test could fail.
func TestImportPins(t *testing.T) {
	for name, newStore := range map[string]func(*testing.T) objectstore.Store{
		"Memory":    func(*testing.T) objectstore.Store { return memstore.New() },
		"Directory": func(t *testing.T) objectstore.Store { return dirstore.New(t.TempDir()) },
	} {
		for _, alive := range []bool{true, false} {
			t.Run(name+map[bool]string{true: "", false: "Gone"}[alive], func(t *testing.T) {
				p, _, task := backedUpOn(t, newStore(t))
				inner := p.Store
				task.Reader = "restore-uid"
				readers := map[bool][]string{true: {"another", "restore-uid"}, false: {"another"}}[alive]
				r := newRemover(t, p, task.Commit)
				p.Store = halfWay(inner, func() {
					for range 3 {
						if out := r.pass(t, readers...); alive && (len(out.Removed) > 0 || len(out.Pinned) != 1) {
							t.Errorf("beside the import: %+v", out)
						}
					}
				})
				done, err := Import(t.Context(), p.Env, task, nil)
				if !alive {
					if !errors.Is(err, repository.ErrMissing) && !errors.Is(err, repository.ErrAborted) || done != nil {
						t.Errorf("import of what was removed meanwhile: %+v, %v", done, err)
					}
					return
				}
				if err != nil || len(done) != 3 {
					t.Fatalf("import beside its removal: %+v, %v", done, err)
				}
				if r.pass(t, readers...); packs(t, inner) == 0 {
					t.Error("what was seen to be of no use only now is gone already")
				}
				if out := r.pass(t, readers...); packs(t, inner) > 0 || out.Deleted.Bytes == 0 {
					t.Errorf("once the import has ended, %d objects stay: %+v", packs(t, inner), out)
				}
				if _, err := Import(t.Context(), p.Env, task, nil); !errors.Is(err, repository.ErrNoCommit) || !Final(err) {
					t.Errorf("import of what was removed: %v", err)
				}
			})
		}
	}
}

// TestImportPinStays: what only stopped leaves its pin to the next attempt; what failed for good ends it; a reader that
// was killed for good is let go once nobody says that it is alive, in the pass after the one that first missed it.
func TestImportPinStays(t *testing.T) {
	p, _, task := backedUp(t)
	inner := p.Store
	task.Reader = "restore-uid"
	r := newRemover(t, p, task.Commit)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	p.Store = halfWay(inner, stop)
	if _, err := Import(ctx, p.Env, task, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("stopped import: %v", err)
	}
	p.Store = inner
	for range 3 {
		if out := r.pass(t, "restore-uid"); len(out.Pinned) != 1 {
			t.Fatalf("between two attempts: %+v", out)
		}
	}
	if out := r.pass(t); len(out.Pinned) != 1 {
		t.Errorf("the first pass that misses the reader does not keep its pin: %+v", out)
	}
	r.pass(t)
	r.pass(t)
	if n := packs(t, inner); n > 0 {
		t.Errorf("%d objects stay for a reader that is gone", n)
	}
}

// TestImportFailsAndLetsGo: what fails for good holds nothing up.
func TestImportFailsAndLetsGo(t *testing.T) {
	p, _, task := backedUp(t)
	task.Reader, task.State.Digest = "restore-uid", "another"
	if _, err := Import(t.Context(), p.Env, task, nil); !Final(err) {
		t.Fatalf("import of another state: %v", err)
	}
	r := newRemover(t, p, task.Commit)
	r.pass(t, "restore-uid")
	if r.pass(t, "restore-uid"); packs(t, p.Store) > 0 {
		t.Errorf("%d objects stay for an import that has failed", packs(t, p.Store))
	}
}

// TestImportAnnounced: a backup that is being removed already is not begun.
func TestImportAnnounced(t *testing.T) {
	p, _, task := backedUp(t)
	newRemover(t, p, task.Commit).pass(t)
	task.Reader = "restore-uid"
	if _, err := Import(t.Context(), p.Env, task, nil); !errors.Is(err, repository.ErrNoCommit) || !strings.Contains(err.Error(), "removed") {
		t.Errorf("import of what is being removed: %v", err)
	}
}

// TestImportUnpinned: who may not write, has no keys, or those of another repository, restores all the same, and it is said.
func TestImportUnpinned(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *pod){
		"ReadOnly": func(_ *testing.T, p *pod) {
			p.Store = faultstore.New(p.Store, faultstore.Faults{Before: func(c faultstore.Call) error {
				if c.Op == faultstore.Create {
					return objectstore.ErrDenied
				}
				return nil
			}})
		},
		"NoKeys": func(_ *testing.T, p *pod) { p.Paths.RepositoryKeys += "-not" },
		"OtherKeys": func(t *testing.T, p *pod) {
			stranger := newPod(t, memstore.New())
			stranger.set(t)
			p.Paths.RepositoryKeys = stranger.Paths.RepositoryKeys
		},
		"BrokenKeys": func(t *testing.T, p *pod) {
			p.Paths.RepositoryKeys = folder(t, filepath.Join(t.TempDir(), "keys"))
			write(t, filepath.Join(p.Paths.RepositoryKeys, "keys.json"), []byte("{}"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _, task := backedUp(t)
			task.Reader = "restore-uid"
			change(t, p)
			notes := 0
			p.Note = func(string, ...any) { notes++ }
			if _, err := Import(t.Context(), p.Env, task, nil); err != nil || notes != 1 {
				t.Fatalf("import: %v, %d notes", err, notes)
			}
			image, err := os.ReadFile(filepath.Join(p.Paths.Volumes, "root", imageName))
			if err != nil || len(image) != diskBytes || bytes.Count(image, []byte{0}) == diskBytes {
				t.Errorf("%d bytes came back, %v", len(image), err)
			}
		})
	}
}
