package snapshotset

import (
	"fmt"
	"slices"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// Pair is one VolumeSnapshot and the content that is bound to it; either may be nil.
type Pair struct {
	Snapshot *snapshotv1.VolumeSnapshot
	Content  *snapshotv1.VolumeSnapshotContent
}

// Disk is one disk whose snapshot is looked for.
type Disk struct {
	Volume string
	Claim  string
	// Handle of the volume at its driver.
	Handle string
}

// Group is a VolumeGroupSnapshot, its content and its members; what is not there is nil.
type Group struct {
	Snapshot *groupsnapshotv1.VolumeGroupSnapshot
	Content  *groupsnapshotv1.VolumeGroupSnapshotContent
	Members  []Pair
}

// Progress is how far the snapshots of a moment are.
type Progress struct {
	// Cut says that the storage holds every disk's moment: each content carries a handle.
	Cut bool
	// Ready says that claims can be made from every snapshot.
	Ready bool
	// Snapshots, in the order of the disks, once Cut and known.
	Snapshots []v1alpha1.CutSnapshot
	// Missing are the disks whose VolumeSnapshot was not made.
	Missing []string
	// Trouble is the latest error that a driver reported, with the volume's name.
	Trouble string
	// Foreign says that what was captured is not what was asked for.
	Foreign string
}

// Single looks at snapshots that owner had made one by one, in the order of the disks.
func Single(owner types.UID, disks []Disk, pairs []Pair) Progress {
	out := Progress{Cut: true, Ready: true}
	for i, d := range disks {
		p := pairs[i]
		if p.Snapshot == nil {
			out.Missing = append(out.Missing, d.Volume)
			out.Cut, out.Ready = false, false
			continue
		}
		if source := p.Snapshot.Spec.Source.PersistentVolumeClaimName; !controlled(p.Snapshot, owner) || source == nil || *source != d.Claim {
			return Progress{Foreign: fmt.Sprintf("VolumeSnapshot %q exists, and is not this backup's of disk %q", p.Snapshot.Name, d.Volume)}
		}
		cut, ready := look(d.Volume, p, &out)
		out.Cut = out.Cut && cut
		out.Ready = out.Ready && ready
	}
	return out
}

// look adds what one pair says. A content counts only if it points back by UID: a name alone
// can belong to an earlier object.
func look(volume string, p Pair, out *Progress) (cut, ready bool) {
	if e := p.Snapshot.Status; e != nil && e.Error != nil && e.Error.Message != nil {
		out.Trouble = fmt.Sprintf("disk %q: %s", volume, *e.Error.Message)
	}
	c := p.Content
	if c == nil || c.Spec.VolumeSnapshotRef.UID != p.Snapshot.UID || c.Status == nil {
		return false, false
	}
	if c.Status.Error != nil && c.Status.Error.Message != nil {
		out.Trouble = fmt.Sprintf("disk %q: %s", volume, *c.Status.Error.Message)
	}
	if c.Status.SnapshotHandle == nil || *c.Status.SnapshotHandle == "" {
		return false, false
	}
	s := v1alpha1.CutSnapshot{
		VolumeName: volume, SnapshotName: p.Snapshot.Name, ContentName: c.Name, Handle: *c.Status.SnapshotHandle,
	}
	if c.Status.RestoreSize != nil {
		s.RestoreSizeBytes = *c.Status.RestoreSize
	}
	out.Snapshots = append(out.Snapshots, s)
	bound := p.Snapshot.Status != nil && p.Snapshot.Status.BoundVolumeSnapshotContentName != nil &&
		*p.Snapshot.Status.BoundVolumeSnapshotContentName == c.Name
	return true, bound && isTrue(c.Status.ReadyToUse) && isTrue(p.Snapshot.Status.ReadyToUse)
}

func isTrue(b *bool) bool { return b != nil && *b }

func controlled(obj metav1.Object, owner types.UID) bool {
	ref := metav1.GetControllerOf(obj)
	return ref != nil && ref.UID == owner
}

// Of looks at a group snapshot that owner had made. It is cut when its content, bound by UID, carries the group's
// handle; some seconds before the group says ready. What was captured is the content's list of
// volumes, which must be the disks and nothing else.
func Of(owner types.UID, disks []Disk, g Group) Progress {
	var out Progress
	if g.Snapshot == nil {
		for _, d := range disks {
			out.Missing = append(out.Missing, d.Volume)
		}
		return out
	}
	if !controlled(g.Snapshot, owner) {
		return Progress{Foreign: fmt.Sprintf("VolumeGroupSnapshot %q exists, and is not this backup's", g.Snapshot.Name)}
	}
	if s := g.Snapshot.Status; s != nil && s.Error != nil && s.Error.Message != nil {
		out.Trouble = "group: " + *s.Error.Message
	}
	c := g.Content
	if c == nil || c.Spec.VolumeGroupSnapshotRef.UID != g.Snapshot.UID {
		return out
	}
	if out.Foreign = foreign(disks, c.Spec.Source.VolumeHandles); out.Foreign != "" || c.Status == nil {
		return out
	}
	if c.Status.Error != nil && c.Status.Error.Message != nil {
		out.Trouble = "group: " + *c.Status.Error.Message
	}
	if h := c.Status.VolumeGroupSnapshotHandle; h == nil || *h == "" {
		return out
	}
	out.Cut = true
	out.Ready = members(disks, g, &out)
	return out
}

// foreign compares what was captured with what was asked for.
func foreign(disks []Disk, captured []string) string {
	for _, d := range disks {
		if !slices.Contains(captured, d.Handle) {
			return fmt.Sprintf("disk %q is not in the group that was cut", d.Volume)
		}
	}
	if len(captured) != len(disks) {
		return fmt.Sprintf("the group that was cut has %d volumes instead of %d: another claim carried its label", len(captured), len(disks))
	}
	return ""
}

// members finds the snapshot of each disk and cross-checks its handle with the group's list.
func members(disks []Disk, g Group, out *Progress) bool {
	ready := isTrue(g.Content.Status.ReadyToUse)
	for _, d := range disks {
		p := memberOf(d, g)
		if p == nil {
			ready = false
			continue
		}
		before := len(out.Snapshots)
		cut, bound := look(d.Volume, *p, out)
		ready = ready && bound
		if cut && out.Snapshots[before].Handle != handleOf(d, g.Content) {
			out.Foreign = fmt.Sprintf("the snapshot of disk %q has another handle than the group's list says", d.Volume)
		}
	}
	return ready
}

func memberOf(d Disk, g Group) *Pair {
	for i := range g.Members {
		s := g.Members[i].Snapshot
		if s == nil || !owned(s.OwnerReferences, g.Snapshot) || s.Spec.Source.PersistentVolumeClaimName == nil {
			continue
		}
		if *s.Spec.Source.PersistentVolumeClaimName == d.Claim {
			return &g.Members[i]
		}
	}
	return nil
}

// owned compares by UID alone: the version in the reference changed with the snapshotter's.
func owned(refs []metav1.OwnerReference, g *groupsnapshotv1.VolumeGroupSnapshot) bool {
	return slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == g.UID })
}

func handleOf(d Disk, c *groupsnapshotv1.VolumeGroupSnapshotContent) string {
	for _, info := range c.Status.VolumeSnapshotInfoList {
		if info.VolumeHandle == d.Handle {
			return info.SnapshotHandle
		}
	}
	return ""
}
