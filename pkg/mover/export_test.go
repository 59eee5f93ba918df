package mover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vmstate/vmstate/pkg/firmware"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/dirstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
)

var ignoreCosts = cmpopts.IgnoreFields(ExportResult{}, "ReadBytes", "Found", "StoredBytes")

// Export, find it again, resolve and import it: all bytes are back.
func TestRoundTrip(t *testing.T) {
	p := newPod(t, dirstore.New(t.TempDir()))
	task, disks := p.exportTask(t, p.set(t))
	var last Progress
	p.Progress = func(now Progress) { last = now }
	done, err := Export(t.Context(), p.Env, task)
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(2 * diskBytes); last.Total < want || last.Done < want || last.Read >= want || last.Sent == 0 {
		t.Errorf("last progress %+v, want all of %d bytes done and holes not read", last, want)
	}
	again, err := Export(t.Context(), p.Env, task)
	if err != nil || !again.Found || again.ReadBytes != 0 {
		t.Errorf("second export: found %t, read %d, %v; want the commit found", again.Found, again.ReadBytes, err)
	}
	if diff := cmp.Diff(done, again, ignoreCosts); diff != "" {
		t.Errorf("second export mismatch (-want +got):\n%s", diff)
	}
	found, err := Resolve(t.Context(), p.Env, config.Resolve{VMNamespace: "prod", VMName: vmName}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(found.Moment) != string(task.Moment) || string(found.Documents["documents.json"]) != `{"version":1}` || found.CommitRef != done.CommitRef {
		t.Errorf("resolved %q with moment %s and documents %q", found.Key, found.Moment, found.Documents)
	}
	p.importAll(t, done, disks)
}

// importAll fills a new pod's volumes and compares them with what was backed up.
func (p *pod) importAll(t *testing.T, done ExportResult, disks map[string][]byte) {
	t.Helper()
	q := newPod(t, p.Store)
	q.Paths.Identities = p.Paths.Identities
	machine := config.Machine{VMName: vmName, FirmwareUUID: vmUUID, PersistentTPM: true, PersistentEFI: true}
	task := config.Import{
		Commit: &config.Commit{Key: done.Key, Digest: done.Digest},
		Disks:  []config.Disk{{Name: "root", Mode: config.Filesystem}, {Name: "data", Mode: config.Filesystem}},
		State:  &config.ImportState{VolumeName: "persistent-state", Digest: done.StateDigest, From: machine, To: machine, TPMPolicy: "Keep"},
	}
	for _, v := range []string{"root", "data", "persistent-state"} {
		folder(t, filepath.Join(q.Paths.Volumes, v))
	}
	for range 2 { // a second pod of the Job finds what the first has left
		got, err := Import(t.Context(), q.Env, task, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 3 {
			t.Errorf("imported %+v, want three volumes", got)
		}
	}
	for name, want := range disks {
		got, err := os.ReadFile(filepath.Join(q.Paths.Volumes, name, imageName))
		if err != nil || string(got) != string(want) {
			t.Errorf("disk %q: %d bytes that are not those of the backup, %v", name, len(got), err)
		}
	}
	state, err := firmware.Read(t.Context(), filepath.Join(q.Paths.Volumes, "persistent-state"), firmware.Limits{})
	if err != nil || state.Tree.Digest() != done.StateDigest {
		t.Errorf("state has digest %s, want %s (%v)", state.Tree.Digest(), done.StateDigest, err)
	}
}

func TestExportRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(t *testing.T, p *pod, c *config.Export)
		want   error
	}{
		"StateOfAnotherMoment": {func(_ *testing.T, _ *pod, c *config.Export) { c.State.Digest = "another" }, ErrStateDiffers},
		"StateNotMounted": {func(t *testing.T, p *pod, _ *config.Export) {
			if err := os.RemoveAll(p.Paths.State); err != nil {
				t.Fatal(err)
			}
		}, ErrMount},
		"DiskNotMounted":    {func(_ *testing.T, _ *pod, c *config.Export) { c.Disks[1].Name = "absent" }, ErrVolume},
		"NothingToExport":   {func(_ *testing.T, _ *pod, c *config.Export) { c.Disks, c.State = nil, nil }, ErrTask},
		"NoBackupUID":       {func(_ *testing.T, _ *pod, c *config.Export) { c.BackupUID = "" }, ErrTask},
		"KeysNotMounted":    {func(_ *testing.T, p *pod, _ *config.Export) { p.Paths.RepositoryKeys += "-not" }, ErrMount},
		"NotInitialised":    {func(_ *testing.T, p *pod, _ *config.Export) { p.Store = memstore.New() }, repository.ErrNotInitialised},
		"DocumentsNotThere": {func(_ *testing.T, p *pod, _ *config.Export) { p.Paths.Spec += "-not" }, ErrMount},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, newStore())
			task, _ := p.exportTask(t, p.set(t))
			tc.change(t, p, &task)
			_, err := Export(t.Context(), p.Env, task)
			if !errors.Is(err, tc.want) || !Final(err) {
				t.Errorf("got %v, final %t; want %v, final", err, Final(err), tc.want)
			}
		})
	}
}

// Killed at every call of the store, before it and after it: the next try commits the
// whole backup, once, and it restores.
func TestExportKilled(t *testing.T) {
	origin := newPod(t, memstore.New())
	task, disks := origin.exportTask(t, origin.set(t))
	killed := errors.New("killed")
	for _, when := range []string{"Before", "After"} {
		for n := 1; ; n++ {
			inner := copyOf(t, origin.Store)
			fault := faultstore.FailFrom(n, killed)
			faults := faultstore.Faults{Before: fault}
			if when == "After" {
				faults = faultstore.Faults{After: fault}
			}
			p := *origin
			p.Store = faultstore.New(inner, faults)
			_, first := Export(t.Context(), p.Env, task)
			p.Store = inner
			done, err := Export(t.Context(), p.Env, task)
			if err != nil {
				t.Fatalf("killed %s call %d (%v), then: %v", when, n, first, err)
			}
			oneCommit(t, &p, fmt.Sprintf("killed %s call %d", when, n))
			if first == nil || n%7 == 0 {
				p.importAll(t, done, disks)
			}
			if first == nil {
				break
			}
		}
	}
}

func copyOf(t *testing.T, from objectstore.Store) *memstore.Store {
	t.Helper()
	to := memstore.New()
	for info, err := range from.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		body, err := objectstore.Get(t.Context(), from, info.Key, info.Size)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := to.Create(t.Context(), info.Key, body); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

func oneCommit(t *testing.T, p *pod, what string) {
	t.Helper()
	repo, err := p.open(t.Context(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for c, err := range repo.Commits(t.Context()) {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if err := repo.Check(t.Context(), c); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%s: %d commits, want 1", what, n)
	}
}

// A bucket that fills up, and one that goes away in the middle: the error says so, the
// backup does not exist, and once there is room it does.
func TestExportInterrupted(t *testing.T) {
	for name, tc := range map[string]struct {
		fault error
		final bool
	}{
		"Full":        {objectstore.ErrFull, true},
		"Unreachable": {objectstore.ErrUnreachable, false},
		"Denied":      {objectstore.ErrDenied, true},
	} {
		t.Run(name, func(t *testing.T) {
			inner := memstore.New()
			p := newPod(t, inner)
			task, _ := p.exportTask(t, p.set(t))
			creates := 0
			p.Store = faultstore.New(inner, faultstore.Faults{Before: func(c faultstore.Call) error {
				if c.Op != faultstore.Create {
					return nil
				}
				if creates++; creates > 3 {
					return tc.fault
				}
				return nil
			}})
			if _, err := Export(t.Context(), p.Env, task); !errors.Is(err, tc.fault) || Final(err) != tc.final {
				t.Errorf("got %v, final %t; want %v, final %t", err, Final(err), tc.fault, tc.final)
			}
			p.Store = inner
			if _, err := Resolve(t.Context(), p.Env, config.Resolve{VMNamespace: "prod", VMName: vmName}, nil); !errors.Is(err, repository.ErrNoCommit) {
				t.Errorf("after it: got %v, want ErrNoCommit", err)
			}
			if _, err := Export(t.Context(), p.Env, task); err != nil {
				t.Errorf("with room again: %v", err)
			}
		})
	}
}

func TestExportEnded(t *testing.T) {
	p := newPod(t, newStore())
	task, _ := p.exportTask(t, p.set(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Export(ctx, p.Env, task); !errors.Is(err, context.Canceled) || Final(err) {
		t.Errorf("got %v, final %t; want context.Canceled, not final", err, Final(err))
	}
}

// A parent whose index is gone costs the saving, not the backup.
func TestExportParentBroken(t *testing.T) {
	p := newPod(t, newStore())
	task, disks := p.exportTask(t, p.set(t))
	first, err := Export(t.Context(), p.Env, task)
	if err != nil {
		t.Fatal(err)
	}
	for info, err := range p.Store.List(t.Context(), "r/") {
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(info.Key)[0] != 'i' {
			continue
		}
		if err := p.Store.Delete(t.Context(), info.Key); err != nil {
			t.Fatal(err)
		}
	}
	task.BackupUID, task.Parent = "next-uid", &config.Commit{Key: first.Key, Digest: first.Digest}
	second, err := Export(t.Context(), p.Env, task)
	if err != nil || second.Sequence != 2 {
		t.Fatalf("export with a broken parent: sequence %d, %v", second.Sequence, err)
	}
	p.importAll(t, second, disks)
}

// A pack is gone, and whoever plans the backup knows it: what it held is sent again.
func TestExportDamaged(t *testing.T) {
	p := newPod(t, newStore())
	task, disks := p.exportTask(t, p.set(t))
	first, err := Export(t.Context(), p.Env, task)
	if err != nil {
		t.Fatal(err)
	}
	for info, err := range p.Store.List(t.Context(), "r/") {
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(info.Key)[0] == 'p' {
			task.Damaged = append(task.Damaged, info.Key)
			if err := p.Store.Delete(t.Context(), info.Key); err != nil {
				t.Fatal(err)
			}
		}
	}
	task.BackupUID, task.Parent = "next-uid", &config.Commit{Key: first.Key, Digest: first.Digest}
	second, err := Export(t.Context(), p.Env, task)
	if err != nil || second.Full || second.Sequence != 2 {
		t.Fatalf("export: full %t, sequence %d, %v", second.Full, second.Sequence, err)
	}
	p.importAll(t, second, disks)
}
