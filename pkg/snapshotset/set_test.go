package snapshotset

import (
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

// pair is a snapshot of a claim, bound both ways, cut and ready.
func pair(name, claim, handle string, change ...func(*Pair)) Pair {
	p := Pair{
		Snapshot: &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), OwnerReferences: mine},
			Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}},
			Status:     &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: ptr("c-" + name), ReadyToUse: ptr(true)},
		},
		Content: &snapshotv1.VolumeSnapshotContent{
			ObjectMeta: metav1.ObjectMeta{Name: "c-" + name},
			Status:     &snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: &handle, ReadyToUse: ptr(true), RestoreSize: ptr(int64(7))},
		},
	}
	p.Content.Spec.VolumeSnapshotRef.UID = p.Snapshot.UID
	for _, c := range change {
		c(&p)
	}
	return p
}

func cutOf(volume, name, handle string) v1alpha1.CutSnapshot {
	return v1alpha1.CutSnapshot{VolumeName: volume, SnapshotName: name, ContentName: "c-" + name, Handle: handle, RestoreSizeBytes: 7}
}

func TestSingle(t *testing.T) {
	disks := []Disk{{Volume: "root", Claim: "root-db"}}
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
			why: "bound is not cut", in: pair("s", "root-db", "h", func(p *Pair) { p.Content.Status.SnapshotHandle = nil }), want: Progress{},
		},
		"OtherContent": {
			why: "a content of that name, of an earlier snapshot", in: pair("s", "root-db", "h", func(p *Pair) { p.Content.Spec.VolumeSnapshotRef.UID = "earlier" }),
			want: Progress{},
		},
		"CutNotReady": {
			why: "the handle is the cut, seconds before the snapshot says ready",
			in:  pair("s", "root-db", "h", func(p *Pair) { p.Snapshot.Status = nil }), want: Progress{Cut: true, Snapshots: whole},
		},
		"NotReadyOnStorage": {
			in: pair("s", "root-db", "h", func(p *Pair) { p.Content.Status.ReadyToUse = ptr(false) }), want: Progress{Cut: true, Snapshots: whole},
		},
		"Ready": {in: pair("s", "root-db", "h"), want: Progress{Cut: true, Ready: true, Snapshots: whole}},
		"Trouble": {
			why: "the latest error of the driver is the diagnosis",
			in: pair("s", "root-db", "h", func(p *Pair) {
				p.Content.Status = &snapshotv1.VolumeSnapshotContentStatus{Error: &snapshotv1.VolumeSnapshotError{Message: ptr("busy")}}
			}),
			want: Progress{Trouble: `disk "root": busy`},
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

// whole is a group of two disks that is cut and ready.
func wholeGroup(change ...func(*Group)) Group {
	g := Group{
		Snapshot: &groupsnapshotv1.VolumeGroupSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "g", UID: "uid-g", OwnerReferences: mine}},
		Content: &groupsnapshotv1.VolumeGroupSnapshotContent{
			Spec: groupsnapshotv1.VolumeGroupSnapshotContentSpec{
				Source: groupsnapshotv1.VolumeGroupSnapshotContentSource{VolumeHandles: []string{"v-data", "v-root"}},
			},
			Status: &groupsnapshotv1.VolumeGroupSnapshotContentStatus{
				VolumeGroupSnapshotHandle: ptr("gh"), ReadyToUse: ptr(true),
				VolumeSnapshotInfoList: []groupsnapshotv1.VolumeSnapshotInfo{
					{VolumeHandle: "v-root", SnapshotHandle: "h-root"}, {VolumeHandle: "v-data", SnapshotHandle: "h-data"},
				},
			},
		},
	}
	g.Content.Spec.VolumeGroupSnapshotRef.UID = g.Snapshot.UID
	owned := func(p *Pair) { p.Snapshot.OwnerReferences = []metav1.OwnerReference{{UID: "uid-g"}} }
	g.Members = []Pair{pair("m2", "data-db", "h-data", owned), pair("stranger", "root-db", "x"), pair("m1", "root-db", "h-root", owned)}
	for _, c := range change {
		c(&g)
	}
	return g
}

func TestOf(t *testing.T) {
	disks := []Disk{{Volume: "root", Claim: "root-db", Handle: "v-root"}, {Volume: "data", Claim: "data-db", Handle: "v-data"}}
	cuts := []v1alpha1.CutSnapshot{cutOf("root", "m1", "h-root"), cutOf("data", "m2", "h-data")}
	tests := map[string]struct {
		why  string
		in   Group
		want Progress
	}{
		"Missing": {in: Group{}, want: Progress{Missing: []string{"root", "data"}}},
		"NotOurs": {
			in:   wholeGroup(func(g *Group) { g.Snapshot.OwnerReferences = nil }),
			want: Progress{Foreign: `VolumeGroupSnapshot "g" exists, and is not this backup's`},
		},
		"NoContent":    {in: wholeGroup(func(g *Group) { g.Content = nil }), want: Progress{}},
		"OtherContent": {in: wholeGroup(func(g *Group) { g.Content.Spec.VolumeGroupSnapshotRef.UID = "earlier" }), want: Progress{}},
		"NoHandle": {
			in: wholeGroup(func(g *Group) { g.Content.Status.VolumeGroupSnapshotHandle = nil }), want: Progress{},
		},
		"CutBeforeMembers": {
			why: "the group's content is cut before any member exists",
			in:  wholeGroup(func(g *Group) { g.Members = nil }), want: Progress{Cut: true},
		},
		"Ready": {why: "members are found by owner and claim, whatever their order", in: wholeGroup(), want: Progress{Cut: true, Ready: true, Snapshots: cuts}},
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
		"Swapped": {
			why: "a member that is not of this group's cut",
			in:  wholeGroup(func(g *Group) { g.Content.Status.VolumeSnapshotInfoList[0].SnapshotHandle = "h-other" }),
			want: Progress{Cut: true, Ready: true, Snapshots: cuts,
				Foreign: `the snapshot of disk "root" has another handle than the group's list says`},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Of("me", disks, tc.in)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
