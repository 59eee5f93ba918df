package snapshotset

import (
	"fmt"
	"slices"
	"time"

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
	// Earlier is a content of the same driver that has the same handle and is not younger; "" if there
	// is none. No new snapshot has the handle of an older one.
	Earlier string
}

// Disk is one disk whose snapshot is looked for.
type Disk struct {
	Volume string
	Claim  string
	// Driver of the volume, and its handle there.
	Driver, Handle string
}

// Group is a VolumeGroupSnapshot, its content and its members; what is not there is nil.
type Group struct {
	Snapshot *groupsnapshotv1.VolumeGroupSnapshot
	Content  *groupsnapshotv1.VolumeGroupSnapshotContent
	// Members are the VolumeSnapshots whose owner is the group.
	Members []Pair
}

// Progress is how far the snapshots of a moment are.
type Progress struct {
	// Cut says that the storage holds every disk's moment: each content carries a handle.
	Cut bool
	// Ready says that claims can be made from every snapshot.
	Ready bool
	// Skew is the time between the first and the last creation time that the storage reported; 0 if it
	// reported none. It proves nothing: some drivers report when they were asked, some 1970.
	Skew time.Duration
	// Snapshots, in the order of the disks, once Cut and known.
	Snapshots []v1alpha1.CutSnapshot
	// Missing are the disks whose VolumeSnapshot was not made.
	Missing []string
	// Trouble is the latest error that a driver reported, with the volume's name.
	Trouble string
	// Foreign says that what was captured is not what was asked for. The next attempt may be better off.
	Foreign string
	// Wrong says that the driver's answer cannot be true. It would answer the next attempt so as well.
	Wrong string
}

// Refused says why the snapshots must not be used, whoever is to blame; "" if they may be.
func (p Progress) Refused() string {
	if p.Wrong != "" {
		return p.Wrong
	}
	return p.Foreign
}

// refuse keeps the first word against the snapshots.
func refuse(into *string, format string, args ...any) {
	if *into == "" {
		*into = fmt.Sprintf(format, args...)
	}
}

// troubles keeps the latest error of many. One without a time counts as later than those before it.
type troubles struct {
	at   time.Time
	text string
}

func (t *troubles) see(of string, e *snapshotv1.VolumeSnapshotError) {
	if e == nil || e.Message == nil || e.Time != nil && e.Time.Time.Before(t.at) {
		return
	}
	t.text = of + ": " + *e.Message
	if e.Time != nil {
		t.at = e.Time.Time
	}
}

// Single looks at snapshots that owner had made one by one, in the order of the disks.
func Single(owner types.UID, disks []Disk, pairs []Pair) Progress {
	out := Progress{Cut: true, Ready: true}
	var t troubles
	var created []*int64
	for i, d := range disks {
		p := pairs[i]
		if p.Content != nil && p.Content.Status != nil {
			created = append(created, p.Content.Status.CreationTime)
		}
		if p.Snapshot == nil {
			out.Missing = append(out.Missing, d.Volume)
			out.Cut, out.Ready = false, false
			continue
		}
		if source := p.Snapshot.Spec.Source.PersistentVolumeClaimName; !controlled(p.Snapshot, owner) || source == nil || *source != d.Claim {
			return Progress{Foreign: fmt.Sprintf("VolumeSnapshot %q exists, and is not this backup's of disk %q", p.Snapshot.Name, d.Volume)}
		}
		cut, ready := look(d, p, &out, &t)
		out.Cut = out.Cut && cut
		out.Ready = out.Ready && ready
	}
	out.Skew = skew(created)
	return finish(out, t)
}

// skew of creation times in nanoseconds since 1970; what is not after that is no time.
func skew(created []*int64) time.Duration {
	var first, last int64
	for _, t := range created {
		if t == nil || *t <= 0 {
			continue
		}
		if first == 0 || *t < first {
			first = *t
		}
		last = max(last, *t)
	}
	return time.Duration(last - first)
}

// finish adds what only all snapshots together tell.
func finish(out Progress, t troubles) Progress {
	out.Trouble = t.text
	for i, s := range out.Snapshots {
		for _, other := range out.Snapshots[:i] {
			if other.Handle == s.Handle {
				refuse(&out.Wrong, "the driver names one snapshot, %q, for disk %q and for disk %q", s.Handle, other.VolumeName, s.VolumeName)
			}
		}
	}
	if out.Refused() != "" {
		out.Cut, out.Ready, out.Snapshots = false, false, nil
	}
	return out
}

// look adds what one pair says. A content counts only if it points back by UID: a name alone
// can belong to an earlier object.
func look(d Disk, p Pair, out *Progress, t *troubles) (cut, ready bool) {
	of := fmt.Sprintf("disk %q", d.Volume)
	if p.Snapshot.Status != nil {
		t.see(of, p.Snapshot.Status.Error)
	}
	if p.Snapshot.DeletionTimestamp != nil {
		refuse(&out.Foreign, "the snapshot of disk %q is being deleted", d.Volume)
	}
	c := p.Content
	if c == nil {
		return false, false
	}
	named := boundTo(p.Snapshot) == c.Name
	if c.Spec.VolumeSnapshotRef.UID != p.Snapshot.UID {
		if named {
			refuse(&out.Foreign, "the snapshot of disk %q is bound to content %q, which is another snapshot's", d.Volume, c.Name)
		}
		return false, false
	}
	if c.Status == nil || !ofDisk(d, c, out) {
		return false, false
	}
	t.see(of, c.Status.Error)
	if c.Status.SnapshotHandle == nil || *c.Status.SnapshotHandle == "" {
		if isTrue(c.Status.ReadyToUse) {
			refuse(&out.Wrong, "driver %q says that the snapshot of disk %q is ready, and names no snapshot", c.Spec.Driver, d.Volume)
		}
		return false, false
	}
	if p.Earlier != "" {
		refuse(&out.Wrong, "driver %q names snapshot %q for disk %q, which content %q had before", c.Spec.Driver, *c.Status.SnapshotHandle, d.Volume, p.Earlier)
	}
	s := v1alpha1.CutSnapshot{
		VolumeName: d.Volume, SnapshotName: p.Snapshot.Name, ContentName: c.Name, Handle: *c.Status.SnapshotHandle,
	}
	if c.Status.RestoreSize != nil {
		s.RestoreSizeBytes = max(*c.Status.RestoreSize, 0)
	}
	out.Snapshots = append(out.Snapshots, s)
	return true, named && isTrue(c.Status.ReadyToUse) && p.Snapshot.Status != nil && isTrue(p.Snapshot.Status.ReadyToUse)
}

// ofDisk says that a content is of the disk's own volume: the claim may have been bound to another one.
func ofDisk(d Disk, c *snapshotv1.VolumeSnapshotContent, out *Progress) bool {
	if v := c.Spec.Source.VolumeHandle; c.Spec.Driver != d.Driver || v != nil && *v != d.Handle {
		refuse(&out.Foreign, "the snapshot of disk %q is of another volume than the disk's", d.Volume)
		return false
	}
	return true
}

func boundTo(s *snapshotv1.VolumeSnapshot) string {
	if s.Status == nil || s.Status.BoundVolumeSnapshotContentName == nil {
		return ""
	}
	return *s.Status.BoundVolumeSnapshotContentName
}

func isTrue(b *bool) bool { return b != nil && *b }

func controlled(obj metav1.Object, owner types.UID) bool {
	ref := metav1.GetControllerOf(obj)
	return ref != nil && ref.UID == owner
}

// Of looks at a group snapshot that owner had made. It is cut when its content, bound by UID, carries the group's
// handle and one of each disk; some seconds before the group says ready. What was captured is the content's list of
// volumes, which must be the disks and nothing else, and so must be what the driver answered.
func Of(owner types.UID, disks []Disk, g Group) Progress {
	var out Progress
	var t troubles
	if g.Snapshot == nil {
		for _, d := range disks {
			out.Missing = append(out.Missing, d.Volume)
		}
		return out
	}
	if !controlled(g.Snapshot, owner) {
		return Progress{Foreign: fmt.Sprintf("VolumeGroupSnapshot %q exists, and is not this backup's", g.Snapshot.Name)}
	}
	if g.Snapshot.Status != nil {
		t.see("group", g.Snapshot.Status.Error)
	}
	if g.Snapshot.DeletionTimestamp != nil {
		refuse(&out.Foreign, "the group snapshot is being deleted")
	}
	if c := contentOf(g, &out); c != nil {
		if c.Status != nil {
			t.see("group", c.Status.Error)
		}
		captured(disks, c, &out)
		if answered(disks, c, &out) {
			out.Cut = true
			var created []*int64
			for i := range c.Status.VolumeSnapshotInfoList {
				created = append(created, c.Status.VolumeSnapshotInfoList[i].CreationTime)
			}
			out.Skew = skew(created)
			out.Ready = members(disks, g, &out, &t)
		}
	}
	return finish(out, t)
}

// contentOf is the content of a group, if it points back by UID.
func contentOf(g Group, out *Progress) *groupsnapshotv1.VolumeGroupSnapshotContent {
	c := g.Content
	if c == nil || c.Spec.VolumeGroupSnapshotRef.UID == g.Snapshot.UID {
		return c
	}
	if s := g.Snapshot.Status; s != nil && s.BoundVolumeGroupSnapshotContentName != nil && *s.BoundVolumeGroupSnapshotContentName == c.Name {
		refuse(&out.Foreign, "the group snapshot is bound to content %q, which is another group's", c.Name)
	}
	return nil
}

// captured compares what was captured with what was asked for.
func captured(disks []Disk, c *groupsnapshotv1.VolumeGroupSnapshotContent, out *Progress) {
	for _, d := range disks {
		if d.Driver != c.Spec.Driver || !slices.Contains(c.Spec.Source.VolumeHandles, d.Handle) {
			refuse(&out.Foreign, "disk %q is not in the group that was cut", d.Volume)
		}
	}
	if n := len(c.Spec.Source.VolumeHandles); n != len(disks) {
		refuse(&out.Foreign, "the group that was cut has %d volumes instead of %d: another claim carried its label", n, len(disks))
	}
}

// answered says that the driver has cut the group, and compares what it answered with what was asked of it.
func answered(disks []Disk, c *groupsnapshotv1.VolumeGroupSnapshotContent, out *Progress) bool {
	if c.Status == nil {
		return false
	}
	ready, list := isTrue(c.Status.ReadyToUse), c.Status.VolumeSnapshotInfoList
	if h := c.Status.VolumeGroupSnapshotHandle; h == nil || *h == "" {
		if ready {
			refuse(&out.Wrong, "driver %q says that the group is ready, and names no group", c.Spec.Driver)
		}
		return false
	}
	if len(list) == 0 && !ready {
		return false
	}
	for _, d := range disks {
		if handleOf(d, c) == "" {
			refuse(&out.Wrong, "driver %q cut a group and names no snapshot of disk %q in it", c.Spec.Driver, d.Volume)
		}
	}
	if len(list) != len(disks) {
		refuse(&out.Wrong, "driver %q cut a group of %d volumes, and names %d snapshots in it", c.Spec.Driver, len(disks), len(list))
	}
	return out.Wrong == ""
}

// members finds the snapshot of each disk and cross-checks its handle with the group's list.
func members(disks []Disk, g Group, out *Progress, t *troubles) bool {
	ready, found := isTrue(g.Content.Status.ReadyToUse), 0
	for _, d := range disks {
		of := membersOf(d, g)
		found += len(of)
		if len(of) != 1 {
			ready = false
			continue
		}
		before := len(out.Snapshots)
		cut, bound := look(d, of[0], out, t)
		ready = ready && bound
		if cut && (out.Snapshots[before].Handle != handleOf(d, g.Content) || !ofGroup(of[0], g)) {
			refuse(&out.Foreign, "the snapshot of disk %q is another one than the group's list says", d.Volume)
		}
	}
	if owned := ownedMembers(g); found < owned {
		refuse(&out.Foreign, "the group has a member that is of none of the disks")
	} else if found > len(disks) {
		refuse(&out.Foreign, "the group has two members of one disk")
	}
	return ready
}

// membersOf are the members of a disk. The snapshot controller leaves the claim's name empty when it did
// not find the volume (external-snapshotter 8.7, pkg/common-controller/groupsnapshot_controller_helper.go).
func membersOf(d Disk, g Group) []Pair {
	var out []Pair
	for _, p := range g.Members {
		if !owned(p, g) {
			continue
		}
		source := p.Snapshot.Spec.Source.PersistentVolumeClaimName
		switch {
		case source != nil && *source == d.Claim:
			out = append(out, p)
		case source != nil && *source == "" && p.Content != nil && p.Content.Spec.Source.VolumeHandle != nil && *p.Content.Spec.Source.VolumeHandle == d.Handle:
			out = append(out, p)
		}
	}
	return out
}

func ownedMembers(g Group) int {
	n := 0
	for _, p := range g.Members {
		// One whose claim is not named is known by its content.
		if source := sourceOf(p); owned(p, g) && (source != "" || p.Content != nil) {
			n++
		}
	}
	return n
}

func sourceOf(p Pair) string {
	if p.Snapshot == nil || p.Snapshot.Spec.Source.PersistentVolumeClaimName == nil {
		return ""
	}
	return *p.Snapshot.Spec.Source.PersistentVolumeClaimName
}

// owned compares by UID alone: the version in the reference changed with the snapshotter's.
func owned(p Pair, g Group) bool {
	return p.Snapshot != nil && slices.ContainsFunc(p.Snapshot.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == g.Snapshot.UID })
}

// ofGroup says that nothing in a member names another group. Both fields come some time after the handle.
func ofGroup(p Pair, g Group) bool {
	if h := p.Content.Status.VolumeGroupSnapshotHandle; h != nil && *h != *g.Content.Status.VolumeGroupSnapshotHandle {
		return false
	}
	s := p.Snapshot.Status
	return s == nil || s.VolumeGroupSnapshotName == nil || *s.VolumeGroupSnapshotName == g.Snapshot.Name
}

func handleOf(d Disk, c *groupsnapshotv1.VolumeGroupSnapshotContent) string {
	for _, info := range c.Status.VolumeSnapshotInfoList {
		if info.VolumeHandle == d.Handle {
			return info.SnapshotHandle
		}
	}
	return ""
}
