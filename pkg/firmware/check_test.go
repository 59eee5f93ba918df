package firmware

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// outcome is severity, reason and path of each finding: the messages are prose.
func outcome(findings []Finding) []string {
	var out []string
	for _, f := range findings {
		out = append(out, string(f.Severity)+" "+f.Reason+" "+f.Path)
	}
	return out
}

func TestCheck(t *testing.T) {
	state := stateTree(t)
	good, vars := fixture(t, "tpm2-00.permall"), fixture(t, "secureboot_VARS.fd.zst")
	foreign := "swtpm/" + otherUUID
	other := []Entry{directory(foreign), directory(foreign + "/tpm2"), file(foreign+"/"+permanentState, good)}
	want := func(edit func(*Expectation)) Expectation {
		e := expected()
		edit(&e)
		return e
	}
	cases := map[string]struct {
		reason string
		tree   Tree
		want   Expectation
		out    []string
	}{
		"Good":        {"the usual state", state, expected(), nil},
		"UpperCase":   {"libvirt writes a UUID in lower case", state, want(func(e *Expectation) { e.FirmwareUUID = strings.ToUpper(testUUID) }), nil},
		"TPMEmpty":    {"swtpm was killed at its first write", state.with(file(permall, []byte{})), expected(), []string{"Error TPMStateDamaged " + permall}},
		"TPMCut":      {"the volume was full", state.with(file(permall, good[:len(good)-1])), expected(), []string{"Error TPMStateDamaged " + permall}},
		"TPMZeros":    {"a power cut left a hole", state.with(file(permall, make([]byte, len(good)))), expected(), []string{"Error TPMStateDamaged " + permall}},
		"TPMNoFile":   {"the directory alone is no TPM", state.without(permall), expected(), []string{"Error TPMStateMissing swtpm/" + testUUID}},
		"TPMNoState":  {"a file beside the state is not it", state.without(permall).with(file("swtpm/"+testUUID+"/tpm2/notes", nil)), expected(), []string{"Error TPMStateMissing " + permall}},
		"TPMForeign":  {"the VM was given another UUID: it would start with an empty TPM", state, want(func(e *Expectation) { e.FirmwareUUID = otherUUID }), []string{"Error TPMStateForeign swtpm/" + testUUID}},
		"TPMTwo":      {"nobody can say which one the guest used", state.with(other...), expected(), []string{"Error TPMStateAmbiguous swtpm"}},
		"TPMEmptyDir": {"an empty directory of another UUID holds no TPM", state.with(directory(foreign)), expected(), nil},
		"TPMUnused":   {"the TPM was made volatile later (FC-007)", state, want(func(e *Expectation) { e.TPM = Volatile }), []string{"Warning TPMStateUnused swtpm"}},
		"EFIMissing":  {"the variables were never written", state.without(variablesFile), expected(), []string{"Error VariablesMissing " + variablesFile}},
		"EFIForeign":  {"the VM was renamed: it would start with blank variables (FC-018)", state, want(func(e *Expectation) { e.VMName = "web" }), []string{"Error VariablesForeign " + variablesFile}},
		"EFISpare":    {"a restore under another name left the old file (FC-004)", state.with(file("nvram/web_VARS.fd", vars)), expected(), []string{"Warning VariablesForeign nvram/web_VARS.fd"}},
		"EFIDamaged":  {"half a write", state.with(file(variablesFile, altered(vars, 40, 0))), expected(), []string{"Error VariablesDamaged " + variablesFile}},
		"EFIUnused":   {"EFI was made volatile later", state, want(func(e *Expectation) { e.EFI = Volatile }), []string{"Warning VariablesUnused " + variablesFile}},
		"EFIWorkArea": {"the firmware makes it anew", state.with(file(variablesFile, altered(vars, 0x41010, 0))), expected(), []string{"Warning VariablesUnfinished " + variablesFile}},
		"Migrated":    {"the volume was the source of a migration", state.with(file(migratedMark, nil)), expected(), []string{"Warning StateMigrated " + migratedMark}},
		"Nothing":     {"an empty volume", Tree{}, expected(), []string{"Error TPMStateMissing swtpm/" + testUUID, "Error VariablesMissing " + variablesFile}},
		"Hostile":     {"a tree that no volume has", treeOf(file("../x", nil)), expected(), []string{"Error StateUnreadable "}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, findings := Check(tc.tree, tc.want)
			if diff := cmp.Diff(tc.out, outcome(findings)); diff != "" {
				t.Errorf("%s\nCheck() mismatch (-want +got):\n%s", tc.reason, diff)
			}
			failed := strings.Contains(strings.Join(tc.out, " "), "Error")
			if err := Unusable(findings); errors.Is(err, ErrUnusable) != failed {
				t.Errorf("%s: Unusable() = %v", tc.reason, err)
			}
		})
	}
}

func TestTPMState(t *testing.T) {
	real := fixture(t, "tpm2-00.permall")
	permanent := append([]byte{0, 3, 0xab, 0x36, 0x47, 0x23, 0, 3}, make([]byte, 100)...)
	cases := map[string]struct {
		reason string
		in     []byte
		want   TPMFacts
		bad    bool
	}{
		"Real":        {"swtpm 0.7.1", real, TPMFacts{SizeBytes: 1315}, false},
		"Encrypted":   {"swtpm with a key", tpmFile(tpmField(tpmTagSealed, permanent), tpmField(3, make([]byte, 32)), tpmField(7, make([]byte, 16))), TPMFacts{SizeBytes: 184, Encrypted: true}, false},
		"Longer":      {"something was appended", append(append([]byte(nil), real...), 0), TPMFacts{SizeBytes: 1316}, true},
		"Version":     {"a format of the future", altered(real, 1, 3), TPMFacts{SizeBytes: 1315}, true},
		"HeaderSize":  {"a header longer than the file", altered(real, 2, 0xff, 0xff), TPMFacts{SizeBytes: 1315}, true},
		"FieldSize":   {"a field longer than the file", altered(real, 12, 0, 1, 0, 0), TPMFacts{SizeBytes: 1315}, true},
		"FieldShort":  {"bytes behind the last field", altered(real, 12, 0, 0, 5, 0x10), TPMFacts{SizeBytes: 1315}, true},
		"Magic":       {"volatile state under the name of permanent state", altered(real, 18, 0), TPMFacts{SizeBytes: 1315}, true},
		"NoState":     {"a header and a checksum alone", tpmFile(tpmField(3, make([]byte, 32))), TPMFacts{SizeBytes: 48}, true},
		"HeaderAlone": {"cut behind the header, with a length to match", tpmFile(), TPMFacts{SizeBytes: 10}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseTPMState(tc.in)
			if errors.Is(err, ErrTPMState) != tc.bad {
				t.Errorf("%s: parseTPMState() = %v, want an error %v", tc.reason, err, tc.bad)
			}
			if diff := cmp.Diff(tc.want, got); !tc.bad && diff != "" {
				t.Errorf("%s\nparseTPMState() mismatch (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	for n := range len(real) {
		if _, err := parseTPMState(real[:n]); !errors.Is(err, ErrTPMState) {
			t.Fatalf("a state cut to %d bytes is taken: %v", n, err)
		}
	}
}

func FuzzTPMState(f *testing.F) {
	f.Add(fixture(f, "tpm2-00.permall"))
	f.Add(tpmFile(tpmField(tpmTagSealed, make([]byte, 64))))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := parseTPMState(b); err != nil && !errors.Is(err, ErrTPMState) {
			t.Errorf("error of another kind: %v", err)
		}
	})
}
