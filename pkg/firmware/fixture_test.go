package firmware

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/test/firmwaredata"
)

const (
	testVM        = "db"
	testUUID      = "0f2a1b6c-1111-4222-8333-944455556666"
	otherUUID     = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
	variablesFile = "nvram/db_VARS.fd"
	permall       = "swtpm/" + testUUID + "/tpm2/tpm2-00.permall"
)

func fixture(t testing.TB, name string) []byte { return firmwaredata.File(t, name) }

func expected() Expectation {
	return Expectation{VMName: testVM, FirmwareUUID: testUUID, TPM: Persistent, EFI: Persistent}
}

func directory(p string) Entry {
	return Entry{Path: p, Type: TypeDirectory, Mode: 0o2770, UID: 107, GID: 107}
}

func file(p string, content []byte) Entry {
	return Entry{Path: p, Type: TypeFile, Mode: 0o600, UID: 107, GID: 107, ModTime: 1_793_000_000_123_456_789, Content: content}
}

// stateTree is what KubeVirt 1.9 keeps for a VM with both devices persistent.
func stateTree(t testing.TB) Tree {
	t.Helper()
	return treeOf(
		directory("meta"),
		directory("nvram"),
		file(variablesFile, fixture(t, "secureboot_VARS.fd.zst")),
		directory("swtpm"),
		directory("swtpm/"+testUUID),
		directory("swtpm/"+testUUID+"/tpm2"),
		file(permall, fixture(t, "tpm2-00.permall")),
		directory("swtpm-localca"),
		file("swtpm-localca/signkey.pem", []byte("a key\n")),
	)
}

func treeOf(entries ...Entry) Tree {
	tree := Tree{Entries: entries}
	sortEntries(tree.Entries)
	return tree
}

// with returns a copy of tree with entries added or put in the place of those of the same path.
func (t Tree) with(entries ...Entry) Tree {
	out := t
	for _, e := range entries {
		out = out.without(e.Path)
	}
	out.Entries = append(out.Entries, entries...)
	sortEntries(out.Entries)
	return out
}

func (t Tree) without(p string) Tree {
	var out Tree
	for _, e := range t.Entries {
		if e.Path != p {
			out.Entries = append(out.Entries, e)
		}
	}
	return out
}

// altered returns a copy of b with the bytes at offset replaced.
func altered(b []byte, at int, with ...byte) []byte {
	out := append([]byte(nil), b...)
	copy(out[at:], with)
	return out
}

// tpmFile builds a state file with correct lengths around the given fields.
func tpmFile(fields ...[]byte) []byte {
	b := []byte{2, 1, 0, 10, 0, 0, 0, 0, 0, 0}
	for _, f := range fields {
		b = append(b, f...)
	}
	binary.BigEndian.PutUint32(b[6:], uint32(len(b)))
	return b
}

func tpmField(tag uint16, data []byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, tag)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

// sameBytes compares contents at once: byte by byte takes seconds for a variable store.
var sameBytes = cmp.Comparer(bytes.Equal)
