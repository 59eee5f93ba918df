package restore

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/document"
	"github.com/vmstate/vmstate/test/build"
)

var update = flag.Bool("update", false, "write the golden files")

// windows is the common case: firmware devices asked for by a preference alone, a disk that
// the machine made by itself, a hot-plugged one, a memory dump, no address in the spec.
func windows(_ *testing.T, s *story) {
	always := kubevirtv1.RunStrategyAlways
	vm := build.VM("db", build.Disk("data"))
	vm.Labels = map[string]string{"team": "db", "argocd.argoproj.io/instance": "prod"}
	vm.Annotations = map[string]string{"note": "mine", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
	vm.Spec.RunStrategy = &always
	vm.Spec.Template.Spec.Domain.Firmware = nil
	build.Volume("root", kubevirtv1.VolumeSource{DataVolume: &kubevirtv1.DataVolumeSource{Name: "db-root"}})(vm)
	build.Volume("late", kubevirtv1.VolumeSource{DataVolume: &kubevirtv1.DataVolumeSource{Name: "late", Hotpluggable: true}})(vm)
	build.Volume("cloudinit", kubevirtv1.VolumeSource{CloudInitNoCloud: &kubevirtv1.CloudInitNoCloudSource{UserData: "#cloud-config"}})(vm)
	dump := &kubevirtv1.MemoryDumpVolumeSource{}
	dump.ClaimName = "dump"
	vm.Spec.Template.Spec.Volumes = append(vm.Spec.Template.Spec.Volumes, kubevirtv1.Volume{Name: "dump", VolumeSource: kubevirtv1.VolumeSource{MemoryDump: dump}})
	vm.Spec.DataVolumeTemplates = []kubevirtv1.DataVolumeTemplateSpec{{ObjectMeta: metav1.ObjectMeta{Name: "db-root"}, Spec: cdiv1.DataVolumeSpec{}}}
	vm.Spec.Template.Spec.Domain.Devices.Interfaces = []kubevirtv1.Interface{{Name: "default"}}
	vm.Spec.Instancetype = &kubevirtv1.InstancetypeMatcher{Name: "u1.medium", InferFromVolume: "root"}
	vm.Spec.Preference = &kubevirtv1.PreferenceMatcher{Name: "windows.11"}
	vm.Status.InstancetypeRef = &kubevirtv1.InstancetypeStatusRef{ControllerRevisionRef: &kubevirtv1.ControllerRevisionRef{Name: "db-u1.medium-v1beta1"}}
	vm.Status.PreferenceRef = &kubevirtv1.InstancetypeStatusRef{ControllerRevisionRef: &kubevirtv1.ControllerRevisionRef{Name: "db-windows.11-v1beta1"}}
	expanded := vm.DeepCopy()
	expanded.Spec.Template.Spec.Domain.Firmware = &kubevirtv1.Firmware{UUID: build.FirmwareUUID}
	build.TPM()(expanded)
	build.EFI()(expanded)
	expanded.Spec.Template.Spec.Domain.Features = &kubevirtv1.Features{SMM: &kubevirtv1.FeatureState{}}
	s.docs.VM, s.docs.Expanded = *vm, *expanded
	s.docs.Revisions = []appsv1.ControllerRevision{
		{ObjectMeta: metav1.ObjectMeta{Name: "db-u1.medium-v1beta1"}}, {ObjectMeta: metav1.ObjectMeta{Name: "db-windows.11-v1beta1"}},
	}
	s.docs.Identity.PCIAnnotations = map[string]string{kubevirtv1.PciTopologyVersionAnnotation: "v2"}
	s.docs.Claims = []document.Claim{{Volume: "data", Labels: map[string]string{"tier": "gold", v1alpha1.LabelGroupMember: "x"}}}
	s.in.Restore.Status.From = from()
	s.in.Restore.Status.From.Volumes = append([]v1alpha1.VolumeFacts{facts("data", v1alpha1.RoleDisk), facts("late", v1alpha1.RoleDisk)}, s.in.Restore.Status.From.Volumes...)
}

// TestFinalSpec shows the whole machine that is written, as kubectl would print it. Run
// with -update after a change that was meant, and read the difference.
func TestFinalSpec(t *testing.T) {
	cases := map[string]struct {
		reason string
		story  []option
	}{
		"same":  {"a machine restored under its name is the one that the guest knows", []option{windows}},
		"clone": {"a machine beside it has identifiers of its own, the same at every pass", []option{windows, spec(clone)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := seen(t, tc.story...)
			spec, err := finalSpec(*in.Machine, wanted(in))
			if err != nil {
				t.Fatal(err)
			}
			got, err := yaml.Marshal(newMachine(*in.Machine, TargetName(in.Restore), in.Restore.Namespace, in.Restore.UID, spec))
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".yaml", got, tc.reason)
		})
	}
}

func clone(s *v1alpha1.VMStateRestoreSpec) {
	s.Target.VMName, s.TPMPolicy = "db2", v1alpha1.TPMBlank
	s.FirmwareUUID, s.MACAddresses = v1alpha1.IdentityNew, v1alpha1.IdentityNew
}

func golden(t *testing.T, name string, got []byte, reason string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s\nmismatch with %s (-want +got):\n%s", reason, file, diff)
	}
}

// TestHeldSpec: the first ordinary disk is taken off its claim, nothing makes volumes, and
// putting the recorded volumes back gives the machine that was.
func TestHeldSpec(t *testing.T) {
	in := seen(t, windows)
	before, err := specOf(in.Machine.Raw)
	if err != nil {
		t.Fatal(err)
	}
	held, err := heldSpec(before, hold)
	if err != nil {
		t.Fatal(err)
	}
	if !isHeld(held, hold) || isHeld(before, hold) {
		t.Errorf("isHeld(held) = %t, isHeld(before) = %t", isHeld(held, hold), isHeld(before, hold))
	}
	if _, templates := held["dataVolumeTemplates"]; templates || held["runStrategy"] != "Halted" {
		t.Errorf("a held machine is halted and makes no volumes: %v", held)
	}
	for _, bare := range []*kubevirtv1.VirtualMachine{build.VM("db"), build.VM("db", build.Volume("c", kubevirtv1.VolumeSource{
		ContainerDisk: &kubevirtv1.ContainerDiskSource{Image: "i"},
	}))} {
		if _, err := heldSpec(specMap(t, bare), hold); !errors.Is(err, errNoDisk) {
			t.Errorf("heldSpec(no disk) = %v, want %v", err, errNoDisk)
		}
	}
}

// TestPlannedClaims shows the claims that are made: sizes never smaller, no label that says
// whose state it is, no mark of another tool's.
func TestPlannedClaims(t *testing.T) {
	in := seen(t, windows, spec(func(s *v1alpha1.VMStateRestoreSpec) {
		s.Storage = []v1alpha1.StorageMapping{
			{Role: v1alpha1.RoleDisk, StorageClassName: "other"},
			{Role: v1alpha1.RoleDisk, VolumeName: "late", StorageClassName: "late", AccessModes: []string{"ReadWriteMany"}},
		}
	}))
	got, err := yaml.Marshal(corev1.PersistentVolumeClaimList{Items: func() []corev1.PersistentVolumeClaim {
		var out []corev1.PersistentVolumeClaim
		for _, c := range plannedClaims(in) {
			out = append(out, *c)
		}
		return out
	}()})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "claims.yaml", got, "the claims of a restore are fixed by its UID and the backup")
}

// TestLocalClaims: a disk from a snapshot is never smaller than the snapshot asks for.
func TestLocalClaims(t *testing.T) {
	in := seen(t, local)
	got, err := yaml.Marshal(plannedClaims(in)[0].Spec)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "local.yaml", got, "a backup without a store is restored from its snapshots")
}

// local: the backup consists of snapshots.
func local(_ *testing.T, s *story) {
	b := build.Backup("nightly", "db")
	b.Spec.StoreRef = nil
	b.Status.Local = &v1alpha1.LocalCopy{
		Snapshots:      []v1alpha1.CutSnapshot{{VolumeName: "root", SnapshotName: "snap-root", RestoreSizeBytes: 2 << 30}},
		StateClaimName: "kept",
	}
	b.Status.Moment = &v1alpha1.Moment{StateDigest: "cc", CutEnded: metav1.NewMicroTime(now.Add(-time.Hour))}
	b.Status.VM = &v1alpha1.CapturedVM{UID: "vm-db"}
	s.in.Backup = b
	s.in.Store = nil
	s.in.Restore.Spec.Source = v1alpha1.RestoreSource{BackupRef: &v1alpha1.ObjectRef{Name: "nightly"}}
	s.in.Restore.Spec.IdentitySecretRef = nil
	s.in.Restore.Status.From = from()
	s.in.Restore.Status.From.Commit = nil
}
