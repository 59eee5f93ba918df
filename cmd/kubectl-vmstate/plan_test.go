package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/controllers"
	"github.com/vmstate/vmstate/pkg/backup"
	"github.com/vmstate/vmstate/pkg/inventory"
	"github.com/vmstate/vmstate/pkg/snapshotset"
	"github.com/vmstate/vmstate/test/build"
)

var update = flag.Bool("update", false, "write testdata/plan anew")

// planStorage is a row of the matrix: the volumes of a machine, and what the cluster offers for them.
type planStorage struct {
	name, title string
	disks       []planVolume
	state       planVolume
	snapshots   []string // drivers with a VolumeSnapshotClass
	groups      []string // drivers with a VolumeGroupSnapshotClass
}

type planVolume struct {
	name, class, driver string
	mode                corev1.PersistentVolumeMode
	access              corev1.PersistentVolumeAccessMode
	labels              map[string]string
}

func volumesOn(class, driver string, mode corev1.PersistentVolumeMode, access corev1.PersistentVolumeAccessMode, names ...string) (out []planVolume) {
	for _, name := range names {
		out = append(out, planVolume{name: name, class: class, driver: driver, mode: mode, access: access})
	}
	return out
}

func planStorages() []planStorage {
	const (
		files, block = corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock
		one, many    = corev1.ReadWriteOnce, corev1.ReadWriteMany
		rbd, cephfs  = "rook-ceph.rbd.csi.ceph.com", "rook-ceph.cephfs.csi.ceph.com"
		ebs, nfs     = "ebs.csi.aws.com", "nfs.csi.k8s.io"
		linstor      = "linstor.csi.linbit.com"
	)
	on := volumesOn
	state := func(class, driver string, access corev1.PersistentVolumeAccessMode) planVolume {
		return on(class, driver, files, access, "")[0]
	}
	together := on("linstor", linstor, block, many, "root", "data")
	for i := range together {
		together[i].labels = map[string]string{"linstor.csi.linbit.com/consistency-group": "db"}
	}
	return []planStorage{
		{name: "node-local", title: "node-local without snapshots: local-path", disks: on("local-path", "", files, one, "root"), state: state("local-path", "", one)},
		{
			name: "node-local-csi", title: "node-local without snapshots: KubeVirt's hostpath-provisioner",
			disks: on("hostpath-csi", "kubevirt.io.hostpath-provisioner", files, one, "root", "data"), state: state("hostpath-csi", "kubevirt.io.hostpath-provisioner", one),
		},
		{
			name: "nfs", title: "NFS, whose snapshots are tar archives", disks: on("nfs", nfs, files, many, "root"), state: state("nfs", nfs, many),
			snapshots: []string{nfs},
		},
		{
			name: "instant-clone", title: "instant clone: RBD Filesystem RWO, one disk, state on the same class", disks: on("rbd", rbd, files, one, "root"),
			state: state("rbd", rbd, one), snapshots: []string{rbd},
		},
		{
			name: "instant-clone-group", title: "instant clone: RBD Filesystem RWO, two disks, group snapshots", disks: on("rbd", rbd, files, one, "root", "data"),
			state: state("rbd", rbd, one), snapshots: []string{rbd}, groups: []string{rbd},
		},
		{
			name: "migratable", title: "migratable: RBD Block RWX, two disks, state on CephFS RWX", disks: on("rbd-block", rbd, block, many, "root", "data"),
			state: state("cephfs", cephfs, many), snapshots: []string{rbd, cephfs}, groups: []string{rbd, cephfs},
		},
		{
			name: "migratable-nfs-state", title: "migratable: RBD Block RWX, state on NFS RWX", disks: on("rbd-block", rbd, block, many, "root"),
			state: state("nfs", nfs, many), snapshots: []string{rbd},
		},
		{
			name: "cephfs-disks", title: "disks on CephFS, whose clones are full copies", disks: on("cephfs", cephfs, files, many, "root"),
			state: state("cephfs", cephfs, many), snapshots: []string{cephfs},
		},
		{
			name: "zonal", title: "zonal cloud block: EBS Block RWO, one disk", disks: on("gp3", ebs, block, one, "root"),
			state: state("gp3", ebs, one), snapshots: []string{ebs},
		},
		{
			name: "zonal-two-disks", title: "zonal cloud block: EBS Block RWO, two disks, no groups", disks: on("gp3", ebs, block, one, "root", "data"),
			state: state("gp3", ebs, one), snapshots: []string{ebs},
		},
		{
			name: "replicated", title: "replicated: LINSTOR Filesystem RWO, two disks, group snapshots", disks: on("linstor", linstor, files, one, "root", "data"),
			state: state("linstor", linstor, one), snapshots: []string{linstor}, groups: []string{linstor},
		},
		{
			name: "replicated-consistency-group", title: "replicated: LINSTOR Block RWX, two disks of one consistency group", disks: together,
			state: state("linstor", linstor, one), snapshots: []string{linstor}, groups: []string{linstor},
		},
		{
			name: "replicated-longhorn", title: "replicated: Longhorn Block RWX, two disks, groups that are not cut together",
			disks: on("longhorn", "driver.longhorn.io", block, many, "root", "data"), state: state("longhorn", "driver.longhorn.io", one),
			snapshots: []string{"driver.longhorn.io"}, groups: []string{"driver.longhorn.io"},
		},
		{
			name: "several-drivers", title: "disks on two drivers", disks: append(on("rbd", rbd, block, many, "root"), on("gp3", ebs, block, one, "data")...),
			state: state("rbd", rbd, one), snapshots: []string{rbd, ebs}, groups: []string{rbd},
		},
		{
			name: "unknown-driver", title: "a driver that nobody vouches for, two disks, group snapshots", disks: on("fast", build.Driver, block, one, "root", "data"),
			state: state("fast", build.Driver, one), snapshots: []string{build.Driver}, groups: []string{build.Driver},
		},
	}
}

// planState is a column of the matrix: the state that a machine is in, and how the backup is asked for.
type planState struct {
	title   string
	stopped bool
	terms   func(*termFlags)
	flags   string
	change  func(*inventory.Seen)
}

func planStates() []planState {
	now := metav1.NewTime(time.Unix(1, 0))
	condition := func(kind kubevirtv1.VirtualMachineInstanceConditionType, reason string) func(*inventory.Seen) {
		return func(s *inventory.Seen) {
			s.VMI.Status.Conditions = append(s.VMI.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason})
		}
	}
	required := func(f *termFlags) { f.quiesce = string(v1alpha1.QuiesceRequired) }
	agent := condition(kubevirtv1.VirtualMachineInstanceAgentConnected, "")
	return []planState{
		{title: "running, no guest agent"},
		{title: "running, no guest agent, and a freeze is required", terms: required, flags: " --quiesce Required"},
		{title: "running, guest agent connected", change: agent},
		{title: "running, guest agent hanging (KubeVirt goes on saying that it is connected)", change: agent, terms: required, flags: " --quiesce Required"},
		{title: "running, no guest agent, and no pause is allowed", terms: func(f *termFlags) { f.maxPause = 0 }, flags: " --max-pause 0"},
		{title: "running, with a liveness probe, so that KubeVirt does not pause it", change: func(s *inventory.Seen) {
			s.VMI.Spec.LivenessProbe = &kubevirtv1.Probe{Handler: kubevirtv1.Handler{TCPSocket: &corev1.TCPSocketAction{}}}
		}},
		{title: "paused by an I/O error of a disk", change: condition(kubevirtv1.VirtualMachineInstancePaused, "PausedIOError")},
		{title: "paused by its owner", change: condition(kubevirtv1.VirtualMachineInstancePaused, snapshotset.PausedByUser)},
		{title: "stopped", stopped: true},
		{title: "starting", change: func(s *inventory.Seen) {
			s.VMI.Status.Phase, s.VMI.Status.NodeName, s.Launchers = kubevirtv1.Scheduling, "", nil
		}},
		{title: "crash-looping", stopped: true, change: func(s *inventory.Seen) {
			always := kubevirtv1.RunStrategyAlways
			s.VM.Spec.RunStrategy, s.VM.Status.PrintableStatus = &always, kubevirtv1.VirtualMachineStatusCrashLoopBackOff
		}},
		{title: "migrating", change: func(s *inventory.Seen) {
			s.Migrations = []kubevirtv1.VirtualMachineInstanceMigration{{ObjectMeta: metav1.ObjectMeta{Name: "kubevirt-migrate-vm-x"}}}
			s.VMI.Status.MigrationState = &kubevirtv1.VirtualMachineInstanceMigrationState{StartTimestamp: &now}
		}},
		{title: "evacuating: its node is drained, the migration has not begun", change: func(s *inventory.Seen) { s.VMI.Status.EvacuationNodeName = build.Node }},
		{title: "volume migration", change: func(s *inventory.Seen) {
			s.VM.Status.VolumeUpdateState = &kubevirtv1.VolumeUpdateState{VolumeMigrationState: &kubevirtv1.VolumeMigrationState{}}
			s.VMI.Status.MigratedVolumes = []kubevirtv1.StorageMigratedVolumeInfo{{VolumeName: "root"}}
		}},
		{title: "hot-plug in progress", change: func(s *inventory.Seen) {
			s.VMI.Status.VolumeStatus = []kubevirtv1.VolumeStatus{{Name: "root", Phase: kubevirtv1.HotplugVolumeMounted, HotplugVolume: &kubevirtv1.HotplugVolumeStatus{}}}
		}},
	}
}

// TestPlanMatrix prints what kubectl vmstate plan says of every storage of DESIGN section 9 and every state of a
// machine, and compares it with testdata/plan. A change there is a change of what people are promised.
func TestPlanMatrix(t *testing.T) {
	for _, storage := range planStorages() {
		t.Run(storage.name, func(t *testing.T) {
			var got bytes.Buffer
			fmt.Fprintf(&got, "# %s\n", storage.title)
			for _, state := range planStates() {
				fmt.Fprintf(&got, "\n# %s\n$ kubectl vmstate plan db%s\n%s", state.title, state.flags, transcript(t, storage, state))
			}
			file := filepath.Join("testdata", "plan", storage.name+".txt")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v; go test -run TestPlanMatrix -update writes it", err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

// transcript is what a person sees, with the exit code if it is not 0.
func transcript(t *testing.T, storage planStorage, state planState) string {
	t.Helper()
	seen := controllers.Preview{Storage: storage.offers()}
	seen.Machine.Inventory, seen.Machine.Refusals = inventory.Of(storage.machine(state))
	terms := termFlags{quiesce: string(v1alpha1.QuiesceIfAvailable), freezeTimeout: 30 * time.Second, maxPause: 2 * time.Second}
	if state.terms != nil {
		state.terms(&terms)
	}
	var text bytes.Buffer
	a := &app{out: &text, err: &text, format: formatText}
	if err := a.showPlan(build.Namespace, terms.spec("db"), seen); err != nil {
		explain(a.err, err)
		fmt.Fprintf(&text, "exit %d\n", exitCode(err))
	}
	agrees(t, storage, state, terms)
	return text.String()
}

// agrees compares what is printed as JSON with what is decided: both come to the same.
func agrees(t *testing.T, storage planStorage, state planState, terms termFlags) {
	t.Helper()
	seen := controllers.Preview{Storage: storage.offers()}
	seen.Machine.Inventory, seen.Machine.Refusals = inventory.Of(storage.machine(state))
	spec := terms.spec("db")
	out := backup.Foresee(&spec, seen.Machine, seen.Storage)
	v := makePlan("prod", &spec, seen, out)
	if len(v.Obstacles) != len(out.Obstacles) || (v.Holds == nil) != (len(out.Obstacles) > 0) || (v.Guest == nil) != (v.Holds == nil) {
		t.Errorf("%s, %s: a plan with %d obstacles is shown with %d, and says %+v", storage.name, state.title, len(out.Obstacles), len(v.Obstacles), v.Holds)
	}
	for _, o := range v.Obstacles {
		if o.Object == "" || o.Next == "" {
			t.Errorf("%s, %s: obstacle %q names no object or no next step", storage.name, state.title, o.Message)
		}
	}
}

func (p planStorage) machine(state planState) inventory.Seen {
	options := []build.Option{build.TPM(), build.EFI()}
	for _, d := range p.disks {
		options = append(options, build.Disk(d.name))
	}
	vm := build.VM("db", options...)
	in := inventory.Seen{
		VM: vm, Name: "db", Expanded: vm, Claims: map[string]*corev1.PersistentVolumeClaim{}, Volumes: map[string]*corev1.PersistentVolume{},
	}
	for _, d := range p.disks {
		d.bind(&in, build.Claim(d.name+"-db"))
	}
	claim := build.StateClaim("db", "k2x7p")
	p.state.bind(&in, claim)
	if !state.stopped {
		always := kubevirtv1.RunStrategyAlways
		vm.Spec.RunStrategy = &always
		in.VMI = build.VMI(vm)
		pod := build.Launcher(vm, claim.Name)
		pod.Spec.Volumes[0].Name = "vm-state"
		in.Launchers = []corev1.Pod{*pod}
	}
	if state.change != nil {
		state.change(&in)
	}
	return in
}

func (v planVolume) bind(in *inventory.Seen, claim *corev1.PersistentVolumeClaim) {
	claim.Spec.StorageClassName, claim.Spec.VolumeMode = &v.class, &v.mode
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{v.access}
	for key, value := range v.labels {
		metav1.SetMetaDataLabel(&claim.ObjectMeta, key, value)
	}
	pv := build.PV(claim)
	if v.driver == "" {
		pv.Spec.CSI = nil
	} else {
		pv.Spec.CSI.Driver = v.driver
	}
	in.Claims[claim.Name], in.Volumes[pv.Name] = claim, pv
}

func (p planStorage) offers() snapshotset.Storage {
	out := snapshotset.Storage{Served: true, GroupVersion: "v1"}
	for _, driver := range p.snapshots {
		out.Classes = append(out.Classes, snapshotv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: short(driver) + "-snapshots"}, Driver: driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		})
	}
	for _, driver := range p.groups {
		out.GroupClasses = append(out.GroupClasses, groupsnapshotv1.VolumeGroupSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: short(driver) + "-groups"}, Driver: driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
		})
	}
	return out
}

// short is a word for a driver, as administrators name their classes.
func short(driver string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(driver, "rook-ceph."), ".")
	return name
}
