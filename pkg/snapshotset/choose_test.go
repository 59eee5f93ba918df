package snapshotset

import (
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

func class(name, driver string, policy snapshotv1.DeletionPolicy, isDefault string) snapshotv1.VolumeSnapshotClass {
	return snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{defaultClass: isDefault}},
		Driver:     driver, DeletionPolicy: policy,
	}
}

func groupClass(name, driver string) groupsnapshotv1.VolumeGroupSnapshotClass {
	return groupsnapshotv1.VolumeGroupSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
}

func TestChoose(t *testing.T) {
	const del, retain = snapshotv1.VolumeSnapshotContentDelete, snapshotv1.VolumeSnapshotContentRetain
	attested := NewKnowledge([]Driver{{Name: driver, GroupsCutTogether: true}})
	whole := Storage{
		Classes:  []snapshotv1.VolumeSnapshotClass{class("a", driver, del, ""), class("b", "other.example.com", del, "")},
		GroupAPI: true, GroupClasses: []groupsnapshotv1.VolumeGroupSnapshotClass{groupClass("g", driver)}, Knowledge: attested,
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
			running: true, disks: two, storage: with(func(s *Storage) { s.GroupAPI = false }),
			refused: v1alpha1.ReasonNoCommonInstant, says: "serves no group snapshots",
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
				Classes: []snapshotv1.VolumeSnapshotClass{class("l", "driver.longhorn.io", del, "")}, GroupAPI: true,
				GroupClasses: []groupsnapshotv1.VolumeGroupSnapshotClass{groupClass("g", "driver.longhorn.io")},
			},
			refused: v1alpha1.ReasonNoCommonInstant, says: "one after another",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, refusal := Choose(inventory.Inventory{Running: tc.running, Volumes: tc.disks}, tc.storage)
			if tc.refused != "" {
				if refusal == nil || refusal.Reason != tc.refused || !strings.Contains(refusal.Message, tc.says) {
					t.Errorf("%s: refusal %+v, want %s with %q", tc.why, refusal, tc.refused, tc.says)
				}
				return
			}
			if refusal != nil {
				t.Fatalf("%s: refused: %+v", tc.why, refusal)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
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
		if d.Source == "" {
			t.Errorf("driver %q is known from nowhere", d.Name)
		}
	}
}
