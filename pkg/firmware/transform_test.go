package firmware

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func paths(tree Tree) []string {
	var out []string
	for _, e := range tree.Entries {
		out = append(out, e.Path)
	}
	return out
}

func skippedPaths(skips []Skip) []string {
	var out []string
	for _, s := range skips {
		out = append(out, s.Path)
	}
	return out
}

func TestTransform(t *testing.T) {
	state := stateTree(t)
	tpm := "swtpm/" + testUUID + "/tpm2/"
	used := state.with(
		file(migratedMark, nil), directory("cbt"), file("cbt/disk.qcow2", []byte("map")),
		file(tpm+"tpm2-00.volatilestate", []byte("registers")), file(tpm+".lock", nil), file("nvram/old_VARS.fd", []byte("stray")),
	)
	fromUsed := []string{"cbt", "cbt/disk.qcow2", migratedMark, "nvram/old_VARS.fd", tpm + ".lock", tpm + "tpm2-00.volatilestate"}
	renamed := expected()
	renamed.VMName, renamed.FirmwareUUID = "web", strings.ToUpper(otherUUID)
	noTPM, noEFI := expected(), expected()
	noTPM.TPM, noEFI.EFI = Volatile, Volatile
	localCA := []string{"swtpm-localca", "swtpm-localca/signkey.pem"}
	tpmPaths := []string{"swtpm/" + testUUID, "swtpm/" + testUUID + "/tpm2", permall}

	cases := map[string]struct {
		reason  string
		in      Tree
		to      Expectation
		policy  TPMPolicy
		want    []string
		dropped []string
	}{
		"InPlace": {
			reason: "the same VM gets the same state", in: state, to: expected(), policy: TPMKeep,
			want: paths(state),
		},
		"Used": {
			reason: "what belongs to a past run stays behind", in: used, to: expected(), policy: TPMKeep,
			want: paths(state), dropped: fromUsed,
		},
		"Renamed": {
			reason: "both names move, or the guest starts blank (FC-003)", in: state, to: renamed, policy: TPMKeep,
			want: []string{"meta", "nvram", "nvram/web_VARS.fd", "swtpm", "swtpm-localca", "swtpm-localca/signkey.pem",
				"swtpm/" + otherUUID, "swtpm/" + otherUUID + "/tpm2", "swtpm/" + otherUUID + "/" + permanentState},
		},
		"Blank": {
			reason: "a clone with a TPM of its own", in: state, to: renamed, policy: TPMBlank,
			want: []string{"meta", "nvram", "nvram/web_VARS.fd", "swtpm"}, dropped: append(localCA[:2:2], tpmPaths...),
		},
		"TPMTurnedOff": {
			reason: "only the variables are carried (FC-004)", in: state, to: noTPM, policy: TPMKeep,
			want: []string{"meta", "nvram", variablesFile, "swtpm"}, dropped: append(localCA[:2:2], tpmPaths...),
		},
		"EFITurnedOff": {
			reason: "variables that nobody reads are not restored", in: state, to: noEFI, policy: TPMKeep,
			want: paths(state.without(variablesFile)), dropped: []string{variablesFile},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, dropped, err := Transform(tc.in, expected(), tc.to, tc.policy)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, paths(got)); diff != "" {
				t.Errorf("%s\nTransform() mismatch (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.dropped, skippedPaths(dropped)); diff != "" {
				t.Errorf("%s\ndropped mismatch (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTransformKeepsContents(t *testing.T) {
	renamed := expected()
	renamed.VMName, renamed.FirmwareUUID = "web", otherUUID
	state := stateTree(t)
	there, _, err := Transform(state, expected(), renamed, TPMKeep)
	if err != nil {
		t.Fatal(err)
	}
	back, _, err := Transform(there, renamed, expected(), TPMKeep)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(state, back, sameBytes); diff != "" {
		t.Errorf("renamed there and back mismatch (-want +got):\n%s", diff)
	}
}

func TestTransformRefuses(t *testing.T) {
	state := stateTree(t)
	foreign := "swtpm/" + otherUUID
	escape := expected()
	escape.VMName = "../../web"
	noTPM := expected()
	noTPM.TPM = Volatile
	cases := map[string]struct {
		reason   string
		in       Tree
		from, to Expectation
		want     error
	}{
		"Damaged":   {"a cut TPM is not restored", state.with(file(permall, []byte{2})), expected(), expected(), ErrUnusable},
		"Ambiguous": {"two TPMs in one state", state.with(directory(foreign), file(foreign+"/x", nil)), expected(), expected(), ErrUnusable},
		"NoTPM":     {"a VM that keeps a TPM cannot come from one that did not", treeOf(directory("nvram"), file(variablesFile, fixture(t, "blank_VARS.fd.zst"))), noTPM, expected(), ErrUnusable},
		"Hostile":   {"a tree from a forged archive", treeOf(file("../x", nil)), expected(), expected(), ErrUnusable},
		"Escape":    {"a name that leaves the volume", state, expected(), escape, ErrBadTree},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, _, err := Transform(tc.in, tc.from, tc.to, TPMKeep); !errors.Is(err, tc.want) {
				t.Errorf("%s: Transform() = %v, want %v", tc.reason, err, tc.want)
			}
		})
	}
}

func TestWrittenByAdoptsTheKubeletsFolders(t *testing.T) {
	folder := Entry{Path: "nvram", Type: TypeDirectory, Mode: 0o2775, UID: 0, GID: 107}
	root := Entry{Path: "nvram/db_VARS.fd", Type: TypeFile, Mode: 0o600, UID: 0, GID: 107}
	adopted := folder
	adopted.UID = 107
	in := Tree{Entries: []Entry{folder, root}}
	if diff := cmp.Diff(Tree{Entries: []Entry{adopted, root}}, WrittenBy(in, 107)); diff != "" {
		t.Errorf("WrittenBy() mismatch (-want +got):\n%s", diff)
	}
	if in.Entries[0].UID != 0 {
		t.Error("WrittenBy changed the tree that it was given")
	}
}
