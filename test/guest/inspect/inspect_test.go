package inspect

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/vmstate/vmstate/test/guest/generation"
	"github.com/vmstate/vmstate/test/guest/statefolder"
	"github.com/vmstate/vmstate/test/guest/swtpm"
	"github.com/vmstate/vmstate/test/guest/tool"
	"github.com/vmstate/vmstate/test/guest/tpmnv"
)

const (
	testID    = "00112233445566ff"
	testUUID  = "5d307ca9-b3ef-428c-8861-06e72d69f223"
	testFirst = 64 // sector of the data partition
)

func check(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// makeExt4 makes a file system of 8 MiB that holds what is in the folder content.
func makeExt4(t *testing.T, out, content string) {
	t.Helper()
	if _, err := exec.LookPath(tool.Path("mke2fs")); err != nil {
		t.Skip("e2fsprogs is not installed")
	}
	check(t, tool.Run(tool.Command(t.Context(), "mke2fs", "-q", "-t", "ext4", "-d", content, out, "8M")))
}

// makeDisk makes a partitioned disk whose data partition holds files.
func makeDisk(t *testing.T, out string, files map[string][]byte) {
	t.Helper()
	content := t.TempDir()
	for name, b := range files {
		check(t, os.WriteFile(filepath.Join(content, name), b, 0o600))
	}
	makeExt4(t, out+".data", content)
	data, err := os.ReadFile(out + ".data")
	check(t, err, os.Remove(out+".data"))
	check(t, os.WriteFile(out, append(partitionTable(len(data)/sectorBytes), data...), 0o600))
}

// partitionTable returns the sectors before the data partition.
func partitionTable(sectors int) []byte {
	b := make([]byte, testFirst*sectorBytes)
	header, entry := b[sectorBytes:], b[2*sectorBytes+entryBytes:]
	copy(header, gptSignature)
	binary.LittleEndian.PutUint64(header[gptEntriesLBAAt:], 2)
	binary.LittleEndian.PutUint32(header[gptEntryCountAt:], maxEntries)
	binary.LittleEndian.PutUint32(header[gptEntrySizeAt:], entryBytes)
	binary.LittleEndian.PutUint64(entry[entryFirstLBAAt:], testFirst)
	binary.LittleEndian.PutUint64(entry[entryLastLBAAt:], uint64(testFirst+sectors-1))
	for i, u := range utf16.Encode([]rune(generation.DataPartition)) {
		binary.LittleEndian.PutUint16(entry[entryNameAt+2*i:], u)
	}
	return b
}

// makeState makes a state folder whose TPM and EFI variable hold one mark, and
// returns the mark.
func makeState(t *testing.T, root string) generation.Mark {
	t.Helper()
	if !swtpm.Installed() {
		t.Skip("swtpm is not installed")
	}
	paths := statefolder.For(root, "db", testUUID)
	check(t, os.MkdirAll(paths.TPMDir, 0o700), os.MkdirAll(filepath.Dir(paths.Vars), 0o755))
	short, err := os.MkdirTemp("", "inspect") // a socket fits into it
	check(t, err)
	defer func() { _ = os.RemoveAll(short) }()
	mark := generation.Mark{Identity: testID}
	check(t, swtpm.With(t.Context(), short, func(conn transport.TPM) (err error) {
		mark.Generation, err = tpmnv.New(conn).Provision(testID)
		return err
	}))
	b, err := os.ReadFile(filepath.Join(short, statefolder.TPMFile))
	check(t, err, os.WriteFile(filepath.Join(paths.TPMDir, statefolder.TPMFile), b, 0o600))
	value, err := mark.EncodeEFI()
	check(t, err, os.WriteFile(paths.Vars, store(t, record{generation.EFIName, generation.EFIGUID, string(value), stateAdded}), 0o600))
	return mark
}

func vault(t *testing.T, m generation.Mark) map[string][]byte {
	t.Helper()
	b, err := generation.SealVault(make([]byte, generation.KeyBytes), m)
	check(t, err)
	return map[string][]byte{generation.VaultFile: b}
}

// TestRead reads one guest from every form of volume, and leaves all as it was.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "state")
	mark := makeState(t, folder)
	ahead := mark.Next()

	raw, blank := filepath.Join(dir, "disk.raw"), filepath.Join(dir, "blank.raw")
	makeDisk(t, raw, vault(t, ahead))
	makeDisk(t, blank, nil)
	inVolume := t.TempDir()
	makeDisk(t, filepath.Join(inVolume, diskFile), vault(t, ahead))
	diskVolume, stateVolume := filepath.Join(dir, "disk.ext4"), filepath.Join(dir, "state.ext4")
	check(t, tool.Run(tool.Command(t.Context(), "mke2fs", "-q", "-t", "ext4", "-d", inVolume, diskVolume, "24M")))
	makeExt4(t, stateVolume, folder)
	noState := filepath.Join(dir, "none")
	check(t, os.Mkdir(noState, 0o755))

	cases := map[string]struct {
		disk, state string
		want        generation.Reading
	}{
		"Raw":        {raw, folder, generation.Reading{Disk: &ahead, TPM: &mark, EFI: &mark}},
		"Volumes":    {diskVolume, stateVolume, generation.Reading{Disk: &ahead, TPM: &mark, EFI: &mark}},
		"BlankState": {raw, noState, generation.Reading{Disk: &ahead}},
		"BlankDisk":  {blank, folder, generation.Reading{TPM: &mark, EFI: &mark}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := contents(t, dir)
			got, err := Read(t.Context(), tc.disk, tc.state)
			check(t, err)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Read (-want +got):\n%s", diff)
			}
			if !cmp.Equal(before, contents(t, dir)) {
				t.Error("Read changed what it read")
			}
		})
	}
}

// TestReadDamage shows that damage is an error and never taken for absence.
func TestReadDamage(t *testing.T) {
	dir := t.TempDir()
	folder, raw := filepath.Join(dir, "state"), filepath.Join(dir, "disk.raw")
	mark := makeState(t, folder)
	makeDisk(t, raw, vault(t, mark))
	noVault := filepath.Join(dir, "damaged.raw")
	makeDisk(t, noVault, map[string][]byte{generation.VaultFile: []byte("?")})
	paths := statefolder.For(folder, "db", testUUID)

	replace := func(t *testing.T, path string, with []byte) {
		before, err := os.ReadFile(path)
		check(t, err, os.WriteFile(path, with, 0o600))
		t.Cleanup(func() { check(t, os.WriteFile(path, before, 0o600)) })
	}
	cut := func(t *testing.T, path string) {
		b, err := os.ReadFile(path)
		check(t, err)
		replace(t, path, b[:len(b)/2])
	}
	cases := map[string]struct {
		disk  string
		spoil func(*testing.T)
	}{
		"DiskAbsent": {filepath.Join(dir, "absent"), func(*testing.T) {}},
		"Vault":      {noVault, func(*testing.T) {}},
		"TPM":        {raw, func(t *testing.T) { cut(t, filepath.Join(paths.TPMDir, statefolder.TPMFile)) }},
		"EFI":        {raw, func(t *testing.T) { cut(t, paths.Vars) }},
		"Table":      {raw, func(t *testing.T) { replace(t, raw, make([]byte, 1<<20)) }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.spoil(t)
			if got, err := Read(t.Context(), tc.disk, folder); err == nil {
				t.Errorf("got %+v, want an error", got)
			}
		})
	}
	if _, err := Read(t.Context(), raw, folder); err != nil {
		t.Errorf("the undamaged set: %v", err)
	}
}

// contents maps every file below root to its bytes.
func contents(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	check(t, filepath.WalkDir(root, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		files[p] = string(b)
		return err
	}))
	return files
}
