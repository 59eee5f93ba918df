// Package statefolder knows the layout of KubeVirt's state volume (read from
// KubeVirt 1.9 and libvirt 11.3, and seen on volumes):
//
//	swtpm/<firmware uuid>/tpm2/tpm2-00.permall    TPM
//	nvram/<vm name>_VARS.fd                       EFI variables
package statefolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	// TPMFile is swtpm's permanent state, the only TPM file that outlives a run.
	TPMFile = "tpm2-00.permall"

	varsSuffix = "_VARS.fd"
)

// ErrAmbiguous is returned by Find for a folder with the state of several VMs.
var ErrAmbiguous = errors.New("state of more than one VM")

// Paths are the places in one state folder. An empty path: not there.
type Paths struct {
	TPMDir string // the folder with TPMFile
	Vars   string
}

// For returns where KubeVirt looks for a VM's state. It takes what is not there for
// blank, which is how a renamed VM silently loses its state.
func For(root, vmName, firmwareUUID string) Paths {
	return Paths{
		TPMDir: filepath.Join(root, "swtpm", firmwareUUID, "tpm2"),
		Vars:   filepath.Join(root, "nvram", vmName+varsSuffix),
	}
}

// VMName returns the name of the VM that Paths.Vars belongs to.
func (p Paths) VMName() string { return strings.TrimSuffix(filepath.Base(p.Vars), varsSuffix) }

// FirmwareUUID returns the firmware UUID that Paths.TPMDir belongs to.
func (p Paths) FirmwareUUID() string { return filepath.Base(filepath.Dir(p.TPMDir)) }

// Find returns what a state folder holds. A missing part is no error: it is what
// a VM without that state has. ErrAmbiguous if a part is there twice.
func Find(root string) (Paths, error) {
	if _, err := os.Stat(root); err != nil {
		return Paths{}, fmt.Errorf("state folder: %w", err)
	}
	tpm, err := only(filepath.Join(root, "swtpm", "*", "tpm2", TPMFile))
	if err != nil {
		return Paths{}, err
	}
	vars, err := only(filepath.Join(root, "nvram", "*"+varsSuffix))
	if err != nil {
		return Paths{}, err
	}
	p := Paths{Vars: vars}
	if tpm != "" {
		p.TPMDir = filepath.Dir(tpm)
	}
	return p, nil
}

func only(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		return "", nil
	case len(found) > 1:
		return "", fmt.Errorf("%s: %w", strings.Join(found, ", "), ErrAmbiguous)
	default:
		return found[0], nil
	}
}
