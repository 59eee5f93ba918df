package s3

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// TestMaintain removes a backup from a real server, in a bucket that keeps no versions
// and in one that does: of what goes no version is left, and the other backup restores.
// Where the server locks what goes, it stays, whole.
func TestMaintain(t *testing.T) {
	for name, b := range map[string]Bucket{"Plain": {}, "Versioned": {Versioned: true}, "Locked": {Locked: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			maintained(t, newEngine(t, StartWith(t, b)), b)
		})
	}
}

func maintained(t *testing.T, e *engine, b Bucket) {
	disk, other := storetest.Bytes(1, 2<<20), storetest.Bytes(2, 2<<20)
	goes, err := e.backup(t.Context(), "goes", nil, disk)
	if err != nil {
		t.Fatal(err)
	}
	stays, err := e.backup(t.Context(), "stays", nil, other)
	if err != nil {
		t.Fatal(err)
	}
	m := newMaintainer(t, e)
	first := m.pass(t, goes)
	run := goes.Key[strings.LastIndexByte(goes.Key, '-')+1:]
	if b.Locked {
		for v, err := range e.store.Versions(t.Context(), "c/") {
			until := objectstore.Retention{Mode: objectstore.Governance, Until: time.Now().Add(time.Hour)}
			if err == nil && v.Key == goes.Key {
				err = e.store.Retain(t.Context(), v.Key, v.ID, until)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	second := m.pass(t)
	t.Logf("first pass %+v, second %+v: %+v", first.Requests, second.Requests, second.Deleted)
	if b.Locked {
		// All of a backup stays whose record is locked, and counts as locked.
		if second.Locked != second.Waiting || second.Locked.Objects < 4 || second.Packs.Objects > 0 {
			t.Errorf("pass over what is locked: %+v", second)
		}
	} else if len(second.Removed) != 1 || second.Packs.Objects == 0 {
		t.Errorf("second pass: %+v", second)
	}
	left := 0
	for v, err := range e.store.Versions(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(v.Key, run) {
			left++
		}
	}
	if !b.Locked && left != 1 {
		t.Errorf("%d versions of what went are left, not the marker alone", left)
	}
	if err := e.restore(t.Context(), stays.CommitRef, other); err != nil {
		t.Error(err)
	}
	if b.Locked {
		if err := e.restore(t.Context(), goes.CommitRef, disk); err != nil {
			t.Errorf("backup that is locked: %v", err)
		}
	}
}

type maintainer struct {
	*engine
	repo *repository.Repository
	key  *keys.MaintenanceKey
	now  time.Time
}

func newMaintainer(t *testing.T, e *engine) *maintainer {
	t.Helper()
	m := &maintainer{engine: e, now: time.Now()}
	var err error
	if m.key, err = keys.GenerateMaintenance(e.keys); err != nil {
		t.Fatal(err)
	}
	if m.repo, err = repository.OpenWithKeys(t.Context(), e.store, e.keys); err != nil {
		t.Fatal(err)
	}
	if _, err := m.repo.AddMaintenanceKey(t.Context(), m.key); err != nil {
		t.Fatal(err)
	}
	return m
}

// pass is one pass, an interval after the one before.
func (m *maintainer) pass(t *testing.T, remove ...repository.Result) repository.MaintainResult {
	t.Helper()
	m.now = m.now.Add(time.Hour)
	spec := repository.MaintainSpec{
		Store: m.store, Key: m.key, Now: m.now, Interval: time.Hour,
		Judge: func(context.Context, repository.Session) (repository.Fate, error) { return repository.Dead, nil },
	}
	for _, r := range remove {
		spec.Remove = append(spec.Remove, repository.Removal{CommitRef: r.CommitRef})
	}
	r, err := m.repo.Maintain(t.Context(), spec)
	if err != nil || len(r.Held) > 0 || len(r.Refused) > 0 {
		t.Fatalf("pass: %+v, %v", r, err)
	}
	return r
}
