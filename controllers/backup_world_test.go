package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/backup"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/test/build"
	"github.com/vmstate/vmstate/test/kube"
)

// backupWorld is a namespace of the real API server with the virtual machine db and the store
// main. The real controllers of Jobs, claims, garbage and snapshots run; play does what the
// witness, the mover and a driver's sidecar would do next.
type backupWorld struct {
	t         *testing.T
	cluster   *kube.Cluster
	namespace string
	vm        *kubevirtv1.VirtualMachine
	guest     *guest
	// ahead is how far the manager's clock is ahead of the server's: a wait costs no time.
	ahead time.Duration
	// kill is the write (or call to the guest) whose effect is the manager's last; 0 for none, and
	// every write is the last of its manager if it is everyWrite.
	kill   int
	writes int
	// calls are the writes that were calls to the guest.
	calls  int
	dead   bool
	starts int
	// changes says that the firmware state differs between the readings of the first so many attempts.
	changes int
	// mute parts do nothing: a driver that hangs, a witness that does not start.
	mute map[string]bool
	// blind says that the manager can list nothing.
	blind bool
	// ungrouped says that nobody vouches for the driver's groups.
	ungrouped bool
	// hook is called before every pass.
	hook func(*v1alpha1.VMStateBackup)
}

// guest is a virtual machine's agent: frozen until it is thawed or KubeVirt's timer ends.
type guest struct {
	w       *backupWorld
	until   time.Time
	freezes int
	thaws   int
	refuse  error
	// deaf: it does not thaw, and says nothing.
	deaf bool

	pausing
}

func (g *guest) frozen() bool { return g.w.now().Before(g.until) }

func (g *guest) Freeze(_ context.Context, _, _ string, timeout time.Duration) error {
	g.w.calls++
	return g.w.write(func() error {
		g.freezes++
		if g.refuse == nil && !g.frozen() {
			g.until = g.w.now().Add(timeout)
		}
		return g.refuse
	})
}

func (g *guest) Unfreeze(context.Context, string, string) error {
	g.w.calls++
	return g.w.write(func() error {
		g.thaws++
		if g.deaf {
			return errors.New("the agent does not answer")
		}
		g.until = time.Time{}
		return nil
	})
}

func (g *guest) Expand(ctx context.Context, namespace, vm string) (*kubevirtv1.VirtualMachine, error) {
	out := &kubevirtv1.VirtualMachine{}
	err := g.w.cluster.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: vm}, out)
	return out, err
}

func (g *guest) Gone(context.Context) bool { return false }

const backupClass = "backup-fast"

func newBackupWorld(t *testing.T, disks ...string) *backupWorld {
	w := &backupWorld{t: t, cluster: kube.Shared(t), mute: map[string]bool{}}
	w.guest = &guest{w: w}
	w.namespace = w.cluster.Namespace(t)
	w.classes()
	w.store()
	options := []build.Option{build.TPM(), build.EFI()}
	for _, d := range disks {
		options = append(options, build.Disk(d))
		w.claim(build.Claim(d + "-db"))
	}
	w.claim(build.StateClaim("db", "abcde"))
	w.vm = build.VM("db", options...)
	w.create(w.vm)
	return w
}

func (w *backupWorld) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *backupWorld) now() time.Time { return time.Now().Add(w.ahead) }

func (w *backupWorld) create(obj client.Object) {
	w.t.Helper()
	obj.SetUID("")
	obj.SetNamespace(w.namespace)
	w.must(w.cluster.Client.Create(w.t.Context(), obj))
}

func (w *backupWorld) get(name string, obj client.Object) bool {
	w.t.Helper()
	err := w.cluster.Client.Get(w.t.Context(), types.NamespacedName{Namespace: w.namespace, Name: name}, obj)
	w.must(client.IgnoreNotFound(err))
	return err == nil
}

func (w *backupWorld) classes() {
	storage := build.StorageClass(backupClass)
	single := &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: backupClass}, Driver: build.Driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
	group := &groupsnapshotv1.VolumeGroupSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: backupClass}, Driver: build.Driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
	for _, obj := range []client.Object{storage, single, group} {
		w.must(client.IgnoreAlreadyExists(w.cluster.Client.Create(w.t.Context(), obj)))
	}
}

func (w *backupWorld) store() {
	s := build.Store("main")
	status := s.Status
	w.create(s)
	s.Status = status
	for i := range s.Status.Conditions {
		s.Status.Conditions[i].LastTransitionTime = metav1.Now()
	}
	w.must(w.cluster.Client.Status().Update(w.t.Context(), s))
}

// claim makes a claim and its volume, and waits until the real controller has bound them.
func (w *backupWorld) claim(c *corev1.PersistentVolumeClaim) {
	class := backupClass
	c.Spec.StorageClassName = &class
	c.Spec.VolumeName = w.namespace + "-" + c.Name
	pv := build.PV(c)
	pv.ObjectMeta = metav1.ObjectMeta{Name: c.Spec.VolumeName}
	pv.Spec.CSI.VolumeHandle = "handle-" + c.Spec.VolumeName
	pv.Spec.StorageClassName, pv.Spec.AccessModes = class, c.Spec.AccessModes
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: w.namespace, Name: c.Name} // a clone must not take it
	pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	w.must(w.cluster.Client.Create(w.t.Context(), pv))
	w.t.Cleanup(func() { _ = w.cluster.Client.Delete(context.Background(), pv) }) // the server ends with the tests
	w.create(c)
	kube.Eventually(w.t, 3*time.Minute, func() error {
		if !w.get(c.Name, c) || c.Status.Phase != corev1.ClaimBound {
			return fmt.Errorf("claim %q is not bound", c.Name)
		}
		return nil
	})
}

// start runs the virtual machine, with or without a guest agent.
func (w *backupWorld) start(agent bool) *kubevirtv1.VirtualMachineInstance {
	always := kubevirtv1.RunStrategyAlways
	w.vm.Spec.RunStrategy = &always
	w.must(w.cluster.Client.Update(w.t.Context(), w.vm))
	vmi := build.VMI(w.vm)
	if agent {
		build.Agent(vmi)
	}
	status := vmi.Status
	w.create(vmi)
	vmi.Status = status // the kind has no status subresource
	w.must(w.cluster.Client.Update(w.t.Context(), vmi))
	pod := build.Launcher(w.vm)
	state := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "persistent-state-for-db-abcde"}
	pod.Spec.Volumes = []corev1.Volume{{Name: "vm-state", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: state}}}
	pod.Spec.Containers = []corev1.Container{{Name: "compute", Image: "localhost/none:1"}}
	pod.Labels[kubevirtv1.CreatedByLabel] = string(vmi.UID)
	w.create(pod)
	pod.Status.Phase = corev1.PodRunning
	w.must(w.cluster.Client.Status().Update(w.t.Context(), pod))
	return vmi
}

func (w *backupWorld) backup(change func(*v1alpha1.VMStateBackupSpec)) *v1alpha1.VMStateBackup {
	b := build.Backup("nightly", "db")
	if change != nil {
		change(&b.Spec)
	}
	w.create(b)
	return b
}

// everyWrite lets no manager make a second write.
const everyWrite = -1

var errManagerKilled = errors.New("the manager was killed")

// write counts what the manager does to the outside, and kills it at the chosen count.
func (w *backupWorld) write(do func() error) error {
	if w.dead {
		return errManagerKilled
	}
	w.writes++
	if w.kill != w.writes && w.kill != everyWrite {
		return do()
	}
	if err := do(); err != nil && w.kill == everyWrite {
		return err // no effect, no death: it meets what its predecessor made
	}
	w.dead = true // whatever the answer was, it reaches nobody
	return errManagerKilled
}

// manager is a new process.
func (w *backupWorld) manager() *BackupReconciler {
	w.dead = false
	w.starts++
	c := interceptor.NewClient(w.cluster.Client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if w.blind {
				return errors.New("nothing can be listed")
			}
			return c.List(ctx, list, o...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			return w.write(func() error { return c.Create(ctx, obj, o...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.UpdateOption) error {
			return w.write(func() error { return c.Update(ctx, obj, o...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, o ...client.PatchOption) error {
			return w.write(func() error { return c.Patch(ctx, obj, p, o...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.DeleteOption) error {
			return w.write(func() error { return c.Delete(ctx, obj, o...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
			return w.write(func() error { return c.SubResource(sub).Patch(ctx, obj, p, o...) })
		},
	})
	r := &BackupReconciler{
		Client: c, Live: c, Guests: w.guest, Events: events.NewFakeRecorder(1000), Image: "localhost/vmstate:dev",
		Process: fmt.Sprintf("manager-%d", w.starts), Now: w.now,
		Knowledge: w.knowledge(),
	}
	w.must(Releaser{Backups: r}.Start(w.t.Context()))
	return r
}

// run makes passes until the backup has ended, or is gone.
func (w *backupWorld) run(timeout time.Duration) *v1alpha1.VMStateBackup {
	w.t.Helper()
	r, b := w.manager(), &v1alpha1.VMStateBackup{}
	request := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: w.namespace, Name: "nightly"}}
	deadline := time.Now().Add(timeout)
	for time.Now().Before(deadline) {
		if !w.get("nightly", b) || b.Status.CompletedAt != nil && len(b.Finalizers) == 0 {
			return b
		}
		if w.hook != nil {
			w.hook(b)
		}
		before := w.writes - w.calls
		result, err := r.Reconcile(w.t.Context(), request)
		if err != nil && !w.dead {
			w.t.Logf("pass: %v", err)
		}
		if w.dead {
			if w.kill != everyWrite {
				w.kill = 0
			}
			r = w.manager()
		}
		played := w.play()
		if before == w.writes-w.calls && !played {
			time.Sleep(20 * time.Millisecond)
			w.ahead += w.skip(b, result.RequeueAfter)
		}
	}
	w.t.Fatalf("not done within %s: %s", timeout, said(b))
	return nil
}

// skip is how much of a wait passes at once. Where the real controllers are waited for, only
// they can make it shorter.
func (w *backupWorld) skip(b *v1alpha1.VMStateBackup, wait time.Duration) time.Duration {
	switch stage := backup.StageOf(b); {
	case stage == backup.StageBeginning: // what is being removed between attempts has a limit
		return min(wait, 500*time.Millisecond)
	case w.mute["Driver"], stage == backup.StageEnding:
		return min(wait, 5*time.Second)
	default:
		return min(wait, 50*time.Millisecond)
	}
}

func said(b *v1alpha1.VMStateBackup) string {
	for _, c := range b.Status.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return "no condition"
}

// clean waits until nothing of the backup is left but what it may keep: no object, no label, no
// lock, no Secret with state, no frozen guest.
func (w *backupWorld) clean(b *v1alpha1.VMStateBackup, kept ...string) {
	w.t.Helper()
	kube.Eventually(w.t, 3*time.Minute, func() error {
		w.play()
		for _, list := range []client.ObjectList{
			&batchv1.JobList{}, &v1alpha1.VMStateReportList{}, &corev1.PersistentVolumeClaimList{}, &corev1.ConfigMapList{},
			&corev1.ServiceAccountList{}, &rbacv1.RoleBindingList{}, &snapshotv1.VolumeSnapshotList{},
			&groupsnapshotv1.VolumeGroupSnapshotList{}, &corev1.SecretList{},
		} {
			w.must(w.cluster.Client.List(w.t.Context(), list, client.InNamespace(w.namespace)))
			if err := onlyKept(list, b, kept); err != nil {
				return err
			}
		}
		return nil
	})
	vm := &kubevirtv1.VirtualMachine{}
	if w.get("db", vm) && vm.Status.SnapshotInProgress != nil {
		w.t.Errorf("VM is still locked by %q", *vm.Status.SnapshotInProgress)
	}
	claims := &corev1.PersistentVolumeClaimList{}
	w.must(w.cluster.Client.List(w.t.Context(), claims, client.InNamespace(w.namespace), client.HasLabels{v1alpha1.LabelGroupMember}))
	if len(claims.Items) > 0 {
		w.t.Errorf("claim %q still carries the group's label", claims.Items[0].Name)
	}
	if w.guest.frozen() {
		w.t.Error("the guest is still frozen")
	}
	w.runs()
}

func onlyKept(list client.ObjectList, b *v1alpha1.VMStateBackup, kept []string) error {
	raw, err := json.Marshal(list)
	if err != nil {
		return err
	}
	var found struct {
		Items []metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(raw, &found); err != nil {
		return err
	}
	for _, o := range found.Items {
		if !strings.HasPrefix(o.Name, job.Name(b.UID, "")) {
			continue
		}
		keep := false
		for _, name := range kept {
			keep = keep || name == o.Name
		}
		if !keep {
			return fmt.Errorf("%T %q is left", list, o.Name)
		}
	}
	return nil
}
