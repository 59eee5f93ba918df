// Package snapshotset binds the disks of a moment together: which snapshots to make, and
// whether those that were made are cut and are the ones that were asked for.
//
// Choose answers before anything is touched. The first row that holds wins:
//
//	seen                                         answer
//	a running VM's state, mounted pod by pod     StateUnsupported
//	a disk without a CSI driver                  NoSnapshotClass
//	a disk whose driver has no VolumeSnapshotClass that deletes   NoSnapshotClass
//	the VM does not run                          Offline: one snapshot after another
//	a disk whose snapshots are no instant        NoCommonInstant
//	one disk                                     SingleDisk
//	disks on several drivers                     NoCommonInstant
//	no group snapshot API, or no class of it     NoCommonInstant
//	a driver not known to cut groups together    NoCommonInstant
//	none of these                                Group
package snapshotset

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/inventory"
)

// Annotations that mark the default class of a driver (external-snapshotter, pkg/utils).
const (
	defaultClass      = "snapshot.storage.kubernetes.io/is-default-class"
	defaultGroupClass = "groupsnapshot.storage.kubernetes.io/is-default-class"
)

// Storage is what the cluster offers.
type Storage struct {
	Classes []snapshotv1.VolumeSnapshotClass
	// GroupAPI says that the cluster serves group snapshots in a version that is understood.
	GroupAPI     bool
	GroupClasses []groupsnapshotv1.VolumeGroupSnapshotClass
	Knowledge    Knowledge
}

// Snapshot is one VolumeSnapshot to be made of one disk.
type Snapshot struct {
	Volume string
	Claim  string
	Class  string
}

// Choice is how the disks are cut.
type Choice struct {
	Binding v1alpha1.DiskBinding
	// Snapshots of the disks, one each; none for a group.
	Snapshots []Snapshot
	// GroupClass of the group.
	GroupClass string
}

// Choose says how to cut the disks of a virtual machine, or why they cannot be.
func Choose(inv inventory.Inventory, s Storage) (Choice, *inventory.Refusal) {
	disks := inv.Disks()
	if r := stateUnseen(inv, s.Knowledge); r != nil {
		return Choice{}, r
	}
	out := Choice{Binding: v1alpha1.DisksOffline}
	for _, d := range disks {
		class, r := classOf(d, s.Classes)
		if r != nil {
			return Choice{}, r
		}
		out.Snapshots = append(out.Snapshots, Snapshot{Volume: d.Name, Claim: d.ClaimName, Class: class})
	}
	if !inv.Running {
		return out, nil
	}
	if r := notInstant(disks, s.Knowledge); r != nil {
		return Choice{}, r
	}
	switch {
	case len(disks) == 1:
		out.Binding = v1alpha1.DisksSingle
		return out, nil
	default:
		return group(disks, s)
	}
}

// stateUnseen refuses a running VM whose firmware state a witness cannot be sure to see.
func stateUnseen(inv inventory.Inventory, k Knowledge) *inventory.Refusal {
	for _, v := range inv.Volumes {
		if !inv.Running || v.Role != v1alpha1.RoleFirmwareState || v.Outcome != v1alpha1.VolumeIncluded {
			continue
		}
		if d, found := k.Of(v.Driver); found && d.MountsPerPod {
			return refusal(v1alpha1.ReasonStateUnsupported,
				"claim %q holds the firmware state on driver %q, which gives each pod a mount of its own (%s): what the guest wrote last may not be seen. Stop the VM for the backup, move its state to another class, or attest the driver in the manager's configuration",
				v.ClaimName, v.Driver, d.Source)
		} else if why := networked(v); !found && why != "" {
			return refusal(v1alpha1.ReasonStateUnsupported,
				"claim %q holds the firmware state on %s, %s: nothing tells whether a second mount on the node sees what the guest wrote last. Stop the VM for the backup, or move its state to another class%s",
				v.ClaimName, driverName(v), why, howToVouch(v))
		}
	}
	return nil
}

// notInstant refuses a running VM with a disk whose snapshots are copied while it is written.
func notInstant(disks []inventory.Volume, k Knowledge) *inventory.Refusal {
	for _, v := range disks {
		if d, found := k.Of(v.Driver); found && d.NotInstant {
			return refusal(v1alpha1.ReasonNoCommonInstant,
				"disk %q of the running VM is on driver %q, whose snapshots are no instant (%s): stop the VM for the backup, or move the disk",
				v.Name, v.Driver, d.Source)
		}
	}
	return nil
}

func classOf(d inventory.Volume, classes []snapshotv1.VolumeSnapshotClass) (string, *inventory.Refusal) {
	if d.Driver == "" {
		return "", refusal(v1alpha1.ReasonNoSnapshotClass,
			"disk %q (claim %q, class %q) is not on a CSI driver, so its storage cannot make snapshots: move it to a class that can", d.Name, d.ClaimName, d.StorageClassName)
	}
	of := slices.DeleteFunc(slices.Clone(classes), func(c snapshotv1.VolumeSnapshotClass) bool { return c.Driver != d.Driver })
	deleting := slices.DeleteFunc(slices.Clone(of), func(c snapshotv1.VolumeSnapshotClass) bool {
		return c.DeletionPolicy != snapshotv1.VolumeSnapshotContentDelete
	})
	switch {
	case len(of) == 0:
		return "", refusal(v1alpha1.ReasonNoSnapshotClass,
			"disk %q (claim %q): there is no VolumeSnapshotClass for driver %q; make one, or move the disk to a class whose driver can make snapshots", d.Name, d.ClaimName, d.Driver)
	case len(deleting) == 0:
		return "", refusal(v1alpha1.ReasonNoSnapshotClass,
			"disk %q (claim %q): every VolumeSnapshotClass of driver %q retains its snapshots, which would pile up on the storage; make one with deletionPolicy Delete", d.Name, d.ClaimName, d.Driver)
	}
	return slices.MinFunc(deleting, func(a, b snapshotv1.VolumeSnapshotClass) int {
		return preferred(a.Annotations[defaultClass], a.Name, b.Annotations[defaultClass], b.Name)
	}).Name, nil
}

// preferred puts a default class first, then goes by name, so that every pass chooses the same.
func preferred(defaultA, nameA, defaultB, nameB string) int {
	if (defaultA == "true") != (defaultB == "true") {
		if defaultA == "true" {
			return -1
		}
		return 1
	}
	return cmp.Compare(nameA, nameB)
}

func group(disks []inventory.Volume, s Storage) (Choice, *inventory.Refusal) {
	driver := disks[0].Driver
	for _, d := range disks {
		if d.Driver != driver {
			return Choice{}, noCommonInstant(disks, "disk %q is on driver %q and disk %q on driver %q, and no snapshot spans drivers",
				disks[0].Name, driver, d.Name, d.Driver)
		}
	}
	if !s.GroupAPI {
		return Choice{}, noCommonInstant(disks, "this cluster serves no group snapshots (groupsnapshot.storage.k8s.io v1 or v1beta2)")
	}
	classes := slices.DeleteFunc(slices.Clone(s.GroupClasses), func(c groupsnapshotv1.VolumeGroupSnapshotClass) bool {
		return c.Driver != driver || c.DeletionPolicy != snapshotv1.VolumeSnapshotContentDelete
	})
	if len(classes) == 0 {
		return Choice{}, noCommonInstant(disks, "there is no VolumeGroupSnapshotClass with deletionPolicy Delete for driver %q", driver)
	}
	d, found := s.Knowledge.Of(driver)
	switch {
	case !found:
		return Choice{}, noCommonInstant(disks, "it is not known whether driver %q cuts the members of a group at one instant; if it does, attest it in the manager's configuration", driver)
	case !d.GroupsCutTogether:
		return Choice{}, noCommonInstant(disks, "driver %q cuts the members of a group one after another (%s)", driver, d.Source)
	}
	class := slices.MinFunc(classes, func(a, b groupsnapshotv1.VolumeGroupSnapshotClass) int {
		return preferred(a.Annotations[defaultGroupClass], a.Name, b.Annotations[defaultGroupClass], b.Name)
	})
	return Choice{Binding: v1alpha1.DisksGroup, GroupClass: class.Name}, nil
}

func noCommonInstant(disks []inventory.Volume, format string, args ...any) *inventory.Refusal {
	names := make([]string, len(disks))
	for i, d := range disks {
		names[i] = fmt.Sprintf("%q", d.Name)
	}
	return refusal(v1alpha1.ReasonNoCommonInstant, "disks %s of the running VM cannot be cut at one instant: %s. Stop the VM for the backup, or put its disks on one driver that can",
		strings.Join(names, ", "), fmt.Sprintf(format, args...))
}

func refusal(reason, format string, args ...any) *inventory.Refusal {
	return &inventory.Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
