package repository_test

import (
	"errors"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// victims are two virtual machines, and the keys of their repository as a thief took them before they were rotated.
type victims struct {
	*world
	other  *repository.Result
	chain  []*repository.Result
	in     input
	root   []byte
	thief  *keys.Keys
	stolen *repository.Repository
}

func newVictims(t *testing.T) *victims {
	t.Helper()
	v := &victims{}
	v.world, v.chain, v.other, v.in = twoMachines(t)
	v.root = v.keys.SigningKey()
	var err error
	v.thief, err = keys.FromSecret(v.keys.Secret())
	must(t, err)
	v.stolen, err = repository.OpenWithKeys(t.Context(), v.store, v.thief)
	must(t, err)
	return v
}

// record is what the other machine's backup says.
func (v *victims) record() *commit.Record {
	v.t.Helper()
	c, err := v.stolen.Commit(v.t.Context(), v.other.CommitRef)
	must(v.t, err)
	r, err := v.stolen.Record(v.t.Context(), c)
	must(v.t, err)
	return r
}

// forge puts a record into the other machine's chain, as the run of that backup.
func (v *victims) forge(r *commit.Record, vm keys.ID, backupUID string) repository.CommitRef {
	v.t.Helper()
	h := commit.Header{
		Repository: v.thief.Repository(), Epoch: 1, VM: vm, Sequence: 7,
		Origin: keys.Origin{Run: v.thief.Set().Run(vm, backupUID), Attempt: 1},
	}
	ref := repository.CommitRef{Key: layout.Commit(h.VM, h.Sequence, h.Origin.Run)}
	_, err := v.store.Create(v.t.Context(), ref.Key, commit.Seal(v.thief, h, r))
	must(v.t, err)
	return ref
}

// asked is what a pod that believes the record gets for it.
func (v *victims) asked(ref repository.CommitRef) (repository.Handed, error) {
	v.t.Helper()
	handed := repository.Handed{}
	q, err := repository.IndexRequest(v.t.Context(), v.store, "restore", "recipient")
	must(v.t, err)
	a, err := answerTo(v.t, q, v.identities, v.root)
	must(v.t, err)
	handed.Epochs = a.Epochs
	r, err := repository.OpenHanded(v.t.Context(), v.store, handed, v.root)
	must(v.t, err)
	c, err := r.Commit(v.t.Context(), ref)
	if err != nil {
		return handed, err
	}
	requests, err := r.DataRequests(v.t.Context(), c, "restore", "recipient")
	must(v.t, err)
	for _, q := range requests {
		a, err := answerTo(v.t, q, v.identities, v.root)
		if err != nil {
			return handed, err
		}
		handed.Data = a.Data
	}
	return handed, nil
}

// refused says what must be in the refusal of a forged record: to hand over keys, to read, and to wrap its keys anew.
func (v *victims) refused(ref repository.CommitRef, everywhere bool, says ...string) {
	v.t.Helper()
	h, err := v.asked(ref)
	if !errors.Is(err, repository.ErrNotAuthentic) || len(h.Data) > 0 {
		v.t.Errorf("%d data keys were handed over, %v; want a refusal", len(h.Data), err)
	}
	for _, s := range says {
		if err != nil && !strings.Contains(err.Error(), s) {
			v.t.Errorf("refused with %q, which does not name %q", err, s)
		}
	}
	if !everywhere {
		return
	}
	if _, err := v.rooted(v.root).Commit(v.t.Context(), ref); !errors.Is(err, repository.ErrNotAuthentic) {
		v.t.Errorf("read: %v", err)
	}
	done, err := v.rooted(v.root).Rewrap(v.t.Context(), v.recipients)
	if err != nil || len(done.LeftOut) != 1 || !strings.Contains(done.LeftOut[0].Error(), ref.Key) {
		v.t.Errorf("rewrap: %+v, %v; want the forged record left out", done, err)
	}
}

// TestForgedForeignRuns: who has the keys that sign and seal records can write one that reaches the runs of another
// machine. Nobody who holds an identity hands over, reads or wraps anew what it names, before any key is distrusted.
func TestForgedForeignRuns(t *testing.T) {
	t.Run("RecordOfAnotherMachine", func(t *testing.T) {
		v := newVictims(t)
		r := v.record()
		r.VM = commit.Subject{Namespace: "prod", Name: "db", UID: "vm-uid"}
		vm := v.thief.Set().VM("other-uid")
		v.refused(v.forge(r, vm, r.Backup.UID+"-forged"), true, "prod/db")
	})
	t.Run("RunOfAnotherBackup", func(t *testing.T) {
		v := newVictims(t)
		r := v.record()
		r.Backup.UID = "uid-b2"
		v.refused(v.forge(r, v.thief.Set().VM("other-uid"), "uid-x"), true, "prod/x")
	})
	t.Run("NameOfAnotherMachine", func(t *testing.T) {
		v := newVictims(t)
		spec := v.spec("forged", v.other) // named prod/db, built on the backup of prod/other
		spec.VM.UID = "other-uid"
		b, err := v.stolen.Begin(t.Context(), spec)
		must(t, err)
		forged, err := run(t.Context(), b, v.in)
		b.Close()
		must(t, err)
		name, err := layout.ParseCommit(v.other.Key)
		must(t, err)
		v.refused(forged.CommitRef, false, name.Run.String(), "prod/other")
	})
	t.Run("LaterRun", func(t *testing.T) {
		v := newVictims(t)
		c, err := v.stolen.Commit(t.Context(), v.chain[2].CommitRef)
		must(t, err)
		r, err := v.stolen.Record(t.Context(), c)
		must(t, err)
		vm := v.thief.Set().VM("vm-uid")
		run := v.thief.Set().Run(vm, r.Backup.UID+"-forged")
		r.Backup.UID += "-forged"
		h := commit.Header{Repository: v.thief.Repository(), Epoch: 1, VM: vm, Sequence: 1, Origin: keys.Origin{Run: run, Attempt: 1}}
		ref := repository.CommitRef{Key: layout.Commit(vm, 1, run)}
		_, err = v.store.Create(t.Context(), ref.Key, commit.Seal(v.thief, h, r))
		must(t, err)
		late, err := layout.ParseCommit(v.chain[1].Key)
		must(t, err)
		v.refused(ref, false, late.Run.String())
	})
	t.Run("KeyOfAnotherRun", func(t *testing.T) {
		v := newVictims(t)
		c, err := v.stolen.Commit(t.Context(), v.other.CommitRef)
		must(t, err)
		theirs, err := v.stolen.KeyTable(t.Context(), c)
		must(t, err)
		b, err := v.stolen.Begin(t.Context(), v.spec("forged", nil))
		must(t, err)
		b.Borrow(theirs[0].Commitment)
		forged, err := run(t.Context(), b, v.in)
		b.Close()
		must(t, err)
		name, err := layout.ParseCommit(forged.Key)
		must(t, err)
		from, err := objectstore.Get(t.Context(), v.store, layout.DataKey(v.thief.Set().VM("other-uid"), theirs[0].Origin), 1<<20)
		must(t, err)
		to := layout.DataKey(name.VM, keys.Origin{Run: name.Run, Attempt: 1})
		must(t, v.store.Delete(t.Context(), to))
		_, err = v.store.Create(t.Context(), to, from)
		must(t, err)
		v.refused(forged.CommitRef, false, name.Run.String())
	})
}

// TestForgedAfterRotation: what the thief of an epoch's keys forges when that is over is refused as before, and once
// the epoch is distrusted whatever it says.
func TestForgedAfterRotation(t *testing.T) {
	v := newVictims(t)
	v.rotate()
	spec := v.spec("forged", v.other)
	spec.VM.UID = "other-uid"
	b, err := v.stolen.Begin(t.Context(), spec)
	must(t, err)
	forged, err := run(t.Context(), b, v.in)
	b.Close()
	must(t, err)
	v.refused(forged.CommitRef, false, "prod/other")
	v.distrusts(1, []repository.CommitRef{v.chain[2].CommitRef, v.other.CommitRef})
	if _, err := v.asked(forged.CommitRef); !errors.Is(err, repository.ErrDistrusted) {
		t.Errorf("asked for when it is distrusted: %v", err)
	}
	if _, err := v.asked(v.chain[2].CommitRef); err != nil {
		t.Errorf("a backup that is still believed: %v", err)
	}
}

// TestRunsWithoutRecord: backups whose records were removed or lost leave runs that later ones stand on. Their keys are
// handed over, and it is told how many nothing but this backup's record names.
func TestRunsWithoutRecord(t *testing.T) {
	v := newVictims(t)
	must(t, v.store.Delete(t.Context(), v.chain[0].Key))
	h, requests, err := v.unlock(v.chain[2].CommitRef, v.identities)
	must(t, err)
	if len(h.Data) != 3 {
		t.Errorf("%d keys were handed over, want 3", len(h.Data))
	}
	a, err := answerTo(t, requests[0], []age.Identity{v.identities[0]}, v.root)
	must(t, err)
	if len(a.Unnamed) != 1 {
		t.Errorf("%v are told to be named by no record of their own, want one run", a.Unnamed)
	}
}
