package restore

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/document"
	"github.com/vmstate/vmstate/test/build"
)

// bad are the findings that a person must read; what is well is left out of the cases.
func bad(findings []v1alpha1.Finding) []v1alpha1.Finding {
	var out []v1alpha1.Finding
	for _, f := range findings {
		if f.Outcome != v1alpha1.FindingOK {
			out = append(out, f)
		}
	}
	return out
}

func TestPreflight(t *testing.T) {
	type f = v1alpha1.Finding
	no, mind := v1alpha1.FindingFailed, v1alpha1.FindingWarning
	cases := map[string]struct {
		reason string
		story  []option
		want   []f
	}{
		"Fine": {reason: "a restore into an empty namespace finds nothing", story: []option{resolvedFrom}},
		"InPlaceFine": {
			reason: "the stopped machine that was backed up is in nobody's way",
			story:  []option{resolvedFrom, inPlace},
		},
		"NameTaken": {
			reason: "another machine of that name is not replaced by mode NewVM; its firmware UUID is another",
			story: []option{resolvedFrom, func(t *testing.T, s *story) {
				vm := build.VM("db", build.Disk("root"))
				vm.UID = "vm-other"
				exists(vm)(t, s)
			}},
			want: []f{{Check: "Target", Outcome: no, Message: `virtual machine "db" exists: choose another target.vmName, or mode InPlace`}},
		},
		"LeftOverState": {
			reason: "KubeVirt takes any claim with the label, or of the old name, for the firmware state",
			story: []option{resolvedFrom, func(_ *testing.T, s *story) {
				for _, c := range []*corev1.PersistentVolumeClaim{build.StateClaim("db", "vwxyz"), build.Claim("persistent-state-for-db")} {
					s.in.Claims[c.Name] = c
				}
			}},
			want: []f{{Check: "StateClaim", Outcome: no, Message: `claim persistent-state-for-db-vwxyz, persistent-state-for-db is the firmware state of a virtual machine "db" that is gone: KubeVirt would pick it or ours at random; delete it, or choose another target.vmName`}},
		},
		"TwoStates": {
			reason: "in place, nobody can tell which of two labelled claims is the machine's",
			story: []option{resolvedFrom, inPlace, func(_ *testing.T, s *story) {
				c := build.StateClaim("db", "vwxyz")
				s.in.Claims[c.Name] = c
			}},
			want: []f{{Check: "StateClaim", Outcome: no, Message: `2 claims carry the label persistent-state-for=db (persistent-state-for-db-fghij, persistent-state-for-db-vwxyz), so nobody can tell which is the firmware state: take the label off all but one`}},
		},
		"SourceLives": {
			reason: "beside its source, what becomes of the TPM must be chosen; addresses and UUID collide",
			story:  []option{resolvedFrom, otherNamespace, spec(func(s *v1alpha1.VMStateRestoreSpec) { s.Target.VMName = "db2" })},
			want: []f{
				{Check: "SourceVM", Outcome: no, Message: `virtual machine live/db has the TPM of the backup: choose tpmPolicy. Keep needs it deleted; with Blank, what was sealed to its TPM will not open in the new one`},
				{Check: "MACAddresses", Outcome: no, Message: `in use already: 02:00:00:00:00:01 by live/db; use macAddresses New, or remove what uses them`},
				{Check: "FirmwareUUID", Outcome: no, Message: `the firmware UUID ` + build.FirmwareUUID + ` is in use by live/db: use firmwareUUID New, or remove what uses it`},
			},
		},
		"SourceLivesKeep": {
			reason: "two machines with one TPM are refused, whoever asks",
			story: []option{resolvedFrom, otherNamespace, spec(func(s *v1alpha1.VMStateRestoreSpec) {
				s.TPMPolicy, s.FirmwareUUID, s.MACAddresses = v1alpha1.TPMKeep, v1alpha1.IdentityNew, v1alpha1.IdentityNew
			})},
			want: []f{
				{Check: "SourceVM", Outcome: no, Message: `tpmPolicy Keep would give a second machine the TPM of virtual machine live/db, which exists and could run: delete it first, or use tpmPolicy Blank`},
				{Check: "FirmwareUUID", Outcome: no, Message: `live/db has the firmware UUID of the backup, and so its TPM: a second machine with it is refused; remove it, or use tpmPolicy Blank`},
			},
		},
		"SourceLivesBlank": {
			reason: "a clone with a TPM and identifiers of its own is possible, and says what it costs",
			story: []option{resolvedFrom, otherNamespace, spec(func(s *v1alpha1.VMStateRestoreSpec) {
				s.TPMPolicy, s.FirmwareUUID, s.MACAddresses = v1alpha1.TPMBlank, v1alpha1.IdentityNew, v1alpha1.IdentityNew
			})},
			want: []f{{Check: "TPM", Outcome: mind, Message: `tpmPolicy Blank: what the guest sealed to its TPM (BitLocker, LUKS keys) will not open; have the recovery key at hand`}},
		},
		"StateNotInBackup": {
			reason: "disks without the state that they are sealed to are half a machine",
			story: []option{resolvedFrom, func(_ *testing.T, s *story) {
				s.in.Restore.Status.From.Volumes = s.in.Restore.Status.From.Volumes[:1]
			}},
			want: []f{{Check: "FirmwareState", Outcome: no, Message: `the virtual machine keeps its TPM or EFI variables, and the backup does not hold them: its disks alone would meet blank firmware; choose another backup`}},
		},
		"DiskNotInBackup": {
			reason: "a disk that the backup does not hold cannot be left out",
			story: []option{resolvedFrom, func(_ *testing.T, s *story) {
				s.docs.VM = *build.VM("db", build.Disk("root"), build.Disk("data"), build.TPM(), build.EFI())
			}},
			want: []f{{Check: "Disk/data", Outcome: no, Message: `volume "data" (claim "data-db") is not in the backup: the virtual machine would not be whole`}},
		},
		"NoDiskToHoldBy": {
			reason: "without an ordinary disk nothing keeps the machine from starting half restored",
			story: []option{resolvedFrom, func(_ *testing.T, s *story) {
				s.docs.VM.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.Hotpluggable = true
			}},
			want: []f{{Check: "Disks", Outcome: no, Message: `the virtual machine has no disk on a claim of its own: nothing would keep it from being started in the middle of the restore`}},
		},
		"Running": {
			reason: "a running machine is not stopped unless that was asked for",
			story:  []option{resolvedFrom, inPlace, runs},
			want:   []f{{Check: "Running", Outcome: no, Message: `virtual machine "db" runs: stop it, or create the restore with stopPolicy Stop`}},
		},
		"RunningStop": {
			reason: "with stopPolicy Stop it is said beforehand",
			story:  []option{resolvedFrom, inPlace, runs, spec(func(s *v1alpha1.VMStateRestoreSpec) { s.StopPolicy = v1alpha1.StopStop })},
			want:   []f{{Check: "Running", Outcome: mind, Message: `virtual machine "db" runs, and is stopped once everything else is ready`}},
		},
		"InstanceBesideItsMachine": {
			reason: "an instance that somebody made is no business of the machine's run strategy",
			story: []option{resolvedFrom, inPlace, runs, func(_ *testing.T, s *story) {
				s.in.Instance.OwnerReferences = nil
			}},
			want: []f{{Check: "Instance", Outcome: no, Message: `instance "db" was not made by virtual machine "db": delete it first`}},
		},
		"AnotherMachine": {
			reason: "a machine made again under the same name has another TPM",
			story:  []option{resolvedFrom, inPlace, func(_ *testing.T, s *story) { s.in.Restore.Status.From.VMUID = "vm-old" }},
			want:   []f{{Check: "Target", Outcome: no, Message: `virtual machine "db" is not the one that was backed up (it was made again since): delete or rename it and use mode NewVM`}},
		},
		"MachineGone": {
			reason: "in place means that there is a place",
			story:  []option{resolvedFrom, inPlace, func(_ *testing.T, s *story) { s.in.Target = nil }},
			want:   []f{{Check: "Target", Outcome: no, Message: `virtual machine "db" does not exist here: use mode NewVM`}},
		},
		"GitOps": {
			reason: "a tool that writes the old spec back must be told",
			story: []option{resolvedFrom, inPlace, func(_ *testing.T, s *story) {
				s.in.Target.VM.Annotations = map[string]string{"argocd.argoproj.io/tracking-id": "x"}
			}},
			want: []f{{Check: "GitOps", Outcome: mind, Message: `virtual machine "db" is managed by Argo CD (argocd.argoproj.io/tracking-id): suspend it, and put the restored spec into its repository before you resume it; the old claim names will not exist any more`}},
		},
		"EmptyCluster": {
			reason: "another cluster with other classes, no namespace quota left and no images: all gaps at once",
			story: []option{resolvedFrom, func(_ *testing.T, s *story) {
				s.in.Cluster.StorageClasses[0].Name = "standard"
				s.in.Cluster.Namespace.Status.Phase = corev1.NamespaceTerminating
				s.docs.References = []document.Reference{{Kind: NeedConfigMap, Name: "sysprep"}, {Kind: NeedSecret, Name: "ssh"}, {Kind: NeedNetwork, Name: "net/vlan7"}}
				s.in.Cluster.Present[Need{NeedConfigMap, "prod", "sysprep"}] = false
				s.in.Cluster.Present[Need{NeedNetwork, "net", "vlan7"}] = true
				s.in.Cluster.Quotas = []corev1.ResourceQuota{quota("small", "persistentvolumeclaims", "1", "1"), quota("big", "requests.storage", "10Gi", "1Gi")}
			}},
			want: []f{
				{Check: "Namespace", Outcome: no, Message: `namespace "prod" is being deleted: restore into another one`},
				{Check: "StorageClass/root", Outcome: no, Message: `volume "root" needs storage class "fast", which this cluster does not have: map role Disk to one of standard in spec.storage`},
				{Check: "StorageClass/" + sourceState, Outcome: no, Message: `volume "` + sourceState + `" needs storage class "fast", which this cluster does not have: map role FirmwareState to one of standard in spec.storage`},
				{Check: "Quota/small", Outcome: no, Message: `quota "small" is too small: persistentvolumeclaims: 1 of 1 used, 2 more needed`},
				{Check: "ConfigMap/sysprep", Outcome: no, Message: `the virtual machine needs ConfigMap "sysprep", which namespace "prod" does not have: create it first`},
				{Check: "Secret/ssh", Outcome: mind, Message: `the virtual machine needs Secret "ssh" in namespace "prod": vmstate may not look whether it is there`},
			},
		},
		"Mapped": {
			reason: "a mapping fills the gaps, and its own mistakes are found",
			story: []option{resolvedFrom, func(_ *testing.T, s *story) {
				s.in.Cluster.StorageClasses[0].Name = "standard"
				s.in.Restore.Spec.Storage = []v1alpha1.StorageMapping{
					{Role: v1alpha1.RoleDisk, StorageClassName: "standard", AccessModes: []string{"ReadWriteAlways"}},
					{Role: v1alpha1.RoleFirmwareState, StorageClassName: "standard"},
					{Role: v1alpha1.RoleDisk, VolumeName: "rot", StorageClassName: "standard"},
				}
			}},
			want: []f{
				{Check: "Mapping/rot", Outcome: no, Message: `spec.storage names volume "rot" with role Disk, which the backup does not have; it has root (Disk), ` + sourceState + ` (FirmwareState)`},
				{Check: "AccessModes/root", Outcome: no, Message: `volume "root": there is no access mode "ReadWriteAlways"`},
			},
		},
		"Instancetype": {
			reason: "what decides CPU and memory comes back as it was, or the gap is named",
			story: []option{resolvedFrom, func(_ *testing.T, s *story) {
				s.docs.VM.Spec.Instancetype = &kubevirtv1.InstancetypeMatcher{Name: "u1.medium", RevisionName: "db-u1"}
				s.docs.VM.Spec.Preference = &kubevirtv1.PreferenceMatcher{Name: "windows.11", Kind: "VirtualMachinePreference"}
				s.docs.Revisions = []appsv1.ControllerRevision{{ObjectMeta: metav1.ObjectMeta{Name: "db-u1"}}}
				s.in.Cluster.Present[Need{NeedPreference, "prod", "windows.11"}] = false
			}},
			want: []f{{Check: "Preference", Outcome: no, Message: `the backup does not hold the revision of preference "windows.11", and this cluster has no VirtualMachinePreference of that name: create it first`}},
		},
		"OlderKubeVirt": {
			reason: "an older swtpm may not read what a newer one wrote",
			story: []option{resolvedFrom, func(_ *testing.T, s *story) {
				s.docs.KubeVirtVersion, s.in.Cluster.KubeVirtVersion = "quay.io/kubevirt/virt-launcher:v1.9.0", "v1.7.2"
			}},
			want: []f{{Check: "KubeVirt", Outcome: mind, Message: `the backup was made under KubeVirt 1.9, this is v1.7.2: an older swtpm may not read the TPM's state`}},
		},
		"AnotherWithItsTPM": {
			reason: "a machine restored earlier with its TPM is a living source, whatever its UID is",
			story: []option{resolvedFrom, spec(func(s *v1alpha1.VMStateRestoreSpec) { s.FirmwareUUID = v1alpha1.IdentityNew }), func(_ *testing.T, s *story) {
				vm := build.VM("twin", build.Disk("root"), build.TPM())
				s.in.Cluster.Machines = append(s.in.Cluster.Machines, *vm)
			}},
			want: []f{{Check: "FirmwareUUID", Outcome: no, Message: `prod/twin has the firmware UUID of the backup, and so its TPM: a second machine with it is refused; remove it, or use tpmPolicy Blank`}},
		},
		"InstanceAlone": {
			reason: "an instance that is left of the machine that was backed up still has its TPM",
			story: []option{resolvedFrom, spec(func(s *v1alpha1.VMStateRestoreSpec) {
				s.Target.VMName, s.FirmwareUUID, s.MACAddresses = "db2", v1alpha1.IdentityNew, v1alpha1.IdentityNew
			}), living(build.VM("db", build.Disk("root"), build.TPM()))},
			want: []f{
				{Check: "SourceVM", Outcome: no, Message: `instance prod/db has the TPM of the backup: choose tpmPolicy. Keep needs it deleted; with Blank, what was sealed to its TPM will not open in the new one`},
				{Check: "FirmwareUUID", Outcome: mind, Message: `firmwareUUID New: the TPM moves with it; software that is bound to the UUID (licences) may notice`},
			},
		},
		"InstanceMadeDirectly": {
			reason: "one that was made without any machine, on the claims that were backed up, is a living source too",
			story: []option{resolvedFrom, spec(func(s *v1alpha1.VMStateRestoreSpec) {
				s.Target.VMName, s.TPMPolicy, s.FirmwareUUID, s.MACAddresses = "db2", v1alpha1.TPMKeep, v1alpha1.IdentityNew, v1alpha1.IdentityNew
			}), direct("rescue", "root-db"), func(_ *testing.T, s *story) {
				s.in.Claims["root-db"] = build.Claim("root-db")
				s.in.Restore.Status.From.Volumes[0].ClaimUID = "claim-root-db"
			}},
			want: []f{
				{Check: "SourceVM", Outcome: no, Message: `tpmPolicy Keep would give a second machine the TPM of instance prod/rescue, which exists and could run: delete it first, or use tpmPolicy Blank`},
				{Check: "FirmwareUUID", Outcome: mind, Message: `firmwareUUID New: the TPM moves with it; software that is bound to the UUID (licences) may notice`},
			},
		},
		"ClaimsOfThatName": {
			reason: "claims that only have the names of those that were backed up are others",
			story: []option{resolvedFrom, spec(func(s *v1alpha1.VMStateRestoreSpec) { s.Target.VMName = "db2" }), direct("rescue", "root-db"), func(_ *testing.T, s *story) {
				s.in.Claims["root-db"] = build.Claim("root-db")
				s.in.Restore.Status.From.Volumes[0].ClaimUID = "claim-of-another-cluster"
			}},
		},
		"InstanceWithItsUUID": {
			reason: "the firmware UUID of an instance counts as that of a machine does, in any namespace",
			story: []option{resolvedFrom, func(_ *testing.T, s *story) {
				vmi := build.VMI(build.VM("twin"))
				vmi.Namespace, vmi.OwnerReferences = "lab", nil
				vmi.Spec.Domain.Firmware = &kubevirtv1.Firmware{UUID: build.FirmwareUUID}
				s.in.Cluster.Instances = append(s.in.Cluster.Instances, *vmi)
			}},
			want: []f{{Check: "FirmwareUUID", Outcome: no, Message: `the firmware UUID ` + build.FirmwareUUID + ` is in use by lab/twin: use firmwareUUID New, or remove what uses it`}},
		},
		"InstanceEnded": {
			reason: "an instance that has ended holds nothing",
			story: []option{resolvedFrom, inPlace, direct("rescue", "root-db"), func(_ *testing.T, s *story) {
				s.in.Cluster.Instances[0].Status.Phase = kubevirtv1.Succeeded
			}},
		},
		"DiskInUseByInstance": {
			reason: "in place, a disk is not taken from an instance that somebody made beside the machine",
			story:  []option{resolvedFrom, inPlace, direct("rescue", "root-db")},
			want:   []f{{Check: "Shared/root-db", Outcome: no, Message: `claim "root-db", which would be replaced, is used by instance rescue as well: detach it there first, or restore as a new virtual machine`}},
		},
		"StateInUseByInstance": {
			reason: "nor is the firmware state, which only the instance's status names",
			story: []option{resolvedFrom, inPlace, direct("rescue", "other"), func(_ *testing.T, s *story) {
				s.in.Cluster.Instances[0].Status.VolumeStatus = []kubevirtv1.VolumeStatus{{
					Name: "state", PersistentVolumeClaimInfo: &kubevirtv1.PersistentVolumeClaimInfo{ClaimName: "persistent-state-for-db-fghij"},
				}}
			}},
			want: []f{{Check: "Shared/persistent-state-for-db-fghij", Outcome: no, Message: `claim "persistent-state-for-db-fghij", which would be replaced, is used by instance rescue as well: detach it there first, or restore as a new virtual machine`}},
		},
		"DiskShared": {
			reason: "a disk that another machine has in its spec would be taken from it, also while it is stopped",
			story: []option{resolvedFrom, inPlace, func(_ *testing.T, s *story) {
				vm := build.VM("other")
				vm.UID = "vm-other"
				vm.Spec.Template.Spec.Domain.Firmware = nil
				vm.Spec.Template.Spec.Volumes = []kubevirtv1.Volume{mountedClaim("data", "root-db")}
				s.in.Cluster.Machines = append(s.in.Cluster.Machines, *vm)
			}},
			want: []f{{Check: "Shared/root-db", Outcome: no, Message: `claim "root-db", which would be replaced, is used by virtual machine other as well: detach it there first, or restore as a new virtual machine`}},
		},
		"NotPinned": {
			reason: "who restores from a bucket alone is told what the signature proves",
			story:  []option{resolvedFrom, func(_ *testing.T, s *story) { s.in.Store.Status.SigningKey = "" }},
			want:   []f{{Check: "SigningKey", Outcome: mind, Message: `store "main" is not pinned to a signing key: compare the one that it shows with a copy kept elsewhere`}},
		},
		"ClaimTaken": {
			reason: "a claim that somebody made under our names is not filled",
			story: []option{resolvedFrom, func(_ *testing.T, s *story) {
				s.in.Claims[newRoot] = build.Claim(newRoot)
				s.in.Claims[hold] = build.Claim(hold)
			}},
			want: []f{
				{Check: "Claim/" + newRoot, Outcome: no, Message: `claim "` + newRoot + `" exists, and was not made by this restore: delete it, or create the restore again`},
				{Check: "Claim/hold", Outcome: no, Message: `claim "` + hold + `" exists: it must not, delete it`},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, bad(Preflight(seen(t, tc.story...)))); diff != "" {
				t.Errorf("%s\nPreflight() mismatch (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// otherNamespace: the source lives in another namespace, with its address.
func otherNamespace(_ *testing.T, s *story) {
	vm := build.VM("db", build.Disk("root"), build.TPM())
	vm.Namespace = "live"
	vm.Spec.Template.Spec.Domain.Devices.Interfaces = []kubevirtv1.Interface{{Name: "default", MacAddress: "02:00:00:00:00:01"}}
	s.in.Cluster.Machines = append(s.in.Cluster.Machines, *vm)
}

func quota(name string, key corev1.ResourceName, hard, used string) corev1.ResourceQuota {
	return corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.ResourceQuotaStatus{
		Hard: corev1.ResourceList{key: resource.MustParse(hard)}, Used: corev1.ResourceList{key: resource.MustParse(used)},
	}}
}

// living: a machine's instance that is there without it.
func living(vm *kubevirtv1.VirtualMachine) option {
	return func(_ *testing.T, s *story) {
		vmi := build.VMI(vm)
		vmi.Spec.Domain.Firmware = &kubevirtv1.Firmware{UUID: "another"}
		s.in.Cluster.Instances = append(s.in.Cluster.Instances, *vmi)
	}
}

// direct: an instance that somebody made without a machine, on one claim.
func direct(name, claim string) option {
	return func(_ *testing.T, s *story) {
		vmi := build.VMI(build.VM(name))
		vmi.OwnerReferences = nil
		vmi.Spec.Domain.Firmware = nil
		vmi.Spec.Volumes = []kubevirtv1.Volume{mountedClaim("root", claim)}
		s.in.Cluster.Instances = append(s.in.Cluster.Instances, *vmi)
	}
}

func mountedClaim(volume, claim string) kubevirtv1.Volume {
	v := kubevirtv1.Volume{Name: volume}
	v.PersistentVolumeClaim = &kubevirtv1.PersistentVolumeClaimVolumeSource{}
	v.PersistentVolumeClaim.ClaimName = claim
	return v
}
