package snapshotset

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmstate/vmstate/pkg/inventory"
)

// Driver is what is known of one CSI driver and cannot be read from any API: a driver may serve
// group snapshots and still cut the members one after another.
type Driver struct {
	// Name of the driver, as in StorageClass.provisioner. A leading dot matches every name that
	// ends so: operators put a prefix of their own before it.
	Name string `json:"name"`
	// GroupsCutTogether says that the driver cuts all members of a group at one instant.
	GroupsCutTogether bool `json:"groupsCutTogether"`
	// RestoredTogetherLabel is a label of claims whose group snapshots can only be restored as a whole; so no single
	// clone of a member can be read, and such claims are not cut as a group.
	RestoredTogetherLabel string `json:"restoredTogetherLabel,omitempty"`
	// NoGroups says that the driver cannot cut groups, whatever classes there are.
	NoGroups bool `json:"noGroups,omitempty"`
	// NoSnapshots says that the driver cannot make snapshots, whatever classes there are.
	NoSnapshots bool `json:"noSnapshots,omitempty"`
	// NotInstant says that a snapshot of one volume is no instant either: the driver reads the
	// volume while the guest writes it.
	NotInstant bool `json:"notInstant,omitempty"`
	// ClonesCopy says that a claim made from a snapshot is a full copy, which takes its time and space.
	ClonesCopy bool `json:"clonesCopy,omitempty"`
	// MountsPerPod says that each pod has a mount of its own, so that a second pod on the node need
	// not see what the first has written last. A driver that an administrator names without it is
	// vouched for: all pods of a node share one mount.
	MountsPerPod bool `json:"mountsPerPod,omitempty"`
	// Source says where that is known from.
	Source string `json:"source"`
}

// Knowledge of drivers: what an administrator says, then what is known.
type Knowledge struct{ attested []Driver }

// NewKnowledge puts what an administrator attests before what is known.
func NewKnowledge(attested []Driver) Knowledge { return Knowledge{attested: attested} }

// Of is what is known of a driver; false if nothing is.
func (k Knowledge) Of(driver string) (Driver, bool) {
	for _, list := range [][]Driver{k.attested, known} {
		for _, d := range list {
			if d.Name == driver || strings.HasPrefix(d.Name, ".") && strings.HasSuffix(driver, d.Name) {
				return d, true
			}
		}
	}
	return Driver{}, false
}

// snapless says that a volume is on storage that makes no snapshots at all.
func (k Knowledge) snapless(v inventory.Volume) bool {
	d, _ := k.Of(v.Driver)
	return v.Driver == "" || d.NoSnapshots
}

// networkNames are parts of the names of drivers that serve network or FUSE filesystems.
var networkNames = []string{
	"nfs", "smb", "cifs", "fuse", "gluster", "lustre", "beegfs", "weka", "seaweedfs", "moosefs", "filestore", "azurefile", "file.csi", "s3.csi", "s3-csi",
}

// networked says why a volume of an unknown driver may be on a network or FUSE filesystem, whose
// mounts need not agree with each other; empty if nothing hints at it. A filesystem on a block
// device is mounted once a node.
func networked(v inventory.Volume) string {
	shared := func(mode string) bool {
		return mode == string(corev1.ReadWriteMany) || mode == string(corev1.ReadOnlyMany)
	}
	switch {
	case v.VolumeMode == string(corev1.PersistentVolumeBlock):
		return ""
	case slices.ContainsFunc(v.AccessModes, shared):
		return "which several nodes may mount at once and vmstate does not know"
	case slices.ContainsFunc(networkNames, func(part string) bool { return strings.Contains(strings.ToLower(v.Driver), part) }):
		return "whose name is that of a network filesystem and which vmstate does not know"
	}
	return ""
}

func driverName(v inventory.Volume) string {
	if v.Driver == "" {
		return "a volume without a CSI driver"
	}
	return "driver " + v.Driver
}

// howToVouch is what an administrator writes who knows that a node has one mount of each volume.
func howToVouch(v inventory.Volume) string {
	if v.Driver == "" {
		return ""
	}
	return fmt.Sprintf("; or, if all pods of a node share one mount, name the driver in the manager's configuration: drivers: [{name: %q, source: who says so}]", v.Driver)
}
