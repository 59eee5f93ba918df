package inventory

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/test/build"
)

// seen is a halted VM with its claims; change breaks it.
func seen(vm *kubevirtv1.VirtualMachine, claims ...*corev1.PersistentVolumeClaim) Seen {
	in := Seen{VM: vm, Name: vm.Name, Expanded: vm, Claims: map[string]*corev1.PersistentVolumeClaim{}, Volumes: map[string]*corev1.PersistentVolume{}}
	for _, c := range claims {
		in.Claims[c.Name] = c
		pv := build.PV(c)
		in.Volumes[pv.Name] = pv
	}
	return in
}

// running adds an instance and its launcher.
func runs(in Seen, change ...func(*Seen)) Seen {
	always := kubevirtv1.RunStrategyAlways
	in.VM.Spec.RunStrategy = &always
	in.VMI = build.VMI(in.VM)
	pod := build.Launcher(in.VM)
	for name := range in.Claims {
		if strings.HasPrefix(name, v1alpha1.LabelPersistentState) {
			pod.Spec.Volumes = []corev1.Volume{{Name: launcherStateVolume, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
			}}}
		}
	}
	in.Launchers = []corev1.Pod{*pod}
	for _, c := range change {
		c(&in)
	}
	return in
}

func with(in Seen, change ...func(*Seen)) Seen {
	for _, c := range change {
		c(&in)
	}
	return in
}

func sealed(options ...build.Option) *kubevirtv1.VirtualMachine {
	return build.VM("db", append([]build.Option{build.Disk("root"), build.TPM(), build.EFI()}, options...)...)
}

func halted() Seen { return seen(sealed(), build.Claim("root-db"), build.StateClaim("db", "abcde")) }

// TestRefusals: one case a row of doc.go. The guest of a VM that is refused is not touched.
func TestRefusals(t *testing.T) {
	now := metav1.NewTime(time.Unix(1, 0))
	yes := true
	tests := map[string]struct {
		why  string
		in   Seen
		want Refusal // Message is a part of the message
	}{
		"Absent": {
			why: "nothing to back up", in: Seen{Name: "db"},
			want: Refusal{Reason: v1alpha1.ReasonVMNotFound, Message: `no VirtualMachine "db"`},
		},
		"BeingDeleted": {
			why: "its claims go with it", in: with(halted(), func(s *Seen) { s.VM.DeletionTimestamp = &now }),
			want: Refusal{Reason: v1alpha1.ReasonVMDeleting, Message: `"db" is being deleted`},
		},
		"NoPreference": {
			why: "what the VM asks for is not known: not an endless error", in: with(halted(), func(s *Seen) { s.ExpandFailure = "not found" }),
			want: Refusal{Reason: v1alpha1.ReasonSpecIncomplete, Message: "not found"},
		},
		"MigrationObject": {
			why: "during a migration there are two state claims",
			in: runs(halted(), func(s *Seen) {
				s.Migrations = []kubevirtv1.VirtualMachineInstanceMigration{{ObjectMeta: metav1.ObjectMeta{Name: "m"}}}
			}),
			want: Refusal{Reason: v1alpha1.ReasonMigrating, Message: `migration "m"`, Passing: true},
		},
		"MigrationState": {
			why: "the object may be gone while the instance still moves",
			in: runs(halted(), func(s *Seen) {
				s.VMI.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{StartTimestamp: &now}
			}),
			want: Refusal{Reason: v1alpha1.ReasonMigrating, Message: "a migration of VM", Passing: true},
		},
		"Starting": {
			why: "no agent, no launcher, no state yet", in: runs(halted(), func(s *Seen) { s.VMI.Status.Phase = kubevirtv1.Scheduling }),
			want: Refusal{Reason: v1alpha1.ReasonVMUnsettled, Message: "is starting", Passing: true},
		},
		"Stopping": {
			why: "neither at rest nor running", in: runs(halted(), func(s *Seen) { s.VMI.DeletionTimestamp = &now }),
			want: Refusal{Reason: v1alpha1.ReasonVMUnsettled, Message: "is stopping", Passing: true},
		},
		"PodStillThere": {
			why:  "a pod without its instance still writes",
			in:   with(halted(), func(s *Seen) { s.Launchers = []corev1.Pod{*build.Launcher(s.VM)} }),
			want: Refusal{Reason: v1alpha1.ReasonVMUnsettled, Message: "has not ended", Passing: true},
		},
		"CrashLoop": {
			why:  "KubeVirt starts it again at any moment (FC-034)",
			in:   with(halted(), func(s *Seen) { always := kubevirtv1.RunStrategyAlways; s.VM.Spec.RunStrategy = &always }),
			want: Refusal{Reason: v1alpha1.ReasonVMUnsettled, Message: "starting or crashing", Passing: true},
		},
		"OtherSnapshot": {
			why:  "two tools must not freeze and lock one VM",
			in:   with(halted(), func(s *Seen) { other := "velero"; s.VM.Status.SnapshotInProgress = &other }),
			want: Refusal{Reason: v1alpha1.ReasonVMUnsettled, Message: `snapshot "velero"`, Passing: true},
		},
		"VolumeMigration": {
			why: "FC-009",
			in: with(halted(), func(s *Seen) {
				s.VM.Status.VolumeUpdateState = &kubevirtv1.VolumeUpdateState{VolumeMigrationState: &kubevirtv1.VolumeMigrationState{}}
			}),
			want: Refusal{Reason: v1alpha1.ReasonVMUnsettled, Message: "being moved", Passing: true},
		},
		"Shared": {
			why:  "FC-041: another VM may write it during the cut",
			in:   with(halted(), func(s *Seen) { s.VM.Spec.Template.Spec.Domain.Devices.Disks[0].Shareable = &yes }),
			want: Refusal{Volume: "root", Reason: v1alpha1.ReasonVolumeShared, Message: `disk "root" is shareable`},
		},
		"InstanceMadeDirectly": {
			why: "an instance of the VM's name that somebody made runs the guest by rules of its own",
			in:  runs(halted(), func(s *Seen) { s.VMI.OwnerReferences = nil }), want: Refusal{Reason: v1alpha1.ReasonVMUnsettled, Passing: true, Message: `instance "db" was not made by VM "db"`},
		},
		"DiskInUse": {
			why:  "a VM at rest whose disk another instance writes is not at rest",
			in:   with(halted(), beside(build.Launcher(build.VM("rescue"), "root-db"))),
			want: Refusal{Volume: "root", Reason: v1alpha1.ReasonVolumeShared, Passing: true, Message: `claim "root-db" of volume "root" is in use by instance rescue as well`},
		},
		"DiskInUseWhileRunning": {
			why:  "nor is one cut of a running VM of one moment",
			in:   runs(halted(), beside(build.Launcher(build.VM("rescue"), "root-db"))),
			want: Refusal{Volume: "root", Reason: v1alpha1.ReasonVolumeShared, Passing: true, Message: `is in use by instance rescue as well`},
		},
		"StateInUse": {
			why:  "so with the firmware state",
			in:   with(halted(), beside(tool("persistent-state-for-db-abcde", false))),
			want: Refusal{Volume: "persistent-state-for-db-abcde", Reason: v1alpha1.ReasonVolumeShared, Passing: true, Message: `is in use by pod guestfs as well`},
		},
		"LUN": {
			why:  "it may be shared by reservations",
			in:   with(halted(), func(s *Seen) { s.VM.Spec.Template.Spec.Domain.Devices.Disks[0].LUN = &kubevirtv1.LunTarget{} }),
			want: Refusal{Volume: "root", Reason: v1alpha1.ReasonVolumeUnsupported, Message: `disk "root" is a LUN`},
		},
		"HostDisk": {
			why:  "persistent bytes that no snapshot reaches",
			in:   seen(sealed(build.Volume("host", kubevirtv1.VolumeSource{HostDisk: &kubevirtv1.HostDisk{}})), build.Claim("root-db"), build.StateClaim("db", "abcde")),
			want: Refusal{Volume: "host", Reason: v1alpha1.ReasonVolumeUnsupported, Message: `volume "host" is a file on a node`},
		},
		"Virtiofs": {
			why: "a folder is no disk image",
			in: with(halted(), func(s *Seen) {
				s.VM.Spec.Template.Spec.Domain.Devices.Filesystems = []kubevirtv1.Filesystem{{Name: "root"}}
			}),
			want: Refusal{Volume: "root", Reason: v1alpha1.ReasonVolumeUnsupported, Message: "virtiofs"},
		},
		"HotPluggedInInstanceAlone": {
			why: "FC-041: no restore could attach it",
			in: runs(halted(), func(s *Seen) {
				source := &kubevirtv1.PersistentVolumeClaimVolumeSource{}
				source.ClaimName = "extra"
				s.Claims["extra"] = build.Claim("extra")
				s.VMI.Spec.Volumes = append(s.VMI.Spec.Volumes, kubevirtv1.Volume{Name: "extra", VolumeSource: kubevirtv1.VolumeSource{PersistentVolumeClaim: source}})
			}),
			want: Refusal{Volume: "extra", Reason: v1alpha1.ReasonVolumeUnsupported, Message: `disk "extra" was plugged into the instance alone`},
		},
		"ClaimAbsent": {
			why: "a restore of it would be empty", in: seen(sealed(), build.StateClaim("db", "abcde")),
			want: Refusal{Volume: "root", Reason: v1alpha1.ReasonVolumeNotReady, Message: `claim "root-db" of volume "root" does not exist`},
		},
		"ClaimNotBound": {
			why:  "FC-058: no snapshot of it may be left pending",
			in:   with(halted(), func(s *Seen) { s.Claims["root-db"].Status.Phase = corev1.ClaimPending }),
			want: Refusal{Volume: "root", Reason: v1alpha1.ReasonVolumeNotReady, Message: "is not bound", Passing: true},
		},
		"HotPlugUnderWay": {
			why: "attached in a moment",
			in: runs(halted(), func(s *Seen) {
				s.VMI.Status.VolumeStatus = []kubevirtv1.VolumeStatus{{Name: "root", Phase: kubevirtv1.HotplugVolumeMounted, HotplugVolume: &kubevirtv1.HotplugVolumeStatus{}}}
			}),
			want: Refusal{Volume: "root", Reason: v1alpha1.ReasonVolumeNotReady, Message: "being plugged", Passing: true},
		},
		"NoDisk": {
			why:  "nothing that a restore could bring back",
			in:   seen(build.VM("db", build.Volume("image", kubevirtv1.VolumeSource{ContainerDisk: &kubevirtv1.ContainerDiskSource{}}))),
			want: Refusal{Reason: v1alpha1.ReasonNoVolumes, Message: "no disk on a claim"},
		},
		"TwoStates": {
			why:  "KubeVirt itself picks one at random",
			in:   seen(sealed(), build.Claim("root-db"), build.StateClaim("db", "abcde"), build.StateClaim("db", "other")),
			want: Refusal{Reason: v1alpha1.ReasonStateAmbiguous, Message: "persistent-state-for-db-abcde, persistent-state-for-db-other"},
		},
		"LauncherMountsAnother": {
			why: "the label lies",
			in: runs(halted(), func(s *Seen) {
				s.Launchers[0].Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "elsewhere"
			}),
			want: Refusal{Volume: "elsewhere", Reason: v1alpha1.ReasonStateAmbiguous, Message: `firmware state in claim "elsewhere"`},
		},
		"LeftOverState": {
			why:  "FC-007: KubeVirt deletes it at the next start",
			in:   seen(build.VM("db", build.Disk("root")), build.Claim("root-db"), build.StateClaim("db", "abcde")),
			want: Refusal{Volume: "persistent-state-for-db-abcde", Reason: v1alpha1.ReasonStateAmbiguous, Message: "asks for no persistent TPM or EFI"},
		},
		"StateMissing": {
			why:  "it should have state: a fault, not an empty list",
			in:   seen(sealed(), build.Claim("root-db")),
			want: Refusal{Reason: v1alpha1.ReasonStateMissing, Message: "persistent TPM and EFI variables"},
		},
		"StateByPreferenceMissing": {
			why: "FC-001: the template alone asks for nothing",
			in: with(seen(build.VM("db", build.Disk("root")), build.Claim("root-db")), func(s *Seen) {
				s.Expanded = sealed()
			}),
			want: Refusal{Reason: v1alpha1.ReasonStateMissing, Message: "persistent TPM and EFI variables"},
		},
		"StateOnBlock": {
			why: "it cannot be read file by file",
			in: with(halted(), func(s *Seen) {
				block := corev1.PersistentVolumeBlock
				s.Claims["persistent-state-for-db-abcde"].Spec.VolumeMode = &block
			}),
			want: Refusal{Volume: "persistent-state-for-db-abcde", Reason: v1alpha1.ReasonStateUnsupported, Message: "on a Block volume"},
		},
		"LabelsUnknown": {
			why:  "a pod with other labels would relabel live files",
			in:   runs(halted(), func(s *Seen) { s.VMI.Status.SelinuxContext = "" }),
			want: Refusal{Reason: v1alpha1.ReasonVMUnsettled, Message: "security labels", Passing: true},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, found := Of(tc.in)
			if len(found) != 1 {
				t.Fatalf("%s: found %d, want one:\n%+v", tc.why, len(found), found)
			}
			got := found[0]
			if !strings.Contains(got.Message, tc.want.Message) {
				t.Errorf("%s\nmessage %q does not say %q", tc.why, got.Message, tc.want.Message)
			}
			if got.Object == "" {
				t.Errorf("%s: no object is named", tc.why)
			}
			switch got.Reason {
			case v1alpha1.ReasonVMNotFound, v1alpha1.ReasonVMDeleting, v1alpha1.ReasonNoVolumes: // nothing to do about these
			default:
				if got.Next == "" {
					t.Errorf("%s: no next step", tc.why)
				}
			}
			want := Refusal{Reason: tc.want.Reason, Passing: tc.want.Passing, Volume: tc.want.Volume, Object: got.Object, Message: got.Message, Next: got.Next}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s\n(-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
