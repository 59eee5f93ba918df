package snapshotset

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

var mine = []metav1.OwnerReference{{UID: "me", Controller: ptr(true)}}

func ptr[T any](v T) *T { return &v }

// pair is a snapshot of a claim, bound both ways, cut and ready. The volume of the claim root-db is v-root.
func pair(name, claim, handle string, change ...func(*Pair)) Pair {
	p := Pair{
		Snapshot: &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), OwnerReferences: mine},
			Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}},
			Status:     &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: ptr("c-" + name), ReadyToUse: ptr(true)},
		},
		Content: &snapshotv1.VolumeSnapshotContent{
			ObjectMeta: metav1.ObjectMeta{Name: "c-" + name},
			Spec: snapshotv1.VolumeSnapshotContentSpec{
				Driver: "csi", Source: snapshotv1.VolumeSnapshotContentSource{VolumeHandle: ptr("v-" + strings.TrimSuffix(claim, "-db"))},
			},
			Status: &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: &handle, ReadyToUse: ptr(true), RestoreSize: ptr(int64(7))},
		},
	}
	p.Content.Spec.VolumeSnapshotRef.UID = p.Snapshot.UID
	for _, c := range change {
		c(&p)
	}
	return p
}

// failed is an error that a driver reported so many seconds after the start.
func failed(message string, after int64) *snapshotv1.VolumeSnapshotError {
	at := metav1.Unix(after, 0)
	return &snapshotv1.VolumeSnapshotError{Message: &message, Time: &at}
}

func cutOf(volume, name, handle string) v1alpha1.CutSnapshot {
	return v1alpha1.CutSnapshot{VolumeName: volume, SnapshotName: name, ContentName: "c-" + name, Handle: handle, RestoreSizeBytes: 7}
}

func diskOf(volume string) Disk {
	return Disk{Volume: volume, Claim: volume + "-db", Driver: "csi", Handle: "v-" + volume}
}

func TestSingle(t *testing.T) {
	disks := []Disk{diskOf("root")}
	whole := []v1alpha1.CutSnapshot{cutOf("root", "s", "h")}
	tests := map[string]struct {
		why  string
		in   Pair
		want Progress
	}{
		"Missing": {in: Pair{}, want: Progress{Missing: []string{"root"}}},
		"NotOurs": {
			why: "a name can be guessed", in: pair("s", "root-db", "h", func(p *Pair) { p.Snapshot.OwnerReferences = nil }),
			want: Progress{Foreign: `VolumeSnapshot "s" exists, and is not this backup's of disk "root"`},
		},
		"OtherSource": {
			in:   pair("s", "other", "h"),
			want: Progress{Foreign: `VolumeSnapshot "s" exists, and is not this backup's of disk "root"`},
		},
		"Unbound": {in: pair("s", "root-db", "h", func(p *Pair) { p.Content, p.Snapshot.Status = nil, nil }), want: Progress{}},
		"NoHandle": {
			why: "bound is not cut", in: pair("s", "root-db", "h", func(p *Pair) {
				p.Content.Status.SnapshotHandle, p.Content.Status.ReadyToUse = nil, ptr(false)
			}), want: Progress{},
		},
		"OtherContent": {
			why: "a content of that name, of an earlier snapshot", in: pair("s", "root-db", "h", func(p *Pair) {
				p.Content.Spec.VolumeSnapshotRef.UID, p.Snapshot.Status = "earlier", nil
			}),
			want: Progress{},
		},
		"BoundToOtherContent": {
			why:  "both must say that they are one: a content can be made by hand",
			in:   pair("s", "root-db", "h", func(p *Pair) { p.Content.Spec.VolumeSnapshotRef.UID = "another" }),
			want: Progress{Foreign: `the snapshot of disk "root" is bound to content "c-s", which is another snapshot's`},
		},
		"OtherVolume": {
			why:  "the claim was bound to another volume between the look and the cut",
			in:   pair("s", "root-db", "h", func(p *Pair) { p.Content.Spec.Source.VolumeHandle = ptr("v-new") }),
			want: Progress{Foreign: `the snapshot of disk "root" is of another volume than the disk's`},
		},
		"OtherDriver": {
			in:   pair("s", "root-db", "h", func(p *Pair) { p.Content.Spec.Driver = "csi2" }),
			want: Progress{Foreign: `the snapshot of disk "root" is of another volume than the disk's`},
		},
		"BeingDeleted": {
			why:  "somebody removes it: what is to be read goes under the reader",
			in:   pair("s", "root-db", "h", func(p *Pair) { p.Snapshot.DeletionTimestamp = ptr(metav1.Unix(1, 0)) }),
			want: Progress{Foreign: `the snapshot of disk "root" is being deleted`},
		},
		"CutNotReady": {
			why: "the handle is the cut, seconds before the snapshot says ready",
			in:  pair("s", "root-db", "h", func(p *Pair) { p.Snapshot.Status = nil }), want: Progress{Cut: true, Snapshots: whole},
		},
		"NotReadyOnStorage": {
			in: pair("s", "root-db", "h", func(p *Pair) { p.Content.Status.ReadyToUse = ptr(false) }), want: Progress{Cut: true, Snapshots: whole},
		},
		"Ready": {in: pair("s", "root-db", "h"), want: Progress{Cut: true, Ready: true, Snapshots: whole}},
		"ReadyWithoutHandle": {
			why: "a driver that lies: nothing could be read, and nothing removed", in: pair("s", "root-db", ""),
			want: Progress{Wrong: `driver "csi" says that the snapshot of disk "root" is ready, and names no snapshot`},
		},
		"HandleOfAnother": {
			why:  "the snapshot is somebody else's, of another moment, and would be removed with ours",
			in:   pair("s", "root-db", "h", func(p *Pair) { p.Earlier = "theirs" }),
			want: Progress{Wrong: `driver "csi" names snapshot "h" for disk "root", which content "theirs" had before`},
		},
		"BeforeTheEpoch": {
			why: "a driver without a time says 1970: the time proves nothing and is not looked at",
			in: pair("s", "root-db", "h", func(p *Pair) {
				p.Content.Status.CreationTime, p.Snapshot.Status.CreationTime = ptr(int64(0)), ptr(metav1.Unix(0, 0))
			}),
			want: Progress{Cut: true, Ready: true, Snapshots: whole},
		},
		"NoRestoreSize": {
			why: "a driver need not say how large it is, and one says less than nothing",
			in:  pair("s", "root-db", "h", func(p *Pair) { p.Content.Status.RestoreSize = ptr(int64(-1)) }),
			want: Progress{Cut: true, Ready: true, Snapshots: []v1alpha1.CutSnapshot{
				{VolumeName: "root", SnapshotName: "s", ContentName: "c-s", Handle: "h"},
			}},
		},
		"Trouble": {
			why: "the latest error of the driver is the diagnosis",
			in: pair("s", "root-db", "h", func(p *Pair) {
				p.Content.Status = &snapshotv1.VolumeSnapshotContentStatus{Error: &snapshotv1.VolumeSnapshotError{Message: ptr("busy")}}
			}),
			want: Progress{Trouble: `disk "root": busy`},
		},
		"LatestTrouble": {
			why: "snapshot and content each keep an error: the later one is the diagnosis",
			in: pair("s", "root-db", "h", func(p *Pair) {
				p.Snapshot.Status.Error = failed("quota", 9)
				p.Content.Status = &snapshotv1.VolumeSnapshotContentStatus{Error: failed("busy", 5)}
			}),
			want: Progress{Trouble: `disk "root": quota`},
		},
		"TroubleOfThePast": {
			why: "an error stays until the snapshot is ready: what is cut is cut",
			in: pair("s", "root-db", "h", func(p *Pair) {
				p.Content.Status.ReadyToUse, p.Content.Status.Error = nil, failed("busy", 5)
			}),
			want: Progress{Cut: true, Snapshots: whole, Trouble: `disk "root": busy`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Single("me", disks, []Pair{tc.in})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

// TestSingleTwice: a driver that names one snapshot for two disks.
func TestSingleTwice(t *testing.T) {
	want := Progress{Wrong: `the driver names one snapshot, "h", for disk "root" and for disk "data"`}
	got := Single("me", []Disk{diskOf("root"), diskOf("data")}, []Pair{pair("s1", "root-db", "h"), pair("s2", "data-db", "h")})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// wholeGroup is a group of two disks that is cut and ready.
func wholeGroup(change ...func(*Group)) Group {
	g := Group{
		Snapshot: &groupsnapshotv1.VolumeGroupSnapshot{
			ObjectMeta: metav1.ObjectMeta{Name: "g", UID: "uid-g", OwnerReferences: mine},
			Status:     &groupsnapshotv1.VolumeGroupSnapshotStatus{BoundVolumeGroupSnapshotContentName: ptr("c-g")},
		},
		Content: &groupsnapshotv1.VolumeGroupSnapshotContent{
			ObjectMeta: metav1.ObjectMeta{Name: "c-g"},
			Spec: groupsnapshotv1.VolumeGroupSnapshotContentSpec{
				Driver: "csi", Source: groupsnapshotv1.VolumeGroupSnapshotContentSource{VolumeHandles: []string{"v-data", "v-root"}},
			},
			Status: &groupsnapshotv1.VolumeGroupSnapshotContentStatus{
				VolumeGroupSnapshotHandle: ptr("gh"), ReadyToUse: ptr(true), VolumeSnapshotInfoList: infos("v-root=h-root", "v-data=h-data"),
			},
		},
	}
	g.Content.Spec.VolumeGroupSnapshotRef.UID = g.Snapshot.UID
	g.Members = []Pair{pair("m2", "data-db", "h-data", inGroup), pair("stranger", "root-db", "x"), pair("m1", "root-db", "h-root", inGroup)}
	for _, c := range change {
		c(&g)
	}
	return g
}

// inGroup makes a snapshot a member, as the snapshot controller writes one.
func inGroup(p *Pair) {
	p.Snapshot.OwnerReferences = []metav1.OwnerReference{{UID: "uid-g", APIVersion: "groupsnapshot.storage.k8s.io/v1beta2"}}
	p.Snapshot.Status.VolumeGroupSnapshotName = ptr("g")
	p.Content.Status.VolumeGroupSnapshotHandle = ptr("gh")
}

// infos are entries of a group's list, each volume=snapshot.
func infos(of ...string) []groupsnapshotv1.VolumeSnapshotInfo {
	var out []groupsnapshotv1.VolumeSnapshotInfo
	for _, o := range of {
		volume, snapshot, _ := strings.Cut(o, "=")
		out = append(out, groupsnapshotv1.VolumeSnapshotInfo{VolumeHandle: volume, SnapshotHandle: snapshot})
	}
	return out
}

// answering is a group whose driver answered with other members.
func answering(of ...string) Group {
	return wholeGroup(func(g *Group) { g.Content.Status.VolumeSnapshotInfoList = infos(of...) })
}

type groupCase struct {
	why  string
	in   Group
	want Progress
}

func runOf(t *testing.T, tests map[string]groupCase) {
	t.Helper()
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Of("me", []Disk{diskOf("root"), diskOf("data")}, tc.in)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

// TestOf: how far a group is, that everybody tells the truth of.
func TestOf(t *testing.T) {
	cuts := []v1alpha1.CutSnapshot{cutOf("root", "m1", "h-root"), cutOf("data", "m2", "h-data")}
	runOf(t, map[string]groupCase{
		"Missing":   {in: Group{}, want: Progress{Missing: []string{"root", "data"}}},
		"NoContent": {in: wholeGroup(func(g *Group) { g.Content = nil }), want: Progress{}},
		"OtherContent": {
			why: "a content of that name, of an earlier group",
			in:  wholeGroup(func(g *Group) { g.Content.Spec.VolumeGroupSnapshotRef.UID, g.Snapshot.Status = "earlier", nil }), want: Progress{},
		},
		"NotCut": {why: "bound is not cut", in: wholeGroup(func(g *Group) { g.Content.Status = nil }), want: Progress{}},
		"NoHandle": {
			why: "a driver's error comes with a status without a handle",
			in: wholeGroup(func(g *Group) {
				g.Content.Status = &groupsnapshotv1.VolumeGroupSnapshotContentStatus{ReadyToUse: ptr(false), Error: failed("quiesce is in progress", 5)}
			}),
			want: Progress{Trouble: "group: quiesce is in progress"},
		},
		"LatestTrouble": {
			in: wholeGroup(func(g *Group) {
				g.Content.Status = &groupsnapshotv1.VolumeGroupSnapshotContentStatus{Error: failed("new", 5)}
				g.Snapshot.Status.Error = failed("old", 4)
			}),
			want: Progress{Trouble: "group: new"},
		},
		"NoListYet": {
			why: "a group that is not ready may not know its members",
			in: wholeGroup(func(g *Group) {
				g.Content.Status.VolumeSnapshotInfoList, g.Content.Status.ReadyToUse, g.Members = nil, ptr(false), nil
			}), want: Progress{},
		},
		"CutBeforeMembers": {
			why: "the group's content is cut before any member exists",
			in:  wholeGroup(func(g *Group) { g.Members = nil }), want: Progress{Cut: true},
		},
		"CutNotReady": {
			why: "a driver that takes its time with what it has cut", in: wholeGroup(func(g *Group) { g.Content.Status.ReadyToUse = ptr(false) }),
			want: Progress{Cut: true, Snapshots: cuts},
		},
		"MemberNotReady": {
			why: "the group may be ready before its members are",
			in:  wholeGroup(func(g *Group) { g.Members[0].Snapshot.Status.ReadyToUse = ptr(false) }), want: Progress{Cut: true, Snapshots: cuts},
		},
		"Ready": {why: "members are found by owner and claim, whatever their order", in: wholeGroup(), want: Progress{Cut: true, Ready: true, Snapshots: cuts}},
		"ClaimNotNamed": {
			why:  "the snapshot controller did not find the volume when it made the member",
			in:   wholeGroup(func(g *Group) { g.Members[2].Snapshot.Spec.Source.PersistentVolumeClaimName = ptr("") }),
			want: Progress{Cut: true, Ready: true, Snapshots: cuts},
		},
		"BeforeTheEpoch": {
			why: "a driver without a time says 1970, and members of one cut may say different times",
			in: wholeGroup(func(g *Group) {
				g.Content.Status.CreationTime = ptr(metav1.Unix(0, 0))
				g.Content.Status.VolumeSnapshotInfoList[0].CreationTime = ptr(int64(0))
				g.Content.Status.VolumeSnapshotInfoList[1].CreationTime = ptr(int64(1e18))
			}),
			want: Progress{Cut: true, Ready: true, Snapshots: cuts},
		},
	})
}

// TestOfForeign: what was captured is not what was asked for.
func TestOfForeign(t *testing.T) {
	another := Progress{Foreign: `the snapshot of disk "root" is another one than the group's list says`}
	runOf(t, map[string]groupCase{
		"NotOurs": {
			in:   wholeGroup(func(g *Group) { g.Snapshot.OwnerReferences = nil }),
			want: Progress{Foreign: `VolumeGroupSnapshot "g" exists, and is not this backup's`},
		},
		"BoundToOtherContent": {
			in:   wholeGroup(func(g *Group) { g.Content.Spec.VolumeGroupSnapshotRef.UID = "another" }),
			want: Progress{Foreign: `the group snapshot is bound to content "c-g", which is another group's`},
		},
		"BeingDeleted": {
			why: "members go with it", in: wholeGroup(func(g *Group) { g.Snapshot.DeletionTimestamp = ptr(metav1.Unix(1, 0)) }),
			want: Progress{Foreign: "the group snapshot is being deleted"},
		},
		"DiskNotCaptured": {
			in:   wholeGroup(func(g *Group) { g.Content.Spec.Source.VolumeHandles = []string{"v-root"} }),
			want: Progress{Foreign: `disk "data" is not in the group that was cut`},
		},
		"ForeignCaptured": {
			why: "velero-io/velero#9344: another claim carried the label",
			in: wholeGroup(func(g *Group) {
				g.Content.Spec.Source.VolumeHandles = append(g.Content.Spec.Source.VolumeHandles, "v-x")
			}),
			want: Progress{Foreign: "the group that was cut has 3 volumes instead of 2: another claim carried its label"},
		},
		"OtherDriver": {
			why: "a volume's handle means something at its driver alone", in: wholeGroup(func(g *Group) { g.Content.Spec.Driver = "csi2" }),
			want: Progress{Foreign: `disk "root" is not in the group that was cut`},
		},
		"Swapped":        {why: "a member that is not of this group's cut", in: answering("v-root=h-other", "v-data=h-data"), want: another},
		"OfAnotherGroup": {in: wholeGroup(func(g *Group) { g.Members[2].Content.Status.VolumeGroupSnapshotHandle = ptr("gh2") }), want: another},
		"OfAnotherGroupByName": {
			in: wholeGroup(func(g *Group) { g.Members[2].Snapshot.Status.VolumeGroupSnapshotName = ptr("g2") }), want: another,
		},
		"MemberBoundElsewhere": {
			in:   wholeGroup(func(g *Group) { g.Members[2].Content.Spec.VolumeSnapshotRef.UID = "another" }),
			want: Progress{Foreign: `the snapshot of disk "root" is bound to content "c-m1", which is another snapshot's`},
		},
		"MemberOfOtherVolume": {
			in:   wholeGroup(func(g *Group) { g.Members[2].Content.Spec.Source.VolumeHandle = ptr("v-x") }),
			want: Progress{Foreign: `the snapshot of disk "root" is of another volume than the disk's`},
		},
		"MemberBeingDeleted": {
			in:   wholeGroup(func(g *Group) { g.Members[2].Snapshot.DeletionTimestamp = ptr(metav1.Unix(1, 0)) }),
			want: Progress{Foreign: `the snapshot of disk "root" is being deleted`},
		},
		"MemberOfOtherClaim": {
			in:   wholeGroup(func(g *Group) { g.Members = append(g.Members, pair("m3", "x-db", "h-x", inGroup)) }),
			want: Progress{Foreign: "the group has a member that is of none of the disks"},
		},
		"TwoMembersOfADisk": {
			in:   wholeGroup(func(g *Group) { g.Members = append(g.Members, pair("m3", "root-db", "h-root", inGroup)) }),
			want: Progress{Foreign: "the group has two members of one disk"},
		},
	})
}

// TestOfWrong: what the driver answered cannot be true.
func TestOfWrong(t *testing.T) {
	runOf(t, map[string]groupCase{
		"ReadyWithoutHandle": {
			in:   wholeGroup(func(g *Group) { g.Content.Status.VolumeGroupSnapshotHandle = ptr("") }),
			want: Progress{Wrong: `driver "csi" says that the group is ready, and names no group`},
		},
		"Half": {
			why: "a driver that cut one of two", in: answering("v-root=h-root"),
			want: Progress{Wrong: `driver "csi" cut a group and names no snapshot of disk "data" in it`},
		},
		"None": {in: answering(), want: Progress{Wrong: `driver "csi" cut a group and names no snapshot of disk "root" in it`}},
		"MemberWithoutHandle": {
			in:   answering("v-root=", "v-data=h-data"),
			want: Progress{Wrong: `driver "csi" cut a group and names no snapshot of disk "root" in it`},
		},
		"More": {
			why:  "the snapshot controller makes a VolumeSnapshot of another claim of it",
			in:   answering("v-root=h-root", "v-data=h-data", "v-x=h-x"),
			want: Progress{Wrong: `driver "csi" cut a group of 2 volumes, and names 3 snapshots in it`},
		},
		"OneForTwo": {
			in: wholeGroup(func(g *Group) {
				g.Content.Status.VolumeSnapshotInfoList = infos("v-root=h-root", "v-data=h-root")
				g.Members[0].Content.Status.SnapshotHandle = ptr("h-root")
			}),
			want: Progress{Wrong: `the driver names one snapshot, "h-root", for disk "root" and for disk "data"`},
		},
		"HandleOfAnother": {
			in:   wholeGroup(func(g *Group) { g.Members[0].Earlier = "theirs" }),
			want: Progress{Wrong: `driver "csi" names snapshot "h-data" for disk "data", which content "theirs" had before`},
		},
	})
}
