package mover

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/firmware"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/tree"
)

// treeIn lets a volume that would be stored be read at once.
type treeIn struct{ volume repository.TreeVolume }

func (t treeIn) Entries() []tree.Entry { return t.volume.Entries }

func (t treeIn) Contents(_ context.Context, path string) ([]byte, error) {
	r, err := t.volume.Open(path)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// The digest of the moment is over owners, modes, times, attributes and contents: all
// must survive the change of form.
func TestStateKeepsItsDigest(t *testing.T) {
	state := stateTree(t)
	state.Entries[1].Xattrs = map[string][]byte{"user.b": []byte("2"), "user.a": {0, 1}}
	state.Entries[1].UID, state.Entries[1].GID = 107, 4_000_000_000
	got, err := stateOf(t.Context(), treeIn{stateVolume("persistent-state", state)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(state, got, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("state mismatch (-want +got):\n%s", diff)
	}
	if got.Digest() != state.Digest() {
		t.Errorf("digest %s, want %s", got.Digest(), state.Digest())
	}
}

func TestStateRefusesLinks(t *testing.T) {
	v := repository.TreeVolume{Entries: []tree.Entry{{Path: "swtpm", Type: tree.TypeSymlink, Target: "/etc"}}}
	if _, err := stateOf(t.Context(), treeIn{v}); !errors.Is(err, firmware.ErrBadTree) {
		t.Errorf("got %v, want ErrBadTree", err)
	}
}

func TestCapturedState(t *testing.T) {
	p := newPod(t, nil)
	if _, _, err := capturedState(p.Paths.State, ""); !errors.Is(err, ErrMount) {
		t.Errorf("nothing mounted: got %v, want ErrMount", err)
	}
	digest := p.capture(t, stateTree(t))
	got, _, err := capturedState(p.Paths.State, digest)
	if err != nil || got.Digest() != digest {
		t.Errorf("got digest %s, %v; want %s", got.Digest(), err, digest)
	}
	if _, _, err := capturedState(p.Paths.State, "another"); !errors.Is(err, ErrStateDiffers) {
		t.Errorf("another moment's digest: got %v, want ErrStateDiffers", err)
	}
	chunk := filepath.Join(p.Paths.State, "0", "chunk")
	body, err := os.ReadFile(chunk)
	if err != nil {
		t.Fatal(err)
	}
	body[len(body)/2] ^= 1
	write(t, chunk, body)
	if _, _, err := capturedState(p.Paths.State, digest); !errors.Is(err, firmware.ErrArchive) {
		t.Errorf("altered chunk: got %v, want ErrArchive", err)
	}
}

func TestKeepState(t *testing.T) {
	p := newPod(t, nil)
	digest := p.capture(t, stateTree(t))
	dir := folder(t, filepath.Join(p.Paths.Volumes, "kept"))
	folder(t, filepath.Join(dir, "lost+found"))
	write(t, filepath.Join(dir, "state-007.vmsfwa"), []byte("of an earlier try"))
	task := config.KeepState{Volume: "kept", Digest: digest}
	for range 2 {
		if err := KeepState(p.Env, task); err != nil {
			t.Fatal(err)
		}
	}
	got, err := keptState(dir, digest)
	if err != nil || got.Digest() != digest {
		t.Errorf("kept state has digest %s, %v; want %s", got.Digest(), err, digest)
	}
	task.Digest = "another"
	if err := KeepState(p.Env, task); !errors.Is(err, ErrStateDiffers) {
		t.Errorf("another moment's digest: got %v, want ErrStateDiffers", err)
	}
}

// A backup without a store: the kept state is written for a machine of another name.
func TestImportKeptState(t *testing.T) {
	p := newPod(t, nil)
	digest := p.capture(t, stateTree(t))
	folder(t, filepath.Join(p.Paths.Volumes, "kept"))
	if err := KeepState(p.Env, config.KeepState{Volume: "kept", Digest: digest}); err != nil {
		t.Fatal(err)
	}
	dir := folder(t, filepath.Join(p.Paths.Volumes, "state"))
	from := config.Machine{VMName: vmName, FirmwareUUID: vmUUID, PersistentTPM: true, PersistentEFI: true}
	to := from
	to.VMName = "db2"
	task := config.Import{State: &config.ImportState{VolumeName: "state", KeptVolume: "kept", Digest: digest, From: from, To: to, TPMPolicy: "Keep"}}
	for range 2 {
		if _, err := Import(t.Context(), p.Env, task, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "nvram", "db2_VARS.fd")); err != nil {
		t.Error(err)
	}
	task.State.TPMPolicy = "Blank"
	if _, err := Import(t.Context(), p.Env, task, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "swtpm", vmUUID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("TPM policy Blank: the TPM's directory is there (%v)", err)
	}
	task.State.Digest = "another"
	if _, err := Import(t.Context(), p.Env, task, nil); !errors.Is(err, ErrStateDiffers) {
		t.Errorf("another backup's state: got %v, want ErrStateDiffers", err)
	}
}
