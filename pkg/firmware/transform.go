package firmware

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// TPMPolicy is what becomes of the TPM in a restore.
type TPMPolicy string

const (
	// TPMKeep brings the TPM back with all that is sealed to it.
	TPMKeep TPMPolicy = "Keep"
	// TPMBlank leaves it out, with the authority that signed its certificates: the
	// guest starts with a new TPM, and what was sealed to the old one stays shut.
	TPMBlank TPMPolicy = "Blank"
)

// Transform makes the state of the VM of from into that of the VM of to: files
// named after the VM and the firmware UUID get their new names, and what must not
// come back is dropped and listed. The result is checked against to before it is
// returned; an error is ErrBadTree or ErrUnusable, with what is wrong.
func Transform(t Tree, from, to Expectation, policy TPMPolicy) (Tree, []Skip, error) {
	if _, findings := Check(t, from); Unusable(findings) != nil {
		return Tree{}, nil, fmt.Errorf("state of VM %q: %w", from.VMName, Unusable(findings))
	}
	m := mover{from: from, to: to, keepTPM: policy != TPMBlank && to.TPM == Persistent}
	var out Tree
	var dropped []Skip
	for _, e := range t.Entries {
		name, why := m.place(e)
		if why != "" {
			dropped = append(dropped, Skip{Path: e.Path, Why: why})
			continue
		}
		e.Path, e.Xattrs = name, maps.Clone(e.Xattrs)
		out.Entries = append(out.Entries, e)
	}
	sortEntries(out.Entries)
	if err := m.verify(out); err != nil {
		return Tree{}, nil, fmt.Errorf("state for VM %q: %w", to.VMName, err)
	}
	return out, dropped, nil
}

type mover struct {
	from, to Expectation
	keepTPM  bool
}

// place returns the new path of e, or why it is dropped.
func (m mover) place(e Entry) (name, why string) {
	if why := skipName(e.Path); why != "" {
		return "", why
	}
	top, rest, _ := strings.Cut(e.Path, "/")
	switch {
	case e.Path == migratedMark:
		return "", "the mark of a past migration would make KubeVirt throw the state away"
	case top == "cbt":
		return "", "changed block tracking does not describe the restored disks"
	case top == "swtpm-localca" && !m.keepTPM:
		return "", "signed the certificates of the TPM that is left out"
	case top == "swtpm" && rest != "":
		return m.placeTPM(e.Path, rest)
	case path.Dir(e.Path) == "nvram" && e.Type == TypeFile && strings.HasSuffix(e.Path, variablesSuffix):
		return m.placeVariables(e.Path)
	}
	return e.Path, ""
}

func (m mover) placeTPM(p, rest string) (name, why string) {
	dir, inside, _ := strings.Cut(rest, "/")
	switch {
	case !m.keepTPM:
		return "", "the restore starts with a new TPM or none"
	case dir != m.from.tpmDirectory():
		return "", "not the TPM of this VM"
	case inside == volatileState:
		return "", "a cold start must not resume the TPM's registers of another boot"
	}
	return path.Join("swtpm", m.to.tpmDirectory(), inside), ""
}

func (m mover) placeVariables(p string) (name, why string) {
	switch {
	case m.to.EFI != Persistent:
		return "", "the restored VM does not keep EFI variables"
	case p != m.from.variablesPath():
		return "", "EFI variables of another VM name"
	}
	return m.to.variablesPath(), ""
}

// verify holds the result against what the restored VM will look for.
func (m mover) verify(out Tree) error {
	want := m.to
	if !m.keepTPM {
		want.TPM = Volatile
		if dirs := out.tpmDirectories(); len(dirs) > 0 {
			return fmt.Errorf("%w: a TPM's state is left: %s", ErrUnusable, strings.Join(dirs, ", "))
		}
	}
	if err := out.Validate(); err != nil {
		return err
	}
	_, findings := Check(out, want)
	for i, f := range findings {
		if slices.Contains(leftovers, f.Reason) {
			findings[i].Severity = SeverityError
		}
	}
	return Unusable(findings)
}

// leftovers are warnings in a source and faults of ours in a result.
var leftovers = []string{ReasonTPMStateUnused, ReasonVariablesForeign, ReasonVariablesUnused, ReasonStateMigrated}

// WrittenBy is the tree as user uid can write it. The folders at the root of a state volume are made by
// the kubelet for the subPaths of the virt-launcher pod, so they belong to root and are open to the
// pod's group (kubevirt.io/kubevirt, pkg/virt-controller/services/rendervolumes.go; seen with mode 2775
// and group 107). Nobody but root can make such a folder again, and nothing depends on it: they get
// uid as their owner. A file of root's is left as it is, since its owner may matter.
func WrittenBy(t Tree, uid uint32) Tree {
	entries := slices.Clone(t.Entries)
	for i, e := range entries {
		if e.Type == TypeDirectory && e.UID == 0 {
			entries[i].UID = uid
		}
	}
	return Tree{Entries: entries}
}
