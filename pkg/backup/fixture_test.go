package backup

import (
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/inventory"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/pkg/snapshotset"
	"github.com/vmstate/vmstate/test/build"
)

const stateClaimOfDB = "persistent-state-for-db-abcde"

var (
	noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	one  = strings.Repeat("1", 64)
	two  = strings.Repeat("2", 64)
	five = strings.Repeat("5", 64)
)

func micro(after time.Duration) *metav1.MicroTime {
	t := metav1.NewMicroTime(noon.Add(after))
	return &t
}

// inv is a running VM with one disk and firmware state; more disks by name.
func inv(disks ...string) inventory.Inventory {
	out := inventory.Inventory{
		Running: true, Placement: &job.Placement{NodeName: build.Node},
		VM: v1alpha1.CapturedVM{
			UID: "vm-db", InstanceUID: "vmi-db", NodeName: build.Node, LauncherUID: "pod-db", FirmwareUUID: build.FirmwareUUID,
			StateClaimName: stateClaimOfDB, StatePVCUID: "claim-state", PersistentTPM: true, PersistentEFI: true,
		},
	}
	for _, name := range append([]string{"root"}, disks...) {
		out.Volumes = append(out.Volumes, volume(name, name+"-db", v1alpha1.RoleDisk))
	}
	out.Volumes = append(out.Volumes, volume(stateClaimOfDB, stateClaimOfDB, v1alpha1.RoleFirmwareState))
	return out
}

func volume(name, claim string, role v1alpha1.VolumeRole) inventory.Volume {
	return inventory.Volume{BackupVolume: v1alpha1.BackupVolume{
		Outcome: v1alpha1.VolumeIncluded,
		VolumeFacts: v1alpha1.VolumeFacts{
			Name: name, Role: role, ClaimName: claim, ClaimUID: build.Claim(claim).UID, StorageClassName: build.Class,
			Driver: build.Driver, VolumeMode: "Filesystem", AccessModes: []string{"ReadWriteOnce"}, SizeBytes: 1 << 30,
		},
	}}
}

func altered(i inventory.Inventory, change func(*inventory.Inventory)) inventory.Inventory {
	change(&i)
	return i
}

func storage() snapshotset.Storage {
	return snapshotset.Storage{Classes: []snapshotv1.VolumeSnapshotClass{{
		ObjectMeta: metav1.ObjectMeta{Name: "snaps"}, Driver: build.Driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}}}
}

// at is what is seen of a backup of db at noon.
func at(change ...func(*Observed)) Observed {
	b := build.Backup("nightly", "db")
	b.UID = "u1"
	b.Finalizers = []string{v1alpha1.FinalizerRelease}
	b.CreationTimestamp = metav1.NewTime(noon)
	in := Observed{
		Now: noon, Process: "me", Backup: b, Store: build.Store("main"), Storage: storage(),
		Machine: &Machine{Inventory: inv(), Documents: []byte("{}")},
	}
	for _, c := range change {
		c(&in)
	}
	return in
}

// machine replaces the virtual machine.
func machine(i inventory.Inventory) func(*Observed) {
	return func(in *Observed) { in.Machine.Inventory = i }
}

// attempt records the machine and an attempt that began at noon.
func attempt(change ...func(*v1alpha1.MomentAttempt)) func(*Observed) {
	return func(in *Observed) {
		vm := in.Machine.Inventory.VM
		s := &in.Backup.Status
		s.VM, s.Volumes = &vm, in.Machine.Inventory.Recorded()
		a := v1alpha1.MomentAttempt{Number: int32(len(s.Attempts) + 1), StartedAt: *micro(0)}
		for _, c := range change {
			c(&a)
		}
		s.Attempts = append(s.Attempts, a)
	}
}

func cutting(a *v1alpha1.MomentAttempt) { a.FirstReading, a.CutStarted = one, micro(0) }

func ended1(a *v1alpha1.MomentAttempt) { cutting(a); a.CutEnded = micro(time.Second) }

func bound1(a *v1alpha1.MomentAttempt) { ended1(a); a.Verdict = v1alpha1.AttemptBound }

// frozen records a freeze at noon that was confirmed a tenth of a second later.
func frozen(a *v1alpha1.MomentAttempt) {
	asked(a)
	a.Freeze.FrozenAt = micro(100 * time.Millisecond)
}

func asked(a *v1alpha1.MomentAttempt) {
	a.FirstReading = one
	a.Freeze = &v1alpha1.FreezeRecord{RequestedAt: *micro(0), Deadline: *micro(30 * time.Second), Requester: "me"}
}

// reads is a witness that read first, and second where a digest is given.
func reads(second string, differs ...string) func(*Observed) {
	return func(in *Observed) {
		w := &v1alpha1.WitnessResult{
			StateDigest: five, SecretNames: []string{WitnessName(in.Backup, Last(in.Backup).Number) + "-0"},
			First: &v1alpha1.WitnessReading{Digest: one, StartedAt: *micro(-time.Second), EndedAt: *micro(-100 * time.Millisecond)},
		}
		if second != "" {
			w.Second = &v1alpha1.WitnessReading{Digest: second, StartedAt: *micro(1200 * time.Millisecond), EndedAt: *micro(1300 * time.Millisecond)}
			w.Changed = differs
		}
		in.Documents = true
		in.Witness = Task{Exists: true, Created: noon, Started: true, Report: &v1alpha1.VMStateReportStatus{Witness: w}}
	}
}

func clock(after time.Duration) func(*Observed) {
	return func(in *Observed) { in.Now = noon.Add(after) }
}

// momentOf records a bound moment.
func momentOf(in *Observed) {
	attempt(bound1)(in)
	s := &in.Backup.Status
	s.Moment = &v1alpha1.Moment{
		Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceNoAgent, QuiesceMessage: "no guest agent was connected",
		CutStarted: *micro(0), CutEnded: *micro(time.Second), StateDigest: five, WindowMilliseconds: 1300, Attempts: 1,
	}
	s.Summary = v1alpha1.BackupSummary{Moment: "SingleDisk+Witness", Size: "2.0 GiB"}
}

func cutOf(in *Observed) {
	in.Cut = snapshotset.Progress{Cut: true, Ready: true, Snapshots: []v1alpha1.CutSnapshot{{
		VolumeName: "root", SnapshotName: "vmstate-u1-snap-1-0", ContentName: "c", Handle: "h", RestoreSizeBytes: 2 << 30,
	}}}
}

func quiesce(p v1alpha1.QuiescePolicy) func(*Observed) {
	return func(in *Observed) { in.Backup.Spec.Quiesce = p }
}
