// Package snapshotset binds the disks of a moment together: which snapshots to make, and
// whether those that were made are cut and are the ones that were asked for.
//
// Choose answers before anything is touched, with one choice or with all that stands in its way:
//
//	seen                                                          answer
//	a running VM's state, mounted pod by pod                      StateUnsupported
//	a cluster without snapshots                                   NoSnapshotClass
//	a disk whose driver makes none, or has no class that deletes  NoSnapshotClass
//	a disk of a running VM whose snapshots are no instant         NoCommonInstant
//	the VM does not run                                           Offline: one snapshot after another
//	one disk                                                      SingleDisk
//	a driver known to cut groups together, with a class           Group
//	a guest that is paused, or may be                             Fence: one snapshot after another
//	none of these                                                 NoCommonInstant
//
// Everything that is known of drivers is data (known.go, the manager's configuration); nothing here knows one by name.
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
	// Served says that the cluster serves VolumeSnapshots.
	Served  bool
	Classes []snapshotv1.VolumeSnapshotClass
	// GroupVersion of the group snapshot API that is used, as in v1; "" if none that is understood is served.
	GroupVersion string
	// GroupTooOld is the newest served version of the group snapshot API, if none is understood; "" if none is served.
	GroupTooOld  string
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
	// Why the guest has to be paused: what keeps its disks from being cut as a group.
	Why string
}

// PausedByUser is KubeVirt's reason for a pause that somebody asked for (pkg/virt-handler, v1.9.0). Of the others one
// is of a migration, and one of a disk that takes no more writes: its last ones are under way.
const PausedByUser = "PausedByUser"

// Choose says how to cut the disks of a virtual machine, or all that stands in the way. mayPause says that its
// guest may be paused for it, which needs no more than that where it is paused already.
func Choose(inv inventory.Inventory, s Storage, mayPause bool) (Choice, []inventory.Refusal) {
	disks := inv.Disks()
	found := stateUnseen(inv, s.Knowledge)
	snapshots, missing := classes(disks, s)
	found = append(found, missing...)
	if inv.Running {
		found = append(found, notInstant(disks, s.Knowledge)...)
	}
	out := Choice{Binding: v1alpha1.DisksOffline, Snapshots: snapshots}
	switch {
	case !inv.Running:
	case len(disks) == 1:
		out.Binding = v1alpha1.DisksSingle
	case len(disks) > 1:
		class, why := group(disks, s)
		unpaused := unpausable(inv)
		switch {
		case why == "":
			out = Choice{Binding: v1alpha1.DisksGroup, GroupClass: class}
		case slices.ContainsFunc(disks, s.Knowledge.snapless): // that is said already, disk by disk
		case unpaused != "":
			found = append(found, noCommonInstant(disks, why+"; and "+unpaused))
		case !inv.Paused && !mayPause:
			r := noCommonInstant(disks, why)
			r.Next += ", or allow a pause of the guest (require.maxPause)"
			found = append(found, r)
		default:
			out.Binding, out.Why = v1alpha1.DisksFence, why
		}
	}
	if len(found) > 0 {
		return Choice{}, found
	}
	return out, nil
}

// unpausable says why disks cannot be cut under a pause of the guest; "" if they can.
func unpausable(inv inventory.Inventory) string {
	switch {
	case inv.Paused && inv.PauseReason != PausedByUser:
		return fmt.Sprintf("the guest is paused by nobody's will (%s)", inv.PauseReason)
	case !inv.Paused && inv.Unpausable != "":
		return "the guest cannot be paused for it: " + inv.Unpausable
	default:
		return ""
	}
}

// ByClass is a choice that was made before, with the classes that there are now.
func ByClass(inv inventory.Inventory, s Storage, binding v1alpha1.DiskBinding) (Choice, []inventory.Refusal) {
	if binding == v1alpha1.DisksGroup {
		class, why := groupClass(inv.Disks()[0].Driver, s)
		if why != "" {
			return Choice{}, []inventory.Refusal{noCommonInstant(inv.Disks(), why)}
		}
		return Choice{Binding: binding, GroupClass: class}, nil
	}
	snapshots, missing := classes(inv.Disks(), s)
	return Choice{Binding: binding, Snapshots: snapshots}, missing
}

// stateUnseen refuses a running VM whose firmware state a witness cannot be sure to see.
func stateUnseen(inv inventory.Inventory, k Knowledge) (found []inventory.Refusal) {
	for _, v := range inv.Volumes {
		if !inv.Running || v.Role != v1alpha1.RoleFirmwareState || v.Outcome != v1alpha1.VolumeIncluded {
			continue
		}
		r := of(v, v1alpha1.ReasonStateUnsupported)
		if d, known := k.Of(v.Driver); known && d.MountsPerPod {
			r.Message = fmt.Sprintf("claim %q holds the firmware state on driver %q, which gives each pod a mount of its own: what the guest wrote last may not be seen (%s)",
				v.ClaimName, v.Driver, d.Source)
			r.Next = "stop the VM for the backup, move its state to another class, or attest the driver in the manager's configuration"
			found = append(found, r)
		} else if why := networked(v); !known && why != "" {
			r.Message = fmt.Sprintf("claim %q holds the firmware state on %s, %s: nothing tells whether a second mount on the node sees what the guest wrote last",
				v.ClaimName, driverName(v), why)
			r.Next = "stop the VM for the backup, or move its state to another class" + howToVouch(v)
			found = append(found, r)
		}
	}
	return found
}

// classes are the snapshots to make of disks one by one, and the disks of which none can be made.
func classes(disks []inventory.Volume, s Storage) (out []Snapshot, missing []inventory.Refusal) {
	for _, d := range disks {
		class, r := classOf(d, s)
		if r != nil {
			missing = append(missing, *r)
			continue
		}
		out = append(out, Snapshot{Volume: d.Name, Claim: d.ClaimName, Class: class})
	}
	return out, missing
}

// classOf chooses among the classes of a disk's driver that remove what they made.
func classOf(d inventory.Volume, s Storage) (string, *inventory.Refusal) {
	mine := slices.DeleteFunc(slices.Clone(s.Classes), func(c snapshotv1.VolumeSnapshotClass) bool { return c.Driver != d.Driver })
	deleting := slices.DeleteFunc(slices.Clone(mine), func(c snapshotv1.VolumeSnapshotClass) bool {
		return c.DeletionPolicy != snapshotv1.VolumeSnapshotContentDelete
	})
	r := of(d, v1alpha1.ReasonNoSnapshotClass)
	known, _ := s.Knowledge.Of(d.Driver)
	switch {
	case d.Driver == "":
		r.Message = fmt.Sprintf("disk %q (claim %q, class %q) is on storage without a CSI driver, which makes no snapshots", d.Name, d.ClaimName, d.StorageClassName)
		r.Next = "move the disk to a class whose driver can"
	case known.NoSnapshots:
		r.Message = fmt.Sprintf("disk %q (claim %q): driver %q makes no snapshots (%s)", d.Name, d.ClaimName, d.Driver, known.Source)
		r.Next = "move the disk to a class whose driver can"
	case !s.Served && len(s.Classes) == 0:
		r.Object = "customresourcedefinition/volumesnapshots.snapshot.storage.k8s.io"
		r.Message = fmt.Sprintf("disk %q (claim %q): this cluster serves no snapshots (snapshot.storage.k8s.io/v1)", d.Name, d.ClaimName)
		r.Next = "install the CRDs and the controller of external-snapshotter"
	case len(mine) == 0:
		r.Message = fmt.Sprintf("disk %q (claim %q): there is no VolumeSnapshotClass for driver %q", d.Name, d.ClaimName, d.Driver)
		r.Next = "make one, or move the disk to a class whose driver can make snapshots"
	case len(deleting) == 0:
		r.Object = "volumesnapshotclass/" + mine[0].Name
		r.Message = fmt.Sprintf("disk %q (claim %q): every VolumeSnapshotClass of driver %q retains its snapshots, which would pile up on the storage", d.Name, d.ClaimName, d.Driver)
		r.Next = "make one with deletionPolicy Delete"
	default:
		return slices.MinFunc(deleting, func(a, b snapshotv1.VolumeSnapshotClass) int {
			return preferred(a.Annotations[defaultClass], a.Name, b.Annotations[defaultClass], b.Name)
		}).Name, nil
	}
	return "", &r
}

// notInstant names the disks of which even one snapshot is of no one instant.
func notInstant(disks []inventory.Volume, k Knowledge) (found []inventory.Refusal) {
	for _, d := range disks {
		if known, _ := k.Of(d.Driver); known.NotInstant {
			r := of(d, v1alpha1.ReasonNoCommonInstant)
			r.Message = fmt.Sprintf("disk %q (claim %q): snapshots of driver %q are no instant (%s)", d.Name, d.ClaimName, d.Driver, known.Source)
			r.Next = "stop the VM for the backup, or move the disk"
			found = append(found, r)
		}
	}
	return found
}

// of is a refusal about a volume.
func of(v inventory.Volume, reason string) inventory.Refusal {
	return inventory.Refusal{Reason: reason, Volume: v.Name, Object: "persistentvolumeclaim/" + v.ClaimName}
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

// group is the class of a group snapshot over all disks, or why there can be none.
func group(disks []inventory.Volume, s Storage) (class, why string) {
	driver := disks[0].Driver
	for _, d := range disks {
		if d.Driver != driver {
			return "", fmt.Sprintf("disk %q is on %s and disk %q on %s, and no snapshot spans drivers", disks[0].Name, driverName(disks[0]), d.Name, driverName(d))
		}
	}
	d, found := s.Knowledge.Of(driver)
	switch {
	case driver == "":
		return "", "they are on storage without a CSI driver"
	case d.NoGroups:
		return "", fmt.Sprintf("driver %q cannot cut groups (%s)", driver, d.Source)
	case found && !d.GroupsCutTogether:
		return "", fmt.Sprintf("driver %q cuts the members of a group one after another (%s)", driver, d.Source)
	}
	for _, v := range disks {
		if name, labelled := v.ClaimLabels[d.RestoredTogetherLabel]; labelled && d.RestoredTogetherLabel != "" {
			return "", fmt.Sprintf("claim %q is a member of the consistency group %q (label %s), whose members cannot be read one by one (%s)",
				v.ClaimName, name, d.RestoredTogetherLabel, d.Source)
		}
	}
	if class, why = groupClass(driver, s); why == "" && !found {
		return "", fmt.Sprintf("it is not known whether driver %q cuts the members of a group at one instant; if it does, attest it in the manager's configuration", driver)
	}
	return class, why
}

// groupClass chooses among the group classes of a driver that remove what they made.
func groupClass(driver string, s Storage) (class, why string) {
	if s.GroupVersion == "" && s.GroupTooOld != "" {
		return "", fmt.Sprintf("this cluster serves group snapshots as %s alone, and v1 or v1beta2 is needed (external-snapshotter 8.4 or later)", s.GroupTooOld)
	}
	if s.GroupVersion == "" {
		return "", "this cluster serves no group snapshots (groupsnapshot.storage.k8s.io v1 or v1beta2)"
	}
	mine := slices.DeleteFunc(slices.Clone(s.GroupClasses), func(c groupsnapshotv1.VolumeGroupSnapshotClass) bool {
		return c.Driver != driver || c.DeletionPolicy != snapshotv1.VolumeSnapshotContentDelete
	})
	if len(mine) == 0 {
		return "", fmt.Sprintf("there is no VolumeGroupSnapshotClass with deletionPolicy Delete for driver %q", driver)
	}
	return slices.MinFunc(mine, func(a, b groupsnapshotv1.VolumeGroupSnapshotClass) int {
		return preferred(a.Annotations[defaultGroupClass], a.Name, b.Annotations[defaultGroupClass], b.Name)
	}).Name, ""
}

func noCommonInstant(disks []inventory.Volume, why string) inventory.Refusal {
	names, quoted := make([]string, len(disks)), make([]string, len(disks))
	for i, d := range disks {
		names[i], quoted[i] = d.Name, fmt.Sprintf("%q", d.Name)
	}
	return inventory.Refusal{
		Reason: v1alpha1.ReasonNoCommonInstant, Volume: strings.Join(names, ", "), Object: "persistentvolumeclaim/" + disks[0].ClaimName,
		Message: fmt.Sprintf("disks %s of the running VM cannot be cut at one instant: %s", strings.Join(quoted, ", "), why),
		Next:    "stop the VM for the backup, or put its disks on one driver that can",
	}
}
