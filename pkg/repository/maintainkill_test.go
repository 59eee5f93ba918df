package repository_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
)

// TestMaintainKilledAtEveryCall ends a remover for good before, or after, each call of its
// two passes. Those that come after it bring the store to the same end, and every backup
// that was to stay restores.
func TestMaintainKilledAtEveryCall(t *testing.T) {
	t.Parallel()
	p := newProtocol(t, 4)
	want, calls := p.killedAt(1<<30, false)
	if calls < 30 {
		t.Errorf("two passes took %d calls", calls)
	}
	for n := 1; n <= calls; n++ {
		for _, after := range []bool{false, true} {
			got, _ := p.killedAt(n, after)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("killed at call %d (after=%v): what is left (-want +got):\n%s", n, after, diff)
			}
		}
	}
	t.Logf("killed at %d calls, before and after each; lost backups 0", calls)
}

// killedAt kills two passes at their call n, lets others end the work, and returns what
// is left.
func (p *protocol) killedAt(n int, after bool) (left []string, calls int) {
	p.t.Helper()
	inner := memstore.New()
	for key, o := range p.objects {
		_, err := inner.Create(p.t.Context(), key, o.body)
		must(p.t, err)
	}
	kill := func(faultstore.Call) error {
		if calls++; calls >= n {
			return errKilled
		}
		return nil
	}
	faults := faultstore.New(inner, faultstore.Faults{})
	repo, err := repository.OpenWithKeys(p.t.Context(), faults, p.keys)
	must(p.t, err)
	set := faultstore.Faults{Before: kill}
	if after {
		set = faultstore.Faults{After: kill}
	}
	faults.Set(set)
	pass := func(i int) error {
		spec := p.maintainSpec(p.base[0], p.base[2])
		spec.Store, spec.Now = faults, p.now.Add(time.Duration(i)*2*time.Hour)
		_, err := repo.Maintain(p.t.Context(), spec)
		return err
	}
	if err := pass(1); err == nil {
		err = pass(2)
		if err != nil && !errors.Is(err, errKilled) {
			p.t.Fatal(err)
		}
	}
	total := calls
	faults.Set(faultstore.Faults{})
	for i := range 3 {
		must(p.t, pass(i+3))
	}
	p.stay(repo, inner, n)
	return slices.Sorted(maps.Keys(contents(p.t, inner))), total
}

// stay checks that the backups which were to stay do, whole.
func (p *protocol) stay(repo *repository.Repository, store *memstore.Store, n int) {
	p.t.Helper()
	for _, i := range []int{1, 3} {
		c, err := repo.Commit(context.Background(), p.base[i].CommitRef)
		if err == nil {
			err = repo.Check(context.Background(), c)
		}
		if err != nil {
			p.t.Errorf("killed at call %d: backup %d: %v", n, i, err)
		}
	}
	reader, err := repository.OpenWithIdentities(p.t.Context(), store, p.identities, p.keys.SigningKey())
	must(p.t, err)
	got, err := restoreAll(p.t.Context(), reader, p.base[3].CommitRef)
	if err != nil || !got.equal(p.in) {
		p.t.Errorf("killed at call %d: restore: %v", n, err)
	}
}

// TestMaintainRequests holds the number of requests to the formula in FORMAT.md.
func TestMaintainRequests(t *testing.T) {
	p := newProtocol(t, 3)
	// One maintenance key; three commits, one of which goes; tables of one node each.
	const keysOfMaintenance, commits, sessions, asked, nodes = 1, 3, 3, 1, 2
	first := p.pass(p.base[0])
	want := repository.Requests{
		List: 3 + 4 + 1,
		Get:  keysOfMaintenance + 1 + sessions + commits + nodes*commits + 2*asked + 2,
		Put:  asked + 1,
	}
	if diff := cmp.Diff(want, first.Requests); diff != "" {
		t.Errorf("pass that announces (-formula +counted):\n%s", diff)
	}
	second := p.pass()
	want = repository.Requests{
		List:   3 + 4,
		Get:    keysOfMaintenance + 1 + 1 + asked + sessions + commits + nodes*(commits-asked),
		Put:    asked,
		Delete: second.Deleted.Objects + 1,
	}
	if diff := cmp.Diff(want, second.Requests); diff != "" {
		t.Errorf("pass that deletes (-formula +counted):\n%s", diff)
	}
	third := p.pass()
	want = repository.Requests{List: 3 + 4, Get: keysOfMaintenance + 1 + (commits-asked)*(1+nodes)}
	markers := 0
	for _, key := range p.objectsOf("r/") {
		if strings.Contains(key, p.base[0].Key[len(p.base[0].Key)-32:]) {
			markers = 1 // what went has left objects that others need
		}
	}
	want.Get += markers
	if diff := cmp.Diff(want, third.Requests); diff != "" {
		t.Errorf("pass without work (-formula +counted):\n%s", diff)
	}
}
