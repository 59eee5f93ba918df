package firmware

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// ErrUnusable is a state that is not, or not whole, the one that a VM needs.
var ErrUnusable = errors.New("firmware state cannot be used")

// Persistence says whether a device keeps its state across power cycles.
type Persistence string

const (
	Persistent Persistence = "Persistent"
	Volatile   Persistence = "Volatile"
)

// Expectation is what the VM says of its firmware state.
type Expectation struct {
	VMName string `json:"vmName"`
	// FirmwareUUID is the one that the guest sees; it names the TPM's directory.
	FirmwareUUID string      `json:"firmwareUUID"`
	TPM          Persistence `json:"tpm"`
	EFI          Persistence `json:"efi"`
}

func (e Expectation) variablesPath() string { return "nvram/" + e.VMName + variablesSuffix }

// tpmDirectory is in lower case whatever the VM says, as libvirt writes it.
func (e Expectation) tpmDirectory() string { return strings.ToLower(e.FirmwareUUID) }

const (
	variablesSuffix = "_VARS.fd"
	permanentState  = "tpm2/tpm2-00.permall"
	volatileState   = "tpm2/tpm2-00.volatilestate"
	migratedMark    = "meta/migrated"
)

// Severity tells what a finding does to a backup or restore.
type Severity string

const (
	// SeverityError makes the state unusable.
	SeverityError Severity = "Error"
	// SeverityWarning is worth a person's look.
	SeverityWarning Severity = "Warning"
)

// Reasons of findings.
const (
	ReasonStateUnreadable     = "StateUnreadable"     // names or types that no state volume has
	ReasonTPMStateMissing     = "TPMStateMissing"     // the VM has a persistent TPM, the volume has none
	ReasonTPMStateDamaged     = "TPMStateDamaged"     // empty, cut, or of an unknown format
	ReasonTPMStateForeign     = "TPMStateForeign"     // a TPM directory of another firmware UUID
	ReasonTPMStateAmbiguous   = "TPMStateAmbiguous"   // more than one TPM directory
	ReasonTPMStateUnused      = "TPMStateUnused"      // state of a TPM that the VM does not keep
	ReasonTPMStateEncrypted   = "TPMStateEncrypted"   // opens only with a key that is not in the volume
	ReasonVariablesMissing    = "VariablesMissing"    // EFI is persistent, the volume has no variables
	ReasonVariablesForeign    = "VariablesForeign"    // variables of another VM name
	ReasonVariablesDamaged    = "VariablesDamaged"    // not a whole variable store
	ReasonVariablesUnused     = "VariablesUnused"     // variables that the VM does not keep
	ReasonVariablesUnfinished = "VariablesUnfinished" // the firmware's working block is not valid
	ReasonStateMigrated       = "StateMigrated"       // the mark of a migration away from this volume
)

// Finding is one thing that Check has to say about a state.
type Finding struct {
	Severity Severity `json:"severity"`
	Reason   string   `json:"reason"`
	Path     string   `json:"path"`
	Message  string   `json:"message"`
}

// Facts is what a state tells about its VM; nil means that there is none.
type Facts struct {
	TPM *TPMFacts `json:"tpm,omitempty"`
	EFI *EFIFacts `json:"efi,omitempty"`
}

// Check says whether t is the whole state that the VM of want needs, and what it
// learned on the way. Unusable turns the findings into an error.
func Check(t Tree, want Expectation) (Facts, []Finding) {
	c := checker{tree: t, want: want}
	if err := t.Validate(); err != nil {
		c.fault(ReasonStateUnreadable, "", "%v", err)
		return c.facts, c.findings
	}
	c.tpm()
	c.efi()
	if _, ok := t.Find(migratedMark); ok {
		c.warn(ReasonStateMigrated, migratedMark, "a live migration ended on this volume as its source; if the VM now runs from another volume, this state is old")
	}
	return c.facts, c.findings
}

// Unusable is ErrUnusable with every finding that is an error, or nil.
func Unusable(findings []Finding) error {
	var errs []error
	for _, f := range findings {
		if f.Severity == SeverityError {
			errs = append(errs, fmt.Errorf("%s: %s", f.Reason, f.Message))
		}
	}
	if errs == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnusable, errors.Join(errs...))
}

type checker struct {
	tree     Tree
	want     Expectation
	facts    Facts
	findings []Finding
}

func (c *checker) fault(reason, p, format string, args ...any) {
	c.findings = append(c.findings, Finding{SeverityError, reason, p, fmt.Sprintf(format, args...)})
}

func (c *checker) warn(reason, p, format string, args ...any) {
	c.findings = append(c.findings, Finding{SeverityWarning, reason, p, fmt.Sprintf(format, args...)})
}

func (c *checker) tpm() {
	dirs := c.tree.tpmDirectories()
	if c.want.TPM != Persistent {
		if len(dirs) > 0 {
			c.warn(ReasonTPMStateUnused, "swtpm", "the volume holds a TPM's state (%s), but the VM has no persistent TPM", strings.Join(dirs, ", "))
		}
		return
	}
	own := "swtpm/" + c.want.tpmDirectory()
	switch {
	case len(dirs) == 0:
		c.fault(ReasonTPMStateMissing, own, "the VM has a persistent TPM, but the volume holds no state of one")
		return
	case len(dirs) > 1:
		c.fault(ReasonTPMStateAmbiguous, "swtpm", "the volume holds the state of %d TPMs (%s) where one belongs; move those away that are not of firmware UUID %s",
			len(dirs), strings.Join(dirs, ", "), c.want.tpmDirectory())
		return
	case dirs[0] != c.want.tpmDirectory():
		c.fault(ReasonTPMStateForeign, "swtpm/"+dirs[0], "the volume holds the TPM of firmware UUID %s, but the VM has %s and would start with an empty TPM",
			dirs[0], c.want.tpmDirectory())
		return
	}
	c.tpmState(own + "/" + permanentState)
}

func (c *checker) tpmState(p string) {
	e, ok := c.tree.Find(p)
	if !ok || e.Type != TypeFile {
		c.fault(ReasonTPMStateMissing, p, "the TPM's directory holds no permanent state")
		return
	}
	facts, err := parseTPMState(e.Content)
	if err != nil {
		c.fault(ReasonTPMStateDamaged, p, "%v", err)
		return
	}
	facts.Directory = c.want.tpmDirectory()
	c.facts.TPM = &facts
	if facts.Encrypted {
		c.warn(ReasonTPMStateEncrypted, p, "the TPM's state is encrypted by swtpm: a restore needs the key that it was given")
	}
}

// tpmDirectories are the directories below swtpm/ that hold a file.
func (t Tree) tpmDirectories() []string {
	var dirs []string
	for _, e := range t.Entries {
		rest, ok := strings.CutPrefix(e.Path, "swtpm/")
		if !ok || e.Type != TypeFile {
			continue
		}
		dir, _, inside := strings.Cut(rest, "/")
		if inside && (len(dirs) == 0 || dirs[len(dirs)-1] != dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// variableFiles are the files of EFI variables, whatever VM they are of.
func (t Tree) variableFiles() []string {
	var files []string
	for _, e := range t.Entries {
		if e.Type == TypeFile && path.Dir(e.Path) == "nvram" && strings.HasSuffix(e.Path, variablesSuffix) {
			files = append(files, e.Path)
		}
	}
	return files
}

func (c *checker) efi() {
	files, own := c.tree.variableFiles(), c.want.variablesPath()
	if c.want.EFI != Persistent {
		if len(files) > 0 {
			c.warn(ReasonVariablesUnused, files[0], "the volume holds EFI variables, but the VM does not keep them")
		}
		return
	}
	e, ok := c.tree.Find(own)
	if !ok || e.Type != TypeFile {
		if len(files) > 0 {
			c.fault(ReasonVariablesForeign, files[0], "the volume holds %s, but the VM needs %s and would start with blank variables", files[0], own)
			return
		}
		c.fault(ReasonVariablesMissing, own, "the VM keeps its EFI variables, but the volume holds none")
		return
	}
	for _, f := range files {
		if f != own {
			c.warn(ReasonVariablesForeign, f, "EFI variables of another VM name lie beside those of this VM; they are not used")
		}
	}
	store, err := ParseVariableStore(e.Content)
	if err != nil {
		c.fault(ReasonVariablesDamaged, own, "%v", err)
		return
	}
	facts := store.Facts()
	c.facts.EFI = &facts
	if facts.WorkArea == WorkAreaInvalid {
		c.warn(ReasonVariablesUnfinished, own, "the firmware's working block is not valid; the firmware makes a new one at the next boot")
	}
}
