package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/document"
	"github.com/vmstate/vmstate/test/build"
	"github.com/vmstate/vmstate/test/kube"
)

// restoreWorld is a namespace of the real API server with one store and, where a story
// wants it, the virtual machine db on the claims root-db and persistent-state-for-db-old.
//
// Jobs and instances have nobody who runs them here: play writes what the mover would
// report and makes and deletes the instance as KubeVirt would. Before it makes one, and
// after every write of the manager, whole must hold.
type restoreWorld struct {
	t         *testing.T
	cluster   *kube.Cluster
	namespace string
	vmUID     types.UID
	// firmware UUID of the machine: no other story's has it.
	firmware string
	// every says that each manager dies after its first write that took effect.
	every bool
	// cut is the write right after which the manager dies; negative never.
	cut    int
	writes int
	// filled is how many writes there were before the switch began.
	filled int
	dead   bool
	now    time.Time
	// locked says that restores have no identity, and movers wait for their keys.
	locked bool
}

var errKilled = errors.New("the manager was killed")

func newRestoreWorld(t *testing.T) *restoreWorld {
	w := &restoreWorld{t: t, cluster: kube.Shared(t), cut: -1, now: time.Now(), firmware: uuid.NewString()}
	w.namespace = w.cluster.Namespace(t)
	class := build.StorageClass("restore-fast")
	if err := w.cluster.Client.Create(t.Context(), class); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	s := build.Store("main")
	s.ObjectMeta = metav1.ObjectMeta{Name: "main", Namespace: w.namespace}
	status := s.Status.DeepCopy()
	w.create(s)
	s.Status = *status
	for i := range s.Status.Conditions {
		s.Status.Conditions[i].LastTransitionTime = metav1.Now()
	}
	w.must(w.cluster.Client.Status().Update(t.Context(), s))
	return w
}

func (w *restoreWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *restoreWorld) create(obj client.Object) {
	w.t.Helper()
	obj.SetUID("")
	obj.SetNamespace(w.namespace)
	w.must(w.cluster.Client.Create(w.t.Context(), obj))
}

func (w *restoreWorld) here() client.ListOption { return client.InNamespace(w.namespace) }

func (w *restoreWorld) get(name string, obj client.Object) bool {
	w.t.Helper()
	err := w.cluster.Client.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, obj)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return err == nil
}

func (w *restoreWorld) build() *kubevirtv1.VirtualMachine {
	vm := build.VM("db", build.Disk("root"), build.TPM(), build.EFI())
	vm.Spec.Template.Spec.Domain.Firmware.UUID = types.UID(w.firmware)
	return vm
}

// machine makes the virtual machine db, running, and binds its claims.
func (w *restoreWorld) machine() *kubevirtv1.VirtualMachine {
	vm := w.build()
	always := kubevirtv1.RunStrategyAlways
	vm.Spec.RunStrategy = &always
	vm.Spec.Template.Spec.Domain.Devices.Interfaces = []kubevirtv1.Interface{{
		Name: "default", InterfaceBindingMethod: kubevirtv1.InterfaceBindingMethod{Masquerade: &kubevirtv1.InterfaceMasquerade{}},
	}}
	w.create(vm)
	w.vmUID = vm.UID
	for name, label := range map[string]string{"root-db": "", "persistent-state-for-db-old": "db"} {
		w.claim(name, label)
	}
	return vm
}

// claim makes a claim with a volume of its own, bound by the real volume controller.
func (w *restoreWorld) claim(name, stateOf string) {
	c := build.Claim(name)
	class := "restore-fast"
	volume := w.namespace + "-" + name
	c.Spec.StorageClassName, c.Spec.VolumeName = &class, volume
	if stateOf != "" {
		c.Labels = map[string]string{v1alpha1.LabelPersistentState: stateOf}
	}
	pv := build.PV(c)
	pv.ObjectMeta = metav1.ObjectMeta{Name: volume}
	pv.Spec.StorageClassName = class
	pv.Spec.AccessModes = c.Spec.AccessModes
	// Reserved for it: the claims that other stories make are pending, and take what they find.
	pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: w.namespace, Name: name}
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	w.must(w.cluster.Client.Create(w.t.Context(), pv))
	w.t.Cleanup(func() { _ = w.cluster.Client.Delete(context.Background(), pv) })
	w.create(c)
	kube.Eventually(w.t, time.Minute, func() error {
		if !w.get(name, c) || c.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("claim %q is not bound", name)
		}
		return nil
	})
}

// from is what the mover finds in the store: the machine as it is now, or was.
func (w *restoreWorld) from() v1alpha1.RestoredFrom {
	vm := w.build()
	vm.Namespace, vm.UID = w.namespace, w.vmUID
	if vm.UID == "" {
		vm.UID = "lost"
	}
	always := kubevirtv1.RunStrategyAlways
	vm.Spec.RunStrategy = &always
	raw, err := document.Encode(document.Documents{VM: *vm, Expanded: *vm, Identity: document.Identity{
		FirmwareUUID: w.firmware, PersistentTPM: true, PersistentEFI: true,
	}})
	w.must(err)
	facts := func(name string, role v1alpha1.VolumeRole) v1alpha1.VolumeFacts {
		return v1alpha1.VolumeFacts{Name: name, Role: role, StorageClassName: "restore-fast", Driver: build.Driver,
			VolumeMode: "Filesystem", AccessModes: []string{"ReadWriteOnce"}, SizeBytes: 1 << 30}
	}
	return v1alpha1.RestoredFrom{
		VM: w.namespace + "/db", VMUID: vm.UID, BackupName: "nightly",
		Commit:    &v1alpha1.CommitRef{Key: "v/x/c/1", Digest: "aa", Sequence: 1},
		TakenAt:   metav1.NewMicroTime(w.now),
		Documents: &runtime.RawExtension{Raw: raw},
		Volumes:   []v1alpha1.VolumeFacts{facts("root", v1alpha1.RoleDisk), facts("persistent-state-for-db-abcde", v1alpha1.RoleFirmwareState)},
	}
}

// restore makes the VMStateRestore of a story.
func (w *restoreWorld) restore(spec v1alpha1.VMStateRestoreSpec) *v1alpha1.VMStateRestore {
	spec.Source = v1alpha1.RestoreSource{StoreRef: &v1alpha1.ObjectRef{Name: "main"}, VM: w.namespace + "/db"}
	if !w.locked {
		spec.IdentitySecretRef = &v1alpha1.ObjectRef{Name: "restore-key"}
	}
	rs := &v1alpha1.VMStateRestore{ObjectMeta: metav1.ObjectMeta{Name: "db-back"}, Spec: spec}
	w.create(rs)
	return rs
}

// reconciler is a manager that dies at the chosen write.
func (w *restoreWorld) reconciler() *RestoreReconciler {
	w.dead = false
	write := func(do func() error) error {
		if w.dead {
			return errKilled
		}
		err := do()
		w.writes++
		w.whole()
		// A write that met its own object, already there, is no reason to die again.
		if w.every && err == nil || w.cut == w.writes {
			w.dead = true
			return errKilled
		}
		return err
	}
	c := interceptor.NewClient(w.cluster.Client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			if len((&client.CreateOptions{}).ApplyOptions(o).DryRun) > 0 {
				return c.Create(ctx, obj, o...)
			}
			return write(func() error { return c.Create(ctx, obj, o...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.UpdateOption) error {
			if len((&client.UpdateOptions{}).ApplyOptions(o).DryRun) > 0 {
				return c.Update(ctx, obj, o...)
			}
			return write(func() error { return c.Update(ctx, obj, o...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, o ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, obj, p, o...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, obj, o...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
			return write(func() error { return c.SubResource(sub).Patch(ctx, obj, p, o...) })
		},
	})
	recorder := events.NewFakeRecorder(1000)
	return &RestoreReconciler{Client: c, Live: c, Events: recorder, Image: "localhost/vmstate:dev", Now: func() time.Time { return w.now }}
}

// whole: if KubeVirt started the machine now, it would start on disks and state that
// belong together: all old, all new, or nothing at all.
func (w *restoreWorld) whole() {
	w.t.Helper()
	vm := &kubevirtv1.VirtualMachine{}
	if !w.get("db", vm) {
		return
	}
	claims := &corev1.PersistentVolumeClaimList{}
	w.must(w.cluster.Client.List(w.t.Context(), claims, client.InNamespace(w.namespace)))
	var labelled []string
	exists := map[string]bool{}
	for _, c := range claims.Items {
		exists[c.Name] = c.DeletionTimestamp == nil // no new pod gets a claim that goes
		if c.Labels[v1alpha1.LabelPersistentState] == "db" && c.DeletionTimestamp == nil {
			labelled = append(labelled, c.Name)
		}
	}
	disk := vm.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName
	if !exists[disk] {
		return // the start stops before it comes to the firmware state
	}
	switch {
	case disk == "root-db" && slices.Equal(labelled, []string{"persistent-state-for-db-old"}):
	case strings.HasPrefix(disk, "db-root-") && len(labelled) == 1 && labelled[0] != "persistent-state-for-db-old":
	default:
		w.t.Errorf("after write %d a start would mix disk %q with state %q", w.writes, disk, labelled)
	}
}

// play does what the mover and KubeVirt would do next.
func (w *restoreWorld) play() {
	reports := &v1alpha1.VMStateReportList{}
	w.must(w.cluster.Client.List(w.t.Context(), reports, client.InNamespace(w.namespace)))
	for i := range reports.Items {
		r := &reports.Items[i]
		if r.Status.Outcome != "" || !w.get(r.Name, &batchv1.Job{}) || w.locked && !r.Status.Unlocked {
			continue
		}
		r.Status.Outcome = v1alpha1.OutcomeSucceeded
		if r.Spec.Task == v1alpha1.TaskResolve {
			r.Status.Resolve = &v1alpha1.ResolveResult{From: w.from()}
		} else {
			r.Status.Import = &v1alpha1.ImportResult{Volumes: []v1alpha1.ImportedVolume{
				{Name: "root", ContentRoot: "r"}, {Name: "persistent-state-for-db-abcde", ContentRoot: "s"},
			}}
		}
		w.must(client.IgnoreNotFound(w.cluster.Client.Status().Update(w.t.Context(), r)))
	}
	w.playPods()
	w.playInstance()
}

// playPods ends the pods of Jobs, as their kubelet would once the mover has reported.
func (w *restoreWorld) playPods() {
	pods := &corev1.PodList{}
	w.must(w.cluster.Client.List(w.t.Context(), pods, client.InNamespace(w.namespace)))
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == corev1.PodPending {
			pods.Items[i].Status.Phase = corev1.PodSucceeded
			w.must(client.IgnoreNotFound(w.cluster.Client.Status().Update(w.t.Context(), &pods.Items[i])))
		}
	}
}

func (w *restoreWorld) playInstance() {
	vm, vmi := &kubevirtv1.VirtualMachine{}, &kubevirtv1.VirtualMachineInstance{}
	if !w.get("db", vm) {
		return
	}
	running := w.get("db", vmi)
	wants := vm.Spec.RunStrategy != nil && *vm.Spec.RunStrategy == kubevirtv1.RunStrategyAlways
	switch {
	case running && !wants:
		w.must(client.IgnoreNotFound(w.cluster.Client.Delete(w.t.Context(), vmi)))
	case !running && wants && vm.Status.RestoreInProgress == nil:
		w.whole()
		w.start(vm)
	}
}

func (w *restoreWorld) start(vm *kubevirtv1.VirtualMachine) {
	vmi := build.VMI(vm)
	w.create(vmi)
	vmi.Status.Phase = kubevirtv1.Running
	w.must(w.cluster.Client.Update(w.t.Context(), vmi))
}

// step lets the manager make one pass, as a new process if the last one died.
func (w *restoreWorld) step(r *RestoreReconciler) *RestoreReconciler {
	request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: w.namespace, Name: "db-back"}}
	_, err := r.Reconcile(w.t.Context(), request)
	if w.dead {
		w.cut = -1
		return w.reconciler()
	}
	if err != nil && !apierrors.IsConflict(err) {
		w.t.Logf("pass: %v", err)
	}
	return r
}

// run makes passes until the restore has ended, or is gone.
func (w *restoreWorld) run(timeout time.Duration) *v1alpha1.VMStateRestore {
	w.t.Helper()
	r, rs := w.reconciler(), &v1alpha1.VMStateRestore{}
	deadline := time.Now().Add(timeout)
	for time.Now().Before(deadline) {
		r = w.step(r)
		w.play()
		if !w.get("db-back", rs) || rs.Status.CompletedAt != nil && len(rs.Finalizers) == 0 {
			return rs
		}
		w.t.Log(ready(rs))
		if rs.Status.Switch == nil {
			w.filled = w.writes
		}
	}
	w.t.Fatalf("not done within %s: %s", timeout, ready(rs))
	return nil
}

func ready(rs *v1alpha1.VMStateRestore) string {
	c := meta.FindStatusCondition(rs.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil {
		return "no condition"
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}
