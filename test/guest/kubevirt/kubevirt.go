// Package kubevirt writes the guest as a KubeVirt VM.
//
// Its serial console is read from the log of container guest-console-log in the
// VM's virt-launcher pod (logSerialConsole): whole lines, kept for the pod's life.
//
// The manifest names no CPU model: on a node that emulates, KubeVirt 1.9 offers
// host-model alone, and a VM with another model stays unscheduled.
package kubevirt

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/template"

	"github.com/vmstate/vmstate/test/guest/pace"
)

// Options are what differs between two guests.
type Options struct {
	Name, Namespace string
	Claim           string    // PVC with the disk image; default: the VM's name and "-disk"
	FirmwareUUID    string    // empty: KubeVirt derives it
	Step            pace.Pace // off: what the image says
	Network         bool      // pod network with masquerade; else no network
}

// ErrName is returned for a name that Kubernetes would not take.
var ErrName = errors.New("not a DNS label")

var (
	dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	uuidText = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

	//go:embed vm.yaml.tmpl
	vmText     string
	vmTemplate = template.Must(template.New("vm").Parse(vmText))
)

// VM returns the VirtualMachine as YAML.
func VM(o Options) (string, error) {
	if o.Claim == "" {
		o.Claim = o.Name + "-disk"
	}
	for _, name := range []string{o.Name, o.Namespace, o.Claim} {
		if !dnsLabel.MatchString(name) {
			return "", fmt.Errorf("name %q: %w", name, ErrName)
		}
	}
	if o.FirmwareUUID != "" && !uuidText.MatchString(o.FirmwareUUID) {
		return "", fmt.Errorf("firmware UUID %q is malformed", o.FirmwareUUID)
	}
	var b strings.Builder
	if err := vmTemplate.Execute(&b, o); err != nil {
		return "", err
	}
	return b.String(), nil
}
