package snapshotset

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/inventory"
)

const driver = "csi.example.com"

func disk(name, driver string) inventory.Volume {
	return inventory.Volume{BackupVolume: v1alpha1.BackupVolume{
		VolumeFacts: v1alpha1.VolumeFacts{Name: name, Role: v1alpha1.RoleDisk, ClaimName: name + "-db", Driver: driver},
		Outcome:     v1alpha1.VolumeIncluded,
	}}
}

func stateOn(driver string) inventory.Volume {
	v := disk("state", driver)
	v.Role = v1alpha1.RoleFirmwareState
	return v
}

func mountedBy(v inventory.Volume, modes ...string) inventory.Volume {
	v.VolumeMode, v.AccessModes = "Filesystem", modes
	return v
}

// labelled puts the claims into the consistency group g1.
func labelled(disks []inventory.Volume, label string) []inventory.Volume {
	out := slices.Clone(disks)
	for i := range out {
		out[i].ClaimLabels = map[string]string{label: "g1"}
	}
	return out
}

func class(name, driver string, policy snapshotv1.DeletionPolicy, isDefault string) snapshotv1.VolumeSnapshotClass {
	return snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{defaultClass: isDefault}},
		Driver:     driver, DeletionPolicy: policy,
	}
}

func groupClassOf(name, driver string) groupsnapshotv1.VolumeGroupSnapshotClass {
	return groupsnapshotv1.VolumeGroupSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
}

func TestChoose(t *testing.T) {
	const del, retain = snapshotv1.VolumeSnapshotContentDelete, snapshotv1.VolumeSnapshotContentRetain
	attested := NewKnowledge([]Driver{{Name: driver, GroupsCutTogether: true}})
	whole := Storage{
		Classes:      []snapshotv1.VolumeSnapshotClass{class("a", driver, del, ""), class("b", "other.example.com", del, "")},
		GroupVersion: "v1", GroupClasses: []groupsnapshotv1.VolumeGroupSnapshotClass{groupClassOf("g", driver)}, Knowledge: attested,
	}
	with := func(change func(*Storage)) Storage {
		s := whole
		change(&s)
		return s
	}
	one := []inventory.Volume{disk("root", driver)}
	two := append(one, disk("data", driver))
	tests := map[string]struct {
		why     string
		running bool
		disks   []inventory.Volume
		storage Storage
		want    Choice
		refused string
		says    string
	}{
		"NoCSI": {
			why: "storage without snapshots is refused by name", running: true, disks: []inventory.Volume{disk("root", "")}, storage: whole,
			refused: v1alpha1.ReasonNoSnapshotClass, says: `disk "root" (claim "root-db"`,
		},
		"NotInstant": {
			why: "its snapshots are tar archives of the live folder", running: true, disks: []inventory.Volume{disk("root", "nfs.csi.k8s.io")},
			storage: Storage{Classes: []snapshotv1.VolumeSnapshotClass{class("n", "nfs.csi.k8s.io", del, "")}},
			refused: v1alpha1.ReasonNoCommonInstant, says: "are no instant",
		},
		"NotInstantAttested": {
			why: "an administrator knows better", running: true, disks: []inventory.Volume{disk("root", "nfs.csi.k8s.io")},
			storage: Storage{
				Classes: []snapshotv1.VolumeSnapshotClass{class("n", "nfs.csi.k8s.io", del, "")}, Knowledge: NewKnowledge([]Driver{{Name: "nfs.csi.k8s.io"}}),
			},
			want: Choice{Binding: v1alpha1.DisksSingle, Snapshots: []Snapshot{{Volume: "root", Claim: "root-db", Class: "n"}}},
		},
		"NotInstantOffline": {
			why: "nothing writes meanwhile", disks: []inventory.Volume{disk("root", "nfs.csi.k8s.io")},
			storage: Storage{Classes: []snapshotv1.VolumeSnapshotClass{class("n", "nfs.csi.k8s.io", del, "")}},
			want:    Choice{Binding: v1alpha1.DisksOffline, Snapshots: []Snapshot{{Volume: "root", Claim: "root-db", Class: "n"}}},
		},
		"StateMountedPodByPod": {
			why: "the witness might read an old copy", running: true, disks: append(one, stateOn("nfs.csi.k8s.io")), storage: whole,
			refused: v1alpha1.ReasonStateUnsupported, says: "a mount of its own",
		},
		"StateOnUnknownShared": {
			why: "what several nodes mount is a network filesystem, and nobody says how it caches", running: true,
			disks: append(one, mountedBy(stateOn("share.example.com"), "ReadWriteMany")), storage: whole,
			refused: v1alpha1.ReasonStateUnsupported, says: `drivers: [{name: "share.example.com", source: who says so}]`,
		},
		"StateOnUnknownSharedAttested": {
			why: "an administrator vouches for one mount a node", running: true,
			disks:   append(one, mountedBy(stateOn("share.example.com"), "ReadWriteMany")),
			storage: with(func(s *Storage) { s.Knowledge = NewKnowledge([]Driver{{Name: "share.example.com", Source: "us"}}) }),
			want:    Choice{Binding: v1alpha1.DisksSingle, Snapshots: []Snapshot{{Volume: "root", Claim: "root-db", Class: "a"}}},
		},
		"StateOnUnknownFUSE": {
			why: "a FUSE client may be one a pod, whatever the claim asks for", running: true,
			disks: append(one, mountedBy(stateOn("fuse.example.com"), "ReadWriteOnce")), storage: whole,
			refused: v1alpha1.ReasonStateUnsupported, says: "whose name is that of a network filesystem",
		},
		"StateOnNoDriver": {
			why: "an NFS volume that was made by hand has no driver to name", running: true,
			disks: append(one, mountedBy(stateOn(""), "ReadWriteMany")), storage: whole,
			refused: v1alpha1.ReasonStateUnsupported, says: "a volume without a CSI driver",
		},
		"StateOnUnknownSharedOffline": {
			why: "at rest there is one mount alone", disks: append(one, mountedBy(stateOn("share.example.com"), "ReadWriteMany")), storage: whole,
			want: Choice{Binding: v1alpha1.DisksOffline, Snapshots: []Snapshot{{Volume: "root", Claim: "root-db", Class: "a"}}},
		},
		"StateOnUnknownDevice": {
			why: "a filesystem on a device is mounted once a node", running: true,
			disks: append(one, mountedBy(stateOn("device.example.com"), "ReadWriteOnce")), storage: whole,
			want: Choice{Binding: v1alpha1.DisksSingle, Snapshots: []Snapshot{{Volume: "root", Claim: "root-db", Class: "a"}}},
		},
		"NoClass": {
			running: true, disks: one, storage: with(func(s *Storage) { s.Classes = s.Classes[1:] }),
			refused: v1alpha1.ReasonNoSnapshotClass, says: `no VolumeSnapshotClass for driver "csi.example.com"`,
		},
		"OnlyRetaining": {
			why: "what it makes would never go", running: true, disks: one,
			storage: with(func(s *Storage) { s.Classes = []snapshotv1.VolumeSnapshotClass{class("a", driver, retain, "")} }),
			refused: v1alpha1.ReasonNoSnapshotClass, says: "deletionPolicy Delete",
		},
		"OneDisk": {
			running: true, disks: one, storage: Storage{Classes: whole.Classes},
			want: Choice{Binding: v1alpha1.DisksSingle, Snapshots: []Snapshot{{Volume: "root", Claim: "root-db", Class: "a"}}},
		},
		"DefaultClassFirst": {
			running: true, disks: one,
			storage: with(func(s *Storage) {
				s.Classes = []snapshotv1.VolumeSnapshotClass{class("a", driver, del, ""), class("z", driver, del, "true")}
			}),
			want: Choice{Binding: v1alpha1.DisksSingle, Snapshots: []Snapshot{{Volume: "root", Claim: "root-db", Class: "z"}}},
		},
		"Offline": {
			why: "at rest, drivers may differ", disks: append(one, disk("data", "other.example.com")), storage: Storage{Classes: whole.Classes},
			want: Choice{Binding: v1alpha1.DisksOffline, Snapshots: []Snapshot{
				{Volume: "root", Claim: "root-db", Class: "a"}, {Volume: "data", Claim: "data-db", Class: "b"},
			}},
		},
		"Group": {
			running: true, disks: two, storage: whole, want: Choice{Binding: v1alpha1.DisksGroup, GroupClass: "g"},
		},
		"SeveralDrivers": {
			running: true, disks: append(one, disk("data", "other.example.com")), storage: whole,
			refused: v1alpha1.ReasonNoCommonInstant, says: "no snapshot spans drivers",
		},
		"NoGroupAPI": {
			running: true, disks: two, storage: with(func(s *Storage) { s.GroupVersion = "" }),
			refused: v1alpha1.ReasonNoCommonInstant, says: "serves no group snapshots",
		},
		"GroupAPITooOld": {
			why: "v1beta1 has other fields", running: true, disks: two,
			storage: with(func(s *Storage) { s.GroupVersion, s.GroupTooOld = "", "v1beta1" }),
			refused: v1alpha1.ReasonNoCommonInstant, says: "serves group snapshots as v1beta1 alone",
		},
		"NoGroupsEver": {
			why: "a class does not make a driver able to", running: true, disks: []inventory.Volume{disk("root", "ebs.csi.aws.com"), disk("data", "ebs.csi.aws.com")},
			storage: Storage{
				Classes:      []snapshotv1.VolumeSnapshotClass{class("e", "ebs.csi.aws.com", del, "")},
				GroupVersion: "v1", GroupClasses: []groupsnapshotv1.VolumeGroupSnapshotClass{groupClassOf("g", "ebs.csi.aws.com")},
			},
			refused: v1alpha1.ReasonNoCommonInstant, says: "cannot cut groups (https://",
		},
		"ConsistencyGroup": {
			why: "a member could not be read alone", running: true, disks: labelled(two, "example.com/together"),
			storage: with(func(s *Storage) {
				s.Knowledge = NewKnowledge([]Driver{{Name: driver, GroupsCutTogether: true, RestoredTogetherLabel: "example.com/together", Source: "us"}})
			}),
			refused: v1alpha1.ReasonNoCommonInstant, says: `claim "root-db" is a member of the consistency group "g1"`,
		},
		"NoConsistencyGroup": {
			why: "the label alone counts", running: true, disks: labelled(two, "other"),
			storage: with(func(s *Storage) {
				s.Knowledge = NewKnowledge([]Driver{{Name: driver, GroupsCutTogether: true, RestoredTogetherLabel: "example.com/together", Source: "us"}})
			}),
			want: Choice{Binding: v1alpha1.DisksGroup, GroupClass: "g"},
		},
		"NoSnapshotAPI": {
			why: "the CRDs are missing, not a class", running: true, disks: one, storage: Storage{},
			refused: v1alpha1.ReasonNoSnapshotClass, says: "this cluster serves no snapshots",
		},
		"NoSnapshotsEver": {
			why: "no class would help", running: true, disks: []inventory.Volume{disk("root", "kubevirt.io.hostpath-provisioner")}, storage: whole,
			refused: v1alpha1.ReasonNoSnapshotClass, says: "makes no snapshots",
		},
		"NoGroupClass": {
			running: true, disks: two, storage: with(func(s *Storage) { s.GroupClasses = nil }),
			refused: v1alpha1.ReasonNoCommonInstant, says: "no VolumeGroupSnapshotClass",
		},
		"UnknownDriver": {
			why: "serving the API proves nothing", running: true, disks: two, storage: with(func(s *Storage) { s.Knowledge = Knowledge{} }),
			refused: v1alpha1.ReasonNoCommonInstant, says: "attest it",
		},
		"OneAfterAnother": {
			why: "longhorn/longhorn#13349", running: true,
			disks: []inventory.Volume{disk("root", "driver.longhorn.io"), disk("data", "driver.longhorn.io")},
			storage: Storage{
				Classes: []snapshotv1.VolumeSnapshotClass{class("l", "driver.longhorn.io", del, "")}, GroupVersion: "v1",
				GroupClasses: []groupsnapshotv1.VolumeGroupSnapshotClass{groupClassOf("g", "driver.longhorn.io")},
			},
			refused: v1alpha1.ReasonNoCommonInstant, says: "one after another",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, found := Choose(inventory.Inventory{Running: tc.running, Volumes: tc.disks}, tc.storage, false)
			if tc.refused != "" {
				if len(found) != 1 || found[0].Reason != tc.refused || !strings.Contains(found[0].String(), tc.says) || found[0].Next == "" || found[0].Object == "" || found[0].Volume == "" {
					t.Errorf("%s: found %+v, want one %s with %q, its volume, object and next step", tc.why, found, tc.refused, tc.says)
				}
				return
			}
			if len(found) > 0 {
				t.Fatalf("%s: refused: %+v", tc.why, found)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

// TestAllAtOnce: what is repaired one by one is found out one by one.
func TestAllAtOnce(t *testing.T) {
	state := mountedBy(stateOn("share.example.com"), "ReadWriteMany")
	volumes := []inventory.Volume{disk("root", "other.example.com"), disk("data", "nfs.csi.k8s.io"), disk("logs", driver), state}
	_, found := Choose(inventory.Inventory{Running: true, Volumes: volumes}, Storage{
		Served: true, Classes: []snapshotv1.VolumeSnapshotClass{class("n", "nfs.csi.k8s.io", snapshotv1.VolumeSnapshotContentDelete, "")},
	}, false)
	var got [][2]string
	for _, r := range found {
		got = append(got, [2]string{r.Volume, r.Reason})
	}
	want := [][2]string{
		{"state", v1alpha1.ReasonStateUnsupported}, {"root", v1alpha1.ReasonNoSnapshotClass}, {"logs", v1alpha1.ReasonNoSnapshotClass},
		{"data", v1alpha1.ReasonNoCommonInstant}, {"root, data, logs", v1alpha1.ReasonNoCommonInstant},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSnapless: what cannot be snapshotted at all is said once, disk by disk.
func TestSnapless(t *testing.T) {
	_, found := Choose(inventory.Inventory{Running: true, Volumes: []inventory.Volume{disk("root", ""), disk("data", "smb.csi.k8s.io")}}, Storage{Served: true}, false)
	if len(found) != 2 || found[0].Volume != "root" || found[1].Volume != "data" {
		t.Errorf("found %+v, want one obstacle a disk", found)
	}
}

// TestByClass: what an attempt has recorded is not decided again from what is known by now.
func TestByClass(t *testing.T) {
	s := Storage{
		Classes:      []snapshotv1.VolumeSnapshotClass{class("a", driver, snapshotv1.VolumeSnapshotContentDelete, "")},
		GroupVersion: "v1", GroupClasses: []groupsnapshotv1.VolumeGroupSnapshotClass{groupClassOf("g", driver)},
	}
	inv := inventory.Inventory{Running: true, Volumes: []inventory.Volume{disk("root", driver), disk("data", driver)}}
	got, found := ByClass(inv, s, v1alpha1.DisksGroup)
	if diff := cmp.Diff(Choice{Binding: v1alpha1.DisksGroup, GroupClass: "g"}, got); diff != "" || len(found) > 0 {
		t.Errorf("group: %v\n%s", found, diff)
	}
	s.GroupClasses = nil
	if _, found := ByClass(inv, s, v1alpha1.DisksGroup); len(found) != 1 || found[0].Reason != v1alpha1.ReasonNoCommonInstant {
		t.Errorf("a group without its class: %+v", found)
	}
	got, found = ByClass(inv, s, v1alpha1.DisksOffline)
	want := Choice{Binding: v1alpha1.DisksOffline, Snapshots: []Snapshot{{Volume: "root", Claim: "root-db", Class: "a"}, {Volume: "data", Claim: "data-db", Class: "a"}}}
	if diff := cmp.Diff(want, got); diff != "" || len(found) > 0 {
		t.Errorf("one by one: %v\n%s", found, diff)
	}
	s.Classes = nil
	if _, found := ByClass(inv, s, v1alpha1.DisksOffline); len(found) != 2 {
		t.Errorf("one by one without a class: %+v", found)
	}
}

func TestKnowledge(t *testing.T) {
	k := NewKnowledge([]Driver{{Name: "driver.longhorn.io", GroupsCutTogether: true}})
	tests := map[string]struct{ together, found bool }{
		"rbd.csi.ceph.com":                   {true, true},
		"openshift-storage.rbd.csi.ceph.com": {true, true},
		"evilrbd.csi.ceph.com":               {false, false},
		"hostpath.csi.k8s.io":                {false, true},
		"driver.longhorn.io":                 {true, true}, // the administrator's word wins
		"csi.example.com":                    {false, false},
	}
	for name, want := range tests {
		d, found := k.Of(name)
		if found != want.found || d.GroupsCutTogether != want.together {
			t.Errorf("Of(%q) = %+v, %t", name, d, found)
		}
	}
	for _, d := range known {
		if d.Source == "" || !strings.Contains(d.Source, "http") && !strings.HasPrefix(d.Name, ".") {
			t.Errorf("driver %q is known from nowhere", d.Name)
		}
	}
}

// Where nothing else cuts them at one instant, disks are cut one after another of a guest that may be paused.
func TestChooseFence(t *testing.T) {
	const del = snapshotv1.VolumeSnapshotContentDelete
	storage := Storage{Served: true, Classes: []snapshotv1.VolumeSnapshotClass{
		class("a", driver, del, ""), class("b", "other.example.com", del, ""), class("n", "nfs.csi.k8s.io", del, ""),
	}}
	mixed := []inventory.Volume{disk("root", driver), disk("data", "other.example.com")}
	both := Choice{
		Binding: v1alpha1.DisksFence, Snapshots: []Snapshot{{Volume: "root", Claim: "root-db", Class: "a"}, {Volume: "data", Claim: "data-db", Class: "b"}},
		Why: `disk "root" is on driver csi.example.com and disk "data" on driver other.example.com, and no snapshot spans drivers`,
	}
	running := func(disks ...inventory.Volume) inventory.Inventory {
		return inventory.Inventory{Running: true, Volumes: disks}
	}
	probed, halted, failing := running(mixed...), running(mixed...), running(mixed...)
	probed.Unpausable, halted.Paused, halted.PauseReason, halted.Unpausable = "it is probed", true, PausedByUser, "it is probed"
	failing.Paused, failing.PauseReason = true, "PausedIOError"
	tests := map[string]struct {
		why     string
		inv     inventory.Inventory
		may     bool
		want    Choice
		refused string
	}{
		"Mixed":        {why: "any mix of drivers", inv: running(mixed...), may: true, want: both},
		"NotAllowed":   {why: "a person must allow it", inv: running(mixed...), refused: v1alpha1.ReasonNoCommonInstant},
		"Probed":       {why: "KubeVirt must allow it", inv: probed, may: true, refused: v1alpha1.ReasonNoCommonInstant},
		"Paused":       {why: "its owner has done it", inv: halted, want: both},
		"PausedByDisk": {why: "its last writes are under way", inv: failing, may: true, refused: v1alpha1.ReasonNoCommonInstant},
		"OneDisk": {why: "needs no pause", inv: running(mixed[0]), may: true,
			want: Choice{Binding: v1alpha1.DisksSingle, Snapshots: both.Snapshots[:1]}},
		"Stopped": {why: "nor does a VM at rest", inv: inventory.Inventory{Volumes: mixed}, may: true,
			want: Choice{Binding: v1alpha1.DisksOffline, Snapshots: both.Snapshots}},
		"NotInstant": {why: "a copy that takes its time is not waited for under a pause", may: true,
			inv: running(mixed[0], disk("share", "nfs.csi.k8s.io")), refused: v1alpha1.ReasonNoCommonInstant},
		"NoClass": {why: "no pause makes a snapshot", inv: running(mixed[0], disk("local", "local.example.com")), may: true,
			refused: v1alpha1.ReasonNoSnapshotClass},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, found := Choose(tc.inv, storage, tc.may)
			if tc.refused != "" && (len(found) != 1 || found[0].Reason != tc.refused) || tc.refused == "" && len(found) > 0 {
				t.Fatalf("%s: refused with %v, want %q", tc.why, found, tc.refused)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nChoose() mismatch (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
