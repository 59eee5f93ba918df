package mover

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/firmware"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/objectstore/probe"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/test/firmwaredata"
)

const (
	vmName    = "db"
	vmUUID    = "0f2a1b6c-1111-4222-8333-944455556666"
	diskBytes = 5<<20 + 12_288
)

// pod is what one Job sees: its mounts, as folders of a temporary one.
type pod struct {
	Env
	identity keys.Identity
}

// newPod makes a pod with all mounts there and empty, on a store.
func newPod(t *testing.T, store objectstore.Store) *pod {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	p := &pod{Env: Env{
		Paths: Paths{
			Credentials: at("credentials"), CA: at("ca"), RepositoryKeys: at("keys"), Identities: at("identities"),
			State: at("state"), Spec: at("spec"), Volumes: at("volumes"), Devices: at("devices"),
		},
		Store: store, DocumentsVolume: "vmstate.spec",
	}}
	return p
}

func write(t *testing.T, path string, body []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
}

func folder(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// folderKeeper keeps keys where the pod has them mounted.
type folderKeeper struct {
	t   *testing.T
	dir string
	// kept counts the calls that stored something.
	kept int
}

func (k *folderKeeper) Keep(_ context.Context, data map[string][]byte) error {
	if _, err := os.Stat(k.dir); err == nil {
		return ErrKeysExist
	}
	for name, body := range data {
		write(k.t, filepath.Join(k.dir, name), body)
	}
	k.kept++
	return nil
}

// set makes a repository in the pod's store, its keys mounted, with one identity.
func (p *pod) set(t *testing.T) config.Setup {
	t.Helper()
	var err error
	if p.identity, err = keys.GenerateIdentity(); err != nil {
		t.Fatal(err)
	}
	task := config.Setup{Recipients: []string{p.identity.Recipient}}
	if _, err := Setup(t.Context(), p.Env, task, probe.Plain(p.Store, "test"), &folderKeeper{t: t, dir: p.Paths.RepositoryKeys}); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(p.Paths.Identities, "key.txt"), []byte("# a comment\n"+p.identity.Secret+"\n"))
	return task
}

// stateTree is what KubeVirt keeps for a virtual machine with TPM and EFI, owned by
// whoever runs the test.
func stateTree(t *testing.T) firmware.Tree {
	t.Helper()
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	dir := func(path string) firmware.Entry {
		return firmware.Entry{Path: path, Type: firmware.TypeDirectory, Mode: 0o2770, UID: uid, GID: gid}
	}
	file := func(path string, content []byte) firmware.Entry {
		return firmware.Entry{Path: path, Type: firmware.TypeFile, Mode: 0o600, UID: uid, GID: gid, ModTime: 1_793_000_000_123_456_789, Content: content}
	}
	return firmware.Tree{Entries: []firmware.Entry{
		dir("nvram"),
		file("nvram/"+vmName+"_VARS.fd", firmwaredata.File(t, "secureboot_VARS.fd.zst")),
		dir("swtpm"),
		dir("swtpm/" + vmUUID),
		dir("swtpm/" + vmUUID + "/tpm2"),
		file("swtpm/"+vmUUID+"/tpm2/tpm2-00.permall", firmwaredata.File(t, "tpm2-00.permall")),
	}}
}

// capture mounts state as the witness leaves it and returns its digest.
func (p *pod) capture(t *testing.T, state firmware.Tree) string {
	t.Helper()
	chunks, err := firmware.Pack(state)
	if err != nil {
		t.Fatal(err)
	}
	for i, chunk := range chunks {
		write(t, filepath.Join(p.Paths.State, fmt.Sprint(i), "chunk"), chunk)
		folder(t, filepath.Join(p.Paths.State, fmt.Sprint(i), "..data")) // as the kubelet does
	}
	return state.Digest()
}

// disk is a sparse disk image with data at its start, in its middle and at its end.
func (p *pod) disk(t *testing.T, name string, seed uint64) []byte {
	t.Helper()
	body := make([]byte, diskBytes)
	copy(body, storetest.Bytes(seed, 100_000))
	copy(body[3<<20:], storetest.Bytes(seed+1, 1<<20))
	copy(body[diskBytes-5000:], storetest.Bytes(seed+2, 5000))
	path := filepath.Join(p.Paths.Volumes, name, imageName)
	folder(t, filepath.Dir(path))
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(diskBytes); err != nil {
		t.Fatal(err)
	}
	for _, part := range [][2]int{{0, 100_000}, {3 << 20, 4 << 20}, {diskBytes - 5000, diskBytes}} {
		if _, err := f.WriteAt(body[part[0]:part[1]], int64(part[0])); err != nil {
			t.Fatal(err)
		}
	}
	return body
}

// exportTask is a whole virtual machine: two disks, state and documents, all mounted.
func (p *pod) exportTask(t *testing.T, setup config.Setup) (config.Export, map[string][]byte) {
	t.Helper()
	write(t, filepath.Join(p.Paths.Spec, "documents.json"), []byte(`{"version":1}`))
	disks := map[string][]byte{"root": p.disk(t, "root", 1), "data": p.disk(t, "data", 7)}
	moment, err := json.Marshal(map[string]string{"disks": "Group"})
	if err != nil {
		t.Fatal(err)
	}
	return config.Export{
		VM:         config.VM{Namespace: "prod", Name: vmName, UID: "vm-uid"},
		BackupName: "before-upgrade", BackupUID: "backup-uid",
		Created:    time.Date(2026, 11, 30, 2, 0, 4, 123, time.UTC),
		Recipients: setup.Recipients,
		Disks:      []config.Disk{{Name: "root", Mode: config.Filesystem}, {Name: "data", Mode: config.Filesystem}},
		State:      &config.State{VolumeName: "persistent-state", Digest: p.capture(t, stateTree(t))},
		Moment:     moment,
	}, disks
}

func newStore() objectstore.Store { return memstore.New() }
