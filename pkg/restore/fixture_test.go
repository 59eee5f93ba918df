package restore

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/document"
	"github.com/vmstate/vmstate/test/build"
)

// now of every case.
var now = time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)

const restoreUID = types.UID("0b1c2d3e-0000-4000-8000-000000000001")

// story is what a case changes: each option is one fact.
type story struct {
	docs document.Documents
	in   Observed
}

type option func(*testing.T, *story)

// seen makes what is observed of a restore of prod/db from the store main, with one disk
// and firmware state, and nothing done yet.
func seen(t *testing.T, options ...option) Observed {
	t.Helper()
	vm := build.VM("db", build.Disk("root"), build.TPM(), build.EFI())
	s := &story{
		docs: document.Documents{
			Version: document.Version, VM: *vm, Expanded: *vm,
			Identity: document.Identity{
				FirmwareUUID: build.FirmwareUUID, FirmwareSerial: "serial-1", MachineType: "pc-q35-10.0",
				MACs: map[string]string{"default": "02:00:00:00:00:01"}, PersistentTPM: true, PersistentEFI: true,
			},
		},
		in: Observed{
			Now: now,
			Restore: &v1alpha1.VMStateRestore{
				ObjectMeta: metav1.ObjectMeta{Name: "db-back", Namespace: build.Namespace, UID: restoreUID, Generation: 1},
				Spec: v1alpha1.VMStateRestoreSpec{
					Source:            v1alpha1.RestoreSource{StoreRef: &v1alpha1.ObjectRef{Name: "main"}, VM: "prod/db", Commit: "latest"},
					Mode:              v1alpha1.RestoreNewVM,
					Target:            &v1alpha1.RestoreTarget{VMName: "db"},
					IdentitySecretRef: &v1alpha1.ObjectRef{Name: "restore-key"},
					StopPolicy:        v1alpha1.StopRefuse,
					StartPolicy:       v1alpha1.StartAsBackedUp,
				},
			},
			Store:   pinned(build.Store("main")),
			Claims:  map[string]*corev1.PersistentVolumeClaim{},
			Volumes: map[string]*corev1.PersistentVolume{},
			Cluster: &Cluster{
				Namespace:      &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: build.Namespace}},
				StorageClasses: []storagev1.StorageClass{*build.StorageClass(build.Class)},
				Present:        map[Need]bool{},
			},
		},
	}
	for _, o := range options {
		o(t, s)
	}
	if s.in.Restore.Status.From != nil {
		raw, err := document.Encode(s.docs)
		if err != nil {
			t.Fatal(err)
		}
		s.in.Restore.Status.From.Documents = &runtime.RawExtension{Raw: raw}
		if s.in.Machine, err = MachineOf(s.in.Restore.Status.From); err != nil {
			t.Fatal(err)
		}
		if s.in.Unreadable != "" {
			s.in.Machine = nil
		}
	}
	return s.in
}

func pinned(s *v1alpha1.VMStateStore) *v1alpha1.VMStateStore {
	s.Status.SigningKey = "c2lnbmluZyBrZXk="
	return s
}

// facts of the volumes in the backup.
func facts(name string, role v1alpha1.VolumeRole) v1alpha1.VolumeFacts {
	return v1alpha1.VolumeFacts{
		Name: name, Role: role, StorageClassName: build.Class, Driver: build.Driver, VolumeMode: "Filesystem",
		AccessModes: []string{"ReadWriteOnce"}, SizeBytes: 1 << 30,
	}
}

const (
	sourceState = "persistent-state-for-db-abcde"
	newRoot     = "db-root-n4cd4"
	newState    = "persistent-state-for-db-n4cd4"
	hold        = "vmstate-hold-" + string(restoreUID)
	holder      = "vmstate-" + string(restoreUID)
)

func from() *v1alpha1.RestoredFrom {
	return &v1alpha1.RestoredFrom{
		VM: "prod/db", VMUID: "vm-db", BackupName: "nightly",
		Commit:  &v1alpha1.CommitRef{Key: "v/x/c/1", Digest: "aa", Sequence: 1},
		TakenAt: metav1.NewMicroTime(now.Add(-time.Hour)),
		Volumes: []v1alpha1.VolumeFacts{facts("root", v1alpha1.RoleDisk), facts(sourceState, v1alpha1.RoleFirmwareState)},
	}
}

// resolvedFrom: the source is known.
func resolvedFrom(_ *testing.T, s *story) { s.in.Restore.Status.From = from() }

// spec changes what is asked for.
func spec(change func(*v1alpha1.VMStateRestoreSpec)) option {
	return func(_ *testing.T, s *story) { change(&s.in.Restore.Spec) }
}

// inPlace asks for the machine itself, which exists.
func inPlace(t *testing.T, s *story) {
	s.in.Restore.Spec.Mode = v1alpha1.RestoreInPlace
	s.in.Restore.Spec.Target = nil
	exists(build.VM("db", build.Disk("root"), build.TPM(), build.EFI()))(t, s)
	for _, c := range []*corev1.PersistentVolumeClaim{build.Claim("root-db"), build.StateClaim("db", "fghij")} {
		s.in.Claims[c.Name] = c
		pv := build.PV(c)
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		s.in.Volumes[pv.Name] = pv
	}
}

// exists puts a machine under the target's name.
func exists(vm *kubevirtv1.VirtualMachine) option {
	return func(t *testing.T, s *story) {
		vm.ResourceVersion = "7"
		s.in.Target = &Target{VM: vm, Spec: specMap(t, vm)}
		s.in.Cluster.Machines = append(s.in.Cluster.Machines, *vm)
	}
}

func specMap(t *testing.T, vm *kubevirtv1.VirtualMachine) map[string]any {
	t.Helper()
	raw, err := json.Marshal(vm.Spec)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := utiljson.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// runs: the machine has an instance.
func runs(_ *testing.T, s *story) {
	always := kubevirtv1.RunStrategyAlways
	s.in.Target.VM.Spec.RunStrategy = &always
	s.in.Target.Spec["runStrategy"] = "Always"
	s.in.Instance = build.VMI(s.in.Target.VM)
}

// planned: the preflight is done.
func planned(t *testing.T, s *story) {
	resolvedFrom(t, s)
	s.in.Restore.Status.Volumes = []v1alpha1.RestoredVolume{
		{Name: "root", Role: v1alpha1.RoleDisk, ClaimName: newRoot},
		{Name: sourceState, Role: v1alpha1.RoleFirmwareState, ClaimName: newState},
	}
}

// made: the new claims are there.
func made(t *testing.T, s *story) {
	planned(t, s)
	for _, v := range s.in.Restore.Status.Volumes {
		c := build.Claim(v.ClaimName)
		c.Labels = map[string]string{v1alpha1.LabelOwnerUID: string(restoreUID)}
		c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s.in.Restore, v1alpha1.GroupVersion.WithKind("VMStateRestore"))}
		s.in.Claims[c.Name] = c
	}
}

// known: the new claims are recorded.
func known(t *testing.T, s *story) {
	made(t, s)
	for i := range s.in.Restore.Status.Volumes {
		v := &s.in.Restore.Status.Volumes[i]
		v.ClaimUID = types.UID("claim-" + v.ClaimName)
	}
}

// full: the new claims are filled and the finalizer is on.
func full(t *testing.T, s *story) {
	known(t, s)
	for i := range s.in.Restore.Status.Volumes {
		s.in.Restore.Status.Volumes[i].Verified = true
	}
	s.in.Restore.Finalizers = []string{v1alpha1.FinalizerSwitch}
}

// begun: the switch of a machine in place is recorded.
func begun(t *testing.T, s *story) {
	full(t, s)
	inPlace(t, s)
	record := &v1alpha1.RestoreSwitch{BegunAt: metav1.NewMicroTime(now), VMUID: "vm-db", PreviousRunStrategy: "Always"}
	raw, err := json.Marshal(s.in.Target.Spec)
	if err != nil {
		t.Fatal(err)
	}
	record.Previous = &runtime.RawExtension{Raw: raw}
	s.in.Restore.Status.Switch = record
	if s.in.Restore.Status.Replaced, err = replaced(t, s); err != nil {
		t.Fatal(err)
	}
}

func replaced(t *testing.T, s *story) ([]v1alpha1.ReplacedClaim, error) {
	t.Helper()
	in := s.in
	in.Machine = &Machine{Documents: s.docs, Held: s.in.Restore.Status.From.Volumes}
	return replacedClaims(in)
}

// denying: starts are denied.
func denying(_ *testing.T, s *story) {
	name := holder
	s.in.Target.VM.Status.RestoreInProgress = &name
}

// holding: a disk is on the claim that does not exist, and that was recorded.
func holding(t *testing.T, s *story) {
	denying(t, s)
	held, err := heldSpec(s.in.Target.Spec, hold)
	if err != nil {
		t.Fatal(err)
	}
	setSpec(t, s, held)
	at := metav1.NewMicroTime(now)
	s.in.Restore.Status.Switch.HeldAt = &at
}

func setSpec(t *testing.T, s *story, spec map[string]any) {
	t.Helper()
	s.in.Target.Spec = spec
	raw, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	vm := s.in.Target.VM.DeepCopy()
	vm.Spec = kubevirtv1.VirtualMachineSpec{}
	if err := json.Unmarshal(raw, &vm.Spec); err != nil {
		t.Fatal(err)
	}
	s.in.Target.VM = vm
}

// unlabelled: the old state has lost its label.
func unlabelled(_ *testing.T, s *story) {
	delete(s.in.Claims["persistent-state-for-db-fghij"].Labels, v1alpha1.LabelPersistentState)
}

// handed: the new claims are the machine's.
func handed(_ *testing.T, s *story) {
	for _, v := range s.in.Restore.Status.Volumes {
		c := s.in.Claims[v.ClaimName]
		c.OwnerReferences = nil
		if v.Role == v1alpha1.RoleFirmwareState {
			c.Labels[v1alpha1.LabelPersistentState] = "db"
			c.OwnerReferences = []metav1.OwnerReference{*ownedBy(s.in.Target.VM)}
		}
	}
}

// committed: the point of no return is recorded.
func committed(_ *testing.T, s *story) {
	at := metav1.NewMicroTime(now)
	s.in.Restore.Status.Switch.CommittedAt = &at
}

// failedWith: the restore was given up.
func failedWith(_ *testing.T, s *story) {
	s.in.Restore.Status.Failure = &v1alpha1.RestoreFailure{At: metav1.NewMicroTime(now), Reason: v1alpha1.ReasonSwitchFailed, Message: "it was not to be"}
}

// reported puts a Job of the restore with its report into the story.
func reported(task v1alpha1.ReportTask, status v1alpha1.VMStateReportStatus) option {
	return func(_ *testing.T, s *story) {
		name := resolveJob(restoreUID)
		if task == v1alpha1.TaskImport {
			name = importJob(restoreUID)
		}
		j := &JobSeen{Name: name, UID: types.UID("job-" + name), Report: &v1alpha1.VMStateReport{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("report-" + name)},
			Spec:       v1alpha1.VMStateReportSpec{Task: task}, Status: status,
		}}
		if task == v1alpha1.TaskImport {
			s.in.Import = j
		} else {
			s.in.Resolve = j
		}
	}
}

func rawVM(t *testing.T, vm kubevirtv1.VirtualMachine) map[string]any {
	t.Helper()
	raw, err := json.Marshal(vm)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := utiljson.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// documentsLost: what was recorded of the backup cannot be read.
func documentsLost(_ *testing.T, s *story) { s.in.Unreadable = "cut short" }
