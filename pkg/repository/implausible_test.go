package repository_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// hiding is a store whose lists leave something out.
type hiding struct {
	objectstore.Deleter
	hidden func(key string) bool
}

func (h *hiding) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		for info, err := range h.Deleter.List(ctx, prefix) {
			if err == nil && h.hidden(info.Key) {
				continue
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// fail makes the calls of some kind fail below a prefix.
func (c *collector) fail(op faultstore.Op, prefix string, cause error) {
	c.faults.Set(faultstore.Faults{Before: func(call faultstore.Call) error {
		if call.Op == op && strings.HasPrefix(call.Key, prefix) {
			return fmt.Errorf("%s %q: %w", op, call.Key, cause)
		}
		return nil
	}})
}

// TestImplausible: lists that cannot be whole, records that cannot be read and a store
// that does not answer delete nothing.
func TestImplausible(t *testing.T) {
	flip := func(b []byte) []byte { b = slices.Clone(b); b[len(b)/2] ^= 1; return b }
	no := make([]byte, 126)
	cases := map[string]struct {
		hide  func(key string) bool          // from lists
		spoil func(c *collector, key string) // given the key of the newest commit
		held  error                          // of the virtual machine
		err   error                          // of the pass
	}{
		"NoCommits":    {hide: func(k string) bool { return k[0] == 'c' }, held: repository.ErrMissing},
		"OneHidden":    {hide: func(k string) bool { return strings.HasPrefix(k, "c/") && strings.Contains(k, "/0000000002-") }, held: repository.ErrMissing},
		"NewestHidden": {hide: func(k string) bool { return strings.HasPrefix(k, "c/") && strings.Contains(k, "/0000000004-") }, held: repository.ErrMissing},
		"DamagedCommit": {
			spoil: func(c *collector, key string) { c.change(key, flip) }, held: repository.ErrNotAuthentic,
		},
		"FalseMarker": {
			spoil: func(c *collector, key string) {
				c.change(key, func([]byte) []byte { return append([]byte("VMSTABT1"), no...) })
			},
			held: repository.ErrNotAuthentic,
		},
		"DamagedTables": {
			spoil: func(c *collector, key string) {
				c.change(c.indexOf(key), func(b []byte) []byte { return make([]byte, len(b)) })
			},
			held: repository.ErrDamaged,
		},
		"CommitsUnreachable":    {spoil: func(c *collector, _ string) { c.fail(faultstore.List, "c/", objectstore.ErrUnreachable) }, err: objectstore.ErrUnreachable},
		"SessionsUnreachable":   {spoil: func(c *collector, _ string) { c.fail(faultstore.List, "s/", objectstore.ErrUnreachable) }, err: objectstore.ErrUnreachable},
		"TombstonesUnreachable": {spoil: func(c *collector, _ string) { c.fail(faultstore.List, "t/", objectstore.ErrUnreachable) }, err: objectstore.ErrUnreachable},
		"PacksUnreachable":      {spoil: func(c *collector, _ string) { c.fail(faultstore.List, "r/", objectstore.ErrUnreachable) }, err: objectstore.ErrUnreachable},
		"TablesUnreachable":     {spoil: func(c *collector, _ string) { c.fail(faultstore.Open, "r/", objectstore.ErrUnreachable) }, err: objectstore.ErrUnreachable},
		"Forbidden":             {spoil: func(c *collector, _ string) { c.fail(faultstore.Open, "c/", objectstore.ErrDenied) }, err: objectstore.ErrDenied},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t)
			refs, _ := c.chain(4)
			c.pass()
			c.pass()                 // no sessions are left
			c.pass(refs[0], refs[2]) // makes what follows due
			c.now = c.now.Add(time.Hour)
			spec := c.maintainSpec()
			if tc.hide != nil {
				spec.Store = &hiding{c.faults, tc.hide}
			}
			if tc.spoil != nil {
				tc.spoil(c, refs[3].Key)
			}
			c.faults.Calls()
			r, err := c.writer.Maintain(t.Context(), spec)
			if !errors.Is(err, tc.err) {
				t.Errorf("pass ended with %v, not %v", err, tc.err)
			}
			if tc.held != nil && (len(r.Held) != 1 || !errors.Is(r.Held[0].Err, tc.held)) {
				t.Errorf("held: %+v, not by %v", r.Held, tc.held)
			}
			for _, call := range c.faults.Calls() {
				if call.Op == faultstore.Delete && call.Key[0] != 'a' || call.Op == faultstore.Replace {
					t.Errorf("%s %q", call.Op, call.Key)
				}
			}
		})
	}
}

// change puts other bytes in the place of an object.
func (c *collector) change(key string, body func([]byte) []byte) {
	c.t.Helper()
	have, err := objectstore.Get(c.t.Context(), c.store, key, 1<<30)
	must(c.t, err)
	_, err = c.faults.Replace(c.t.Context(), key, body(have))
	must(c.t, err)
}

// indexOf is the last index pack of the run that a commit is of.
func (c *collector) indexOf(key string) string {
	c.t.Helper()
	n, err := layout.ParseCommit(key)
	must(c.t, err)
	list := c.objectsOf(layout.IndexPack(n.VM, keys.Origin{Run: n.Run, Attempt: 1}, 0))
	return list[len(list)-1]
}

// TestLostCommitOfOpenSession: a commit is gone while the session of its dead writer is still there. That its backup
// was made is known, or told by a later one; so its run is not ended, and nothing that it stored is deleted.
func TestLostCommitOfOpenSession(t *testing.T) {
	for name, tc := range map[string]struct {
		lost  int
		known bool
	}{"Known": {2, true}, "NamedByLater": {1, false}} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t)
			refs, _ := c.chain(3)
			must(t, c.faults.Delete(t.Context(), refs[tc.lost].Key))
			before := c.objectsOf("")
			for range 2 {
				c.now = c.now.Add(time.Hour)
				spec := c.maintainSpec()
				if tc.known {
					spec.Known = []repository.CommitRef{refs[tc.lost].CommitRef}
				}
				r, err := c.writer.Maintain(t.Context(), spec)
				must(t, err)
				if len(r.Held) != 1 || !errors.Is(r.Held[0].Err, repository.ErrMissing) || !strings.Contains(r.Held[0].Err.Error(), refs[tc.lost].Key) {
					t.Errorf("held: %+v", r.Held)
				}
			}
			if diff := cmp.Diff(before, c.objectsOf("")); diff != "" {
				t.Errorf("objects (-before +after):\n%s", diff)
			}
		})
	}
}
