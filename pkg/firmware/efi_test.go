package firmware

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVariableFacts(t *testing.T) {
	cases := map[string]struct {
		reason string
		file   string
		want   EFIFacts
	}{
		"Template": {
			reason: "a template has no variables, no keys, and the room of a 4 MiB OVMF",
			file:   "blank_VARS.fd.zst",
			want:   EFIFacts{SecureBoot: SecureBootDisabled, FreeBytes: 0x3ffb8 - storeHeaderBytes, WorkArea: WorkAreaValid},
		},
		"Booted": {
			reason: "enrolled keys and a boot by OVMF",
			file:   "secureboot_VARS.fd.zst",
			want: EFIFacts{
				SecureBoot: SecureBootEnabled,
				Keys: EFIKeys{
					PK:  "27a226463fc4fdea62a7bc4e88ff3df4c4cc4cb7347a21cc13bfb28acd692f67",
					KEK: "42994b10ae6ac71742170e14549e664e673365abef6e716dbf58e6971c3a1014",
					DB:  "42994b10ae6ac71742170e14549e664e673365abef6e716dbf58e6971c3a1014",
					DBX: "6cc1e93b2b3f263e5442e1717348ab721230c33d9f69a7265e8480fd7f087ff9",
				},
				BootOrder: []string{"0000", "0001"},
				BootEntries: []BootEntry{
					{ID: "0000", Description: "UiApp", State: BootActive},
					{ID: "0001", Description: "EFI Internal Shell", State: BootActive},
					{ID: "0002", Description: "EFI Internal Shell", State: BootActive},
				},
				Variables: 35, FreeBytes: 239688, WorkArea: WorkAreaValid,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := ParseVariableStore(fixture(t, tc.file))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, s.Facts()); diff != "" {
				t.Errorf("%s\nFacts() mismatch (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// firstVariable is where the first variable header of a 4 MiB OVMF store begins.
const firstVariable = 0x48 + storeHeaderBytes

func TestVariableStoreDamage(t *testing.T) {
	good := fixture(t, "secureboot_VARS.fd.zst")
	s, err := ParseVariableStore(good)
	if err != nil {
		t.Fatal(err)
	}
	free := firstVariable + 0x3ffb8 - storeHeaderBytes - int(s.FreeBytes)
	order := offsetOf(t, good, "BootOrder")
	cases := map[string]struct {
		in   []byte
		says string
	}{
		"Empty":           {nil, "0 bytes"},
		"Zeros":           {make([]byte, len(good)), "no firmware volume header"},
		"Cut":             {good[:len(good)-1], "where the header says"},
		"CutInHeader":     {good[:40], "too few"},
		"OtherVolume":     {altered(good, 16, 0), "another kind"},
		"HeaderChecksum":  {altered(good, 44, 0), "checksum"},
		"HeaderLength":    {altered(good, 48, 0xff, 0xff), "header length"},
		"QCOW2":           {altered(good, 0, []byte("QFI\xfb")...), "qcow2"},
		"StoreFormat":     {altered(good, 0x48, 0), "unknown format"},
		"StoreNotHealthy": {altered(good, 0x48+21, 0), "not usable"},
		"StoreTooLarge":   {altered(good, 0x48+16, 0xff, 0xff, 0xff, 0x7f), "in a volume with"},
		"StartLost":       {altered(good, firstVariable, 0), "holds data"},
		"SizeTooLarge":    {altered(good, firstVariable+40, 0xff, 0xff, 0xff, 0x7f), "do not fit"},
		"NameWithoutEnd":  {altered(good, order+36, 2, 0, 0, 0), "name"},
		"HoleInFreeSpace": {altered(good, free+4096, make([]byte, 4096)...), "free space"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ParseVariableStore(tc.in)
			if !errors.Is(err, ErrVariableStore) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("ParseVariableStore() = %v, want ErrVariableStore that says %q", err, tc.says)
			}
		})
	}
}

// TestUnfinishedWrites has a power cut at each step of OVMF's way of replacing a
// variable: old one marked, new header, new sizes, new data, new one valid.
func TestUnfinishedWrites(t *testing.T) {
	good := fixture(t, "secureboot_VARS.fd.zst")
	s, err := ParseVariableStore(good)
	if err != nil {
		t.Fatal(err)
	}
	free := firstVariable + 0x3ffb8 - storeHeaderBytes - int(s.FreeBytes)
	at := offsetOf(t, good, "BootOrder")
	size := variableHeaderBytes + int(binary.LittleEndian.Uint32(good[at+36:])) + int(binary.LittleEndian.Uint32(good[at+40:]))
	successor := append([]byte(nil), good[at:at+size]...)
	successor[size-2] = 0x7f // another first entry
	step := func(b []byte, old, state byte, n int) []byte {
		out := altered(b, at+2, old)
		copy(out[free:], successor[:n])
		out[free+2] = state
		return out
	}
	const before, after = "0000 0001", "0000 007F"
	cases := map[string]struct {
		in   []byte
		want string
	}{
		"OldMarked":    {altered(good, at+2, stateReplacing), before},
		"NewStart":     {step(good, stateReplacing, 0xff, 4), before},
		"NewHeader":    {step(good, stateReplacing, 0x7f, variableHeaderBytes), before},
		"NewData":      {step(good, stateReplacing, 0x7f, size), before},
		"NewValid":     {step(good, stateReplacing, stateAdded, size), after},
		"OldDiscarded": {step(good, 0x3c, stateAdded, size), after},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := ParseVariableStore(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(s.Facts().BootOrder, " "); got != tc.want {
				t.Errorf("boot order %q, want %q", got, tc.want)
			}
		})
	}
}

// offsetOf finds the header of the variable in force with that name.
func offsetOf(t *testing.T, b []byte, name string) int {
	t.Helper()
	area := b[firstVariable : 0x48+0x3ffb8]
	for at := 0; binary.LittleEndian.Uint16(area[at:]) == variableStart; {
		v, state, next, err := variableAt(area, at)
		if err != nil {
			t.Fatal(err)
		}
		if v.Name == name && state == stateAdded {
			return firstVariable + at
		}
		at = next
	}
	t.Fatalf("no variable %q", name)
	return 0
}

func TestBootEntry(t *testing.T) {
	entry := func(attributes byte, description string) []byte {
		b := []byte{attributes, 0, 0, 0, 4, 0}
		for _, c := range description {
			b = append(b, byte(c), 0)
		}
		return append(b, 0, 0, 0x7f, 0xff, 4, 0)
	}
	cases := map[string]struct {
		reason string
		data   []byte
		want   BootEntry
	}{
		"Active":   {"the usual case", entry(1, "Windows Boot Manager"), BootEntry{ID: "0003", Description: "Windows Boot Manager", State: BootActive}},
		"Inactive": {"hidden from the boot manager", entry(0, "old"), BootEntry{ID: "0003", Description: "old", State: BootInactive}},
		"Escapes":  {"a guest's text must not move a terminal", entry(1, "a\x1b[2J\nb"), BootEntry{ID: "0003", Description: "a?[2J?b", State: BootActive}},
		"Long":     {"a guest's text is bounded", entry(1, strings.Repeat("x", 500)), BootEntry{ID: "0003", Description: strings.Repeat("x", maxDescription), State: BootActive}},
		"Cut":      {"too short to say anything", []byte{1, 0}, BootEntry{ID: "0003", State: BootInactive}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := bootEntry(Variable{Name: "Boot0003", Data: tc.data})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nbootEntry() mismatch (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func FuzzParseVariableStore(f *testing.F) {
	good := fixture(f, "secureboot_VARS.fd.zst")
	// A small volume so that mutations meet the records rather than erased flash.
	small := append([]byte(nil), good[:0x48+storeHeaderBytes+4096]...)
	binary.LittleEndian.PutUint64(small[32:], uint64(len(small)))
	binary.LittleEndian.PutUint32(small[0x48+16:], storeHeaderBytes+4096)
	binary.LittleEndian.PutUint16(small[50:], 0)
	var sum uint16
	for i := 0; i < 0x48; i += 2 {
		sum += binary.LittleEndian.Uint16(small[i:])
	}
	binary.LittleEndian.PutUint16(small[50:], -sum)
	f.Add(small)
	f.Add(good[:64])
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseVariableStore(b)
		if err != nil && !errors.Is(err, ErrVariableStore) {
			t.Errorf("error of another kind: %v", err)
		}
		if err == nil && s.Facts().FreeBytes > int64(len(b)) {
			t.Errorf("%d bytes free in a file of %d", s.FreeBytes, len(b))
		}
	})
}
