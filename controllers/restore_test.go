package controllers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/test/kube"
)

var newVM = v1alpha1.VMStateRestoreSpec{Mode: v1alpha1.RestoreNewVM, Target: &v1alpha1.RestoreTarget{VMName: "db"}}

func keepSeconds(n int64) v1alpha1.VMStateRestoreSpec {
	return v1alpha1.VMStateRestoreSpec{Mode: v1alpha1.RestoreInPlace, StopPolicy: v1alpha1.StopStop, KeepReplacedSeconds: &n}
}

// restored fails unless the machine is whole on its new claims, runs, and nothing of the
// restore's own is in the way.
func (w *restoreWorld) restored() *kubevirtv1.VirtualMachine {
	w.t.Helper()
	vm, claims := &kubevirtv1.VirtualMachine{}, &corev1.PersistentVolumeClaimList{}
	if !w.get("db", vm) {
		w.t.Fatal("there is no virtual machine")
	}
	w.must(w.cluster.Client.List(w.t.Context(), claims, client.InNamespace(w.namespace)))
	byName := map[string]*corev1.PersistentVolumeClaim{}
	var labelled []*corev1.PersistentVolumeClaim
	for i := range claims.Items {
		c := &claims.Items[i]
		byName[c.Name] = c
		if c.Labels[v1alpha1.LabelPersistentState] == "db" {
			labelled = append(labelled, c)
		}
	}
	disk := byName[vm.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName]
	switch {
	case disk == nil || disk.Name == "root-db":
		w.t.Errorf("the machine is on %+v", vm.Spec.Template.Spec.Volumes[0])
	case len(disk.OwnerReferences) > 0:
		w.t.Errorf("the disk, which was nobody's, belongs to %+v", disk.OwnerReferences)
	case len(labelled) != 1 || !metav1.IsControlledBy(labelled[0], vm):
		w.t.Errorf("firmware state: %d claims, want one that the machine controls", len(labelled))
	case vm.Status.RestoreInProgress != nil:
		w.t.Errorf("starts are still denied by %q", *vm.Status.RestoreInProgress)
	case vm.Spec.RunStrategy == nil || *vm.Spec.RunStrategy != kubevirtv1.RunStrategyAlways:
		w.t.Errorf("run strategy is %v, was Always", vm.Spec.RunStrategy)
	case !w.get("db", &kubevirtv1.VirtualMachineInstance{}):
		w.t.Error("the machine does not run")
	}
	return vm
}

func TestRestoreNewVM(t *testing.T) {
	w := newRestoreWorld(t)
	w.restore(newVM)
	rs := w.run(time.Minute)
	if ready(rs)[:4] != "True" {
		t.Fatal(ready(rs))
	}
	w.restored()
	if !meta.IsStatusConditionTrue(rs.Status.Conditions, v1alpha1.ConditionIdentityInCluster) {
		t.Error("an identity is in the cluster, and the restore does not say so")
	}
}

// TestRestoreInPlace: the old volumes are out of reach under other names, then gone.
func TestRestoreInPlace(t *testing.T) {
	w := newRestoreWorld(t)
	w.start(w.machine())
	w.restore(keepSeconds(3600))
	rs := w.run(time.Minute)
	if ready(rs)[:4] != "True" {
		t.Fatal(ready(rs))
	}
	w.restored()
	kept := func() []string {
		var out []string
		for _, r := range rs.Status.Replaced {
			c := &corev1.PersistentVolumeClaim{}
			if w.get(r.ClaimName, c) {
				t.Errorf("the old claim name %q still resolves", r.ClaimName)
			}
			if w.get(r.KeptClaimName, c) && c.DeletionTimestamp == nil {
				if c.Status.Phase != corev1.ClaimBound || c.Spec.VolumeName != w.namespace+"-"+r.ClaimName {
					t.Errorf("claim %q keeps volume %q, %s", c.Name, c.Spec.VolumeName, c.Status.Phase)
				}
				out = append(out, c.Name)
			}
		}
		return out
	}
	if got := kept(); len(got) != 2 {
		t.Fatalf("kept %v, want disk and state", got)
	}
	w.step(w.reconciler())
	if got := kept(); len(got) != 2 {
		t.Fatalf("kept %v before the time is over", got)
	}
	// A GitOps tool that writes the old spec back gets a machine that does not start, not a mix.
	vm := w.restored()
	restored := vm.DeepCopy()
	vm.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "root-db"
	w.must(w.cluster.Client.Update(t.Context(), vm))
	w.whole()
	restored.ResourceVersion = vm.ResourceVersion
	w.must(w.cluster.Client.Update(t.Context(), restored))
	w.now = w.now.Add(2 * time.Hour)
	w.sweep()
	if got := kept(); len(got) != 0 {
		t.Errorf("%v are still there after keepReplacedSeconds", got)
	}
}

// TestRestoreDeletedAfterwards: the restored machine outlives the object that restored it.
func TestRestoreDeletedAfterwards(t *testing.T) {
	w := newRestoreWorld(t)
	rs := w.restore(newVM)
	w.run(time.Minute)
	w.must(w.cluster.Client.Delete(t.Context(), rs))
	// The garbage collector has seen the deletion once it has taken what was the restore's: the reports.
	kube.Eventually(t, time.Minute, func() error {
		reports := &v1alpha1.VMStateReportList{}
		if err := w.cluster.Client.List(t.Context(), reports, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		accounts := &corev1.ServiceAccountList{}
		if err := w.cluster.Client.List(t.Context(), accounts, client.InNamespace(w.namespace), client.MatchingLabels{v1alpha1.LabelOwnerUID: string(rs.UID)}); err != nil {
			return err
		}
		if len(reports.Items)+len(accounts.Items) > 0 {
			return fmt.Errorf("%d reports and %d accounts are left", len(reports.Items), len(accounts.Items))
		}
		return nil
	})
	w.restored()
}

// TestRestoreKilled kills every manager right after its first write, whose answer it does
// not see any more, and lets the next one go on: so each write of a restore is somebody's
// last. A start never mixes meanwhile, and the end is a whole machine.
func TestRestoreKilled(t *testing.T) {
	for name, spec := range map[string]v1alpha1.VMStateRestoreSpec{"NewVM": newVM, "InPlace": keepSeconds(3600)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := restoreKilled(t, spec, func(w *restoreWorld) { w.every = true })
			t.Logf("killed after each of %d writes", w.writes)
		})
	}
}

// TestRestoreKilledOnce kills one manager in the middle of the switch; the next one lives.
func TestRestoreKilledOnce(t *testing.T) {
	whole := restoreKilled(t, keepSeconds(3600), func(*restoreWorld) {})
	t.Logf("%d writes, %d before the switch", whole.writes, whole.filled)
	const stride = 8 // each of them alone is in TestRestoreKilled already
	for cut := whole.filled; cut <= whole.writes; cut += stride {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			t.Parallel()
			restoreKilled(t, keepSeconds(3600), func(w *restoreWorld) { w.cut = cut })
		})
	}
}

func restoreKilled(t *testing.T, spec v1alpha1.VMStateRestoreSpec, how func(*restoreWorld)) *restoreWorld {
	t.Helper()
	w := newRestoreWorld(t)
	if spec.Mode == v1alpha1.RestoreInPlace {
		w.start(w.machine())
	}
	w.restore(spec)
	how(w)
	rs := w.run(4 * time.Minute)
	if ready(rs)[:4] != "True" {
		t.Fatal(ready(rs))
	}
	w.restored()
	return w
}

// TestRestoreDeleted deletes the restore after every pass from the fill on: it is undone,
// or finished, and the machine is whole in either case.
func TestRestoreDeleted(t *testing.T) {
	w := newRestoreWorld(t)
	w.start(w.machine())
	w.restore(keepSeconds(3600))
	first, all := w.passes(-1)
	t.Logf("%d passes, %d before the switch", all, first)
	for after := first - 1; after < all; after++ {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			w := newRestoreWorld(t)
			w.start(w.machine())
			rs := w.restore(keepSeconds(3600))
			w.passes(after)
			w.must(w.cluster.Client.Delete(t.Context(), rs))
			w.run(4 * time.Minute)
			w.untouchedOrRestored()
		})
	}
}

// passes makes at most limit passes, or as many as the restore takes if limit is negative,
// and tells how many of them were before the switch.
func (w *restoreWorld) passes(limit int) (first, all int) {
	w.t.Helper()
	r, rs := w.reconciler(), &v1alpha1.VMStateRestore{}
	for ; all != limit && all < 2000; all++ {
		if w.get("db-back", rs) && rs.Status.CompletedAt != nil {
			return first, all
		}
		if rs.Status.Switch == nil {
			first = all
		}
		r = w.step(r)
		w.play()
	}
	return first, all
}

func (w *restoreWorld) untouchedOrRestored() {
	w.t.Helper()
	vm := &kubevirtv1.VirtualMachine{}
	if !w.get("db", vm) {
		w.t.Fatal("there is no virtual machine")
	}
	if vm.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "root-db" {
		w.restored()
		return
	}
	for range 3 {
		w.play()
	}
	state := &corev1.PersistentVolumeClaim{}
	switch {
	case !w.get("persistent-state-for-db-old", state) || state.Labels[v1alpha1.LabelPersistentState] != "db":
		w.t.Errorf("the old state has the labels %v", state.Labels)
	case vm.Status.RestoreInProgress != nil:
		w.t.Errorf("starts are still denied by %q", *vm.Status.RestoreInProgress)
	case vm.Spec.RunStrategy == nil || *vm.Spec.RunStrategy != kubevirtv1.RunStrategyAlways:
		w.t.Errorf("run strategy is %v, was Always", vm.Spec.RunStrategy)
	case !w.get("db", &kubevirtv1.VirtualMachineInstance{}):
		w.t.Error("the machine does not run")
	}
	kube.Eventually(w.t, time.Minute, func() error {
		claims := &corev1.PersistentVolumeClaimList{}
		if err := w.cluster.Client.List(w.t.Context(), claims, client.InNamespace(w.namespace)); err != nil {
			return err
		}
		var names []string
		for _, c := range claims.Items {
			names = append(names, c.Name)
		}
		slices.Sort(names)
		if !slices.Equal(names, []string{"persistent-state-for-db-old", "root-db"}) {
			return fmt.Errorf("claims %v", names)
		}
		return nil
	})
}
