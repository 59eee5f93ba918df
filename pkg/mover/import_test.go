package mover

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmstate/vmstate/pkg/firmware"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// backedUp is a pod whose store holds one backup.
func backedUp(t *testing.T) (*pod, ExportResult, config.Import) {
	t.Helper()
	return backedUpOn(t, memstore.New())
}

func backedUpOn(t *testing.T, store objectstore.Store) (*pod, ExportResult, config.Import) {
	t.Helper()
	p := newPod(t, store)
	export, _ := p.exportTask(t, p.set(t))
	done, err := Export(t.Context(), p.Env, export)
	if err != nil {
		t.Fatal(err)
	}
	machine := config.Machine{VMName: vmName, FirmwareUUID: vmUUID, PersistentTPM: true, PersistentEFI: true}
	folder(t, filepath.Join(p.Paths.Volumes, "persistent-state"))
	p.clear(t, export.Disks)
	return p, done, config.Import{
		Commit: &config.Commit{Key: done.Key, Digest: done.Digest},
		Disks:  export.Disks,
		State:  &config.ImportState{VolumeName: "persistent-state", Digest: done.StateDigest, From: machine, To: machine, TPMPolicy: "Keep"},
	}
}

// clear leaves the volumes of disks as fresh ones are.
func (p *pod) clear(t *testing.T, disks []config.Disk) {
	t.Helper()
	for _, d := range disks {
		if err := os.RemoveAll(filepath.Join(p.Paths.Volumes, d.Name, imageName)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestImportRefuses(t *testing.T) {
	stranger, err := keys.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		change func(t *testing.T, p *pod, c *config.Import)
		want   error
	}{
		"WrongIdentity": {func(t *testing.T, p *pod, _ *config.Import) {
			write(t, filepath.Join(p.Paths.Identities, "key.txt"), []byte(stranger.Secret))
		}, repository.ErrWrongIdentity},
		"NotAnIdentity": {func(t *testing.T, p *pod, _ *config.Import) {
			write(t, filepath.Join(p.Paths.Identities, "key.txt"), []byte(stranger.Recipient))
		}, keys.ErrIdentity},
		"NoIdentity": {func(_ *testing.T, p *pod, _ *config.Import) { p.Paths.Identities += "-not" }, ErrMount},
		"DigestOfAnother": {func(_ *testing.T, _ *pod, c *config.Import) {
			c.Commit.Digest = "00" + c.Commit.Digest[2:]
		}, repository.ErrNotAuthentic},
		"NoSuchCommit": {func(_ *testing.T, _ *pod, c *config.Import) {
			c.Commit.Key = c.Commit.Key[:len(c.Commit.Key)-2] + "00"
		}, repository.ErrNoCommit},
		"DiskLeftOut": {func(_ *testing.T, _ *pod, c *config.Import) { c.Disks = c.Disks[:1] }, ErrIncomplete},
		"DiskTooMany": {func(_ *testing.T, _ *pod, c *config.Import) {
			c.Disks = append(c.Disks[:2:2], config.Disk{Name: "third", Mode: config.Filesystem})
		}, ErrIncomplete},
		"StateOfAnother":  {func(_ *testing.T, _ *pod, c *config.Import) { c.State.Digest = "another" }, ErrStateDiffers},
		"NoStateInBackup": {func(_ *testing.T, _ *pod, c *config.Import) { c.State.VolumeName = "absent" }, ErrIncomplete},
		"StateOfOtherUUID": {func(_ *testing.T, _ *pod, c *config.Import) {
			c.State.From.FirmwareUUID = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
		}, firmware.ErrUnusable},
		"NoPolicy":    {func(_ *testing.T, _ *pod, c *config.Import) { c.State.TPMPolicy = "" }, ErrTask},
		"NothingToDo": {func(_ *testing.T, _ *pod, c *config.Import) { c.Commit, c.State = nil, nil }, ErrTask},
		"NotMounted": {func(t *testing.T, p *pod, _ *config.Import) {
			if err := os.RemoveAll(filepath.Join(p.Paths.Volumes, "data")); err != nil {
				t.Fatal(err)
			}
		}, ErrVolume},
	} {
		t.Run(name, func(t *testing.T) {
			p, _, task := backedUp(t)
			tc.change(t, p, &task)
			_, err := Import(t.Context(), p.Env, task, nil)
			if !errors.Is(err, tc.want) || !Final(err) {
				t.Errorf("got %v, final %t; want %v, final", err, Final(err), tc.want)
			}
		})
	}
}

// Every object that holds part of the backup is altered, cut or missing: the import
// fails, and no volume is reported as good.
func TestImportOfDamagedBackup(t *testing.T) {
	p, done, task := backedUp(t)
	origin := p.Store
	resolve := config.Resolve{Commit: &config.Commit{Key: done.Key, Digest: done.Digest}}
	objects := 0
	for info, err := range origin.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		objects++
		for damage, alter := range map[string]func([]byte) []byte{
			"Altered": func(b []byte) []byte { b[len(b)/2] ^= 0x40; return b },
			"Cut":     func(b []byte) []byte { return b[:len(b)-1] },
		} {
			p.Store = faultstore.New(origin, faultstore.Faults{Alter: func(c faultstore.Call, b []byte) []byte {
				if c.Key == info.Key && len(b) > 0 {
					return alter(b)
				}
				return b
			}})
			_, resolveErr := Resolve(t.Context(), p.Env, resolve, nil)
			p.clear(t, task.Disks)
			got, err := Import(t.Context(), p.Env, task, nil)
			if err == nil && opened(t, origin, p, task, info.Key) {
				t.Errorf("%s %s: imported %+v, resolve says %v", damage, info.Key, got, resolveErr)
			}
		}
	}
	if objects < 7 {
		t.Errorf("only %d objects were damaged", objects)
	}
}

// opened tells whether an import reads key at all: a session marker is part of no restore.
func opened(t *testing.T, origin any, p *pod, task config.Import, key string) bool {
	t.Helper()
	watch := faultstore.New(origin.(*memstore.Store), faultstore.Faults{})
	q := *p
	q.Store = watch
	p.clear(t, task.Disks)
	if _, err := Import(t.Context(), q.Env, task, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range watch.Calls() {
		if c.Key == key {
			return true
		}
	}
	return false
}

// The import is killed at every call of the store; the next one on the same volumes is whole.
func TestImportKilled(t *testing.T) {
	p, _, task := backedUp(t)
	inner := p.Store
	killed := errors.New("killed")
	for n := 1; ; n++ {
		p.clear(t, task.Disks)
		p.Store = faultstore.New(inner, faultstore.Faults{Before: faultstore.FailFrom(n, killed)})
		got, err := Import(t.Context(), p.Env, task, nil)
		if err == nil {
			break
		}
		if got != nil {
			t.Fatalf("killed at call %d: %+v is reported as good", n, got)
		}
		p.Store = inner
		if _, err := Import(t.Context(), p.Env, task, nil); err != nil {
			t.Fatalf("killed at call %d, then: %v", n, err)
		}
	}
}

// What an earlier try has written is not fetched again; what is wrong with it is.
func TestImportGoesOn(t *testing.T) {
	p, _, task := backedUp(t)
	fetched := func() (n int64) {
		t.Helper()
		p.Progress = func(now Progress) { n = now.Read }
		if _, err := Import(t.Context(), p.Env, task, nil); err != nil {
			t.Fatal(err)
		}
		return n
	}
	whole := fetched()
	if again := fetched(); whole == 0 || again != 0 {
		t.Errorf("%d bytes were fetched, and %d once all was there", whole, again)
	}
	image := filepath.Join(p.Paths.Volumes, task.Disks[0].Name, imageName)
	body, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	spoiled := bytes.Clone(body)
	spoiled[5] ^= 1        // in data
	spoiled[1<<20+7] = 0x5 // in what is zero
	write(t, image, spoiled)
	if some := fetched(); some == 0 || some >= whole {
		t.Errorf("%d bytes were fetched for one unit, all are %d", some, whole)
	}
	if got, err := os.ReadFile(image); err != nil || !bytes.Equal(got, body) {
		t.Errorf("the image is not what it was: %v", err)
	}
}

func TestResolveByID(t *testing.T) {
	p, done, _ := backedUp(t)
	for name, tc := range map[string]struct {
		task config.Resolve
		want error
	}{
		"Latest":     {config.Resolve{VMNamespace: "prod", VMName: vmName, ID: "latest"}, nil},
		"Sequence":   {config.Resolve{VMNamespace: "prod", VMName: vmName, ID: "1"}, nil},
		"Digest":     {config.Resolve{VMNamespace: "prod", VMName: vmName, ID: done.Digest[:8]}, nil},
		"Key":        {config.Resolve{VMNamespace: "prod", VMName: vmName, ID: done.Key}, nil},
		"KeyEnd":     {config.Resolve{VMNamespace: "prod", VMName: vmName, ID: filepath.Base(done.Key)}, nil},
		"ShortDigit": {config.Resolve{VMNamespace: "prod", VMName: vmName, ID: done.Digest[:7]}, repository.ErrNoCommit},
		"OtherVM":    {config.Resolve{VMNamespace: "prod", VMName: "web"}, repository.ErrNoCommit},
		"OtherSpace": {config.Resolve{VMNamespace: "dev", VMName: vmName}, repository.ErrNoCommit},
		"NoVM":       {config.Resolve{ID: "latest"}, ErrTask},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Resolve(t.Context(), p.Env, tc.task, nil)
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if err == nil && got.Key != done.Key {
				t.Errorf("got %q, want %q", got.Key, done.Key)
			}
		})
	}
	_, err := Resolve(t.Context(), p.Env, config.Resolve{VMNamespace: "prod", VMName: vmName}, make([]byte, 32))
	if !errors.Is(err, repository.ErrNotAuthentic) {
		t.Errorf("pinned to another key: got %v, want ErrNotAuthentic", err)
	}
}
