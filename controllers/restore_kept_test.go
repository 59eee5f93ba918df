package controllers

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	kubevirtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/test/build"
	"github.com/vmstate/vmstate/test/kube"
)

// sweep lets the manager look at every claim of the namespace, as its watch would.
func (w *restoreWorld) sweep() {
	w.t.Helper()
	r := &KeptReconciler{Client: w.cluster.Client, Live: w.cluster.Client, Events: events.NewFakeRecorder(100), Now: func() time.Time { return w.now }}
	for _, name := range w.claims() {
		if _, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: w.namespace, Name: name}}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// claims that are there and stay, sorted.
func (w *restoreWorld) claims() []string {
	w.t.Helper()
	claims := &corev1.PersistentVolumeClaimList{}
	w.must(w.cluster.Client.List(w.t.Context(), claims, client.InNamespace(w.namespace)))
	var out []string
	for _, c := range claims.Items {
		if c.DeletionTimestamp == nil {
			out = append(out, c.Name)
		}
	}
	slices.Sort(out)
	return out
}

func keptNamesOf(rs *v1alpha1.VMStateRestore) []string {
	var out []string
	for _, r := range rs.Status.Replaced {
		out = append(out, r.KeptClaimName)
	}
	return out
}

// kept fails unless every replaced volume is bound to its kept claim, with the policy that it had.
func (w *restoreWorld) kept(rs *v1alpha1.VMStateRestore) {
	w.t.Helper()
	for _, r := range rs.Status.Replaced {
		c, pv := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
		if !w.get(r.KeptClaimName, c) || c.Status.Phase != corev1.ClaimBound || c.Spec.VolumeName != r.PersistentVolumeName {
			w.t.Errorf("claim %q keeps %q and is %q, want %q, Bound", r.KeptClaimName, c.Spec.VolumeName, c.Status.Phase, r.PersistentVolumeName)
		}
		w.must(w.cluster.Client.Get(w.t.Context(), types.NamespacedName{Name: r.PersistentVolumeName}, pv))
		if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			w.t.Errorf("volume %q of claim %q has the policy %q: it would stay on the storage without its claim", pv.Name, c.Name, pv.Spec.PersistentVolumeReclaimPolicy)
		}
	}
}

// TestKeptOutlivesRestore: the replaced volumes are kept as long as was asked for, also where
// the restore is deleted before; then they go, and nothing else does.
func TestKeptOutlivesRestore(t *testing.T) {
	w := newRestoreWorld(t)
	w.start(w.machine())
	w.restore(keepSeconds(3600))
	rs := w.runWell()
	w.kept(rs)
	names := keptNamesOf(rs)
	original := &corev1.PersistentVolumeClaim{}
	w.get(names[0], original)
	w.must(w.cluster.Client.Delete(t.Context(), rs))
	kube.Eventually(t, time.Minute, func() error {
		if w.get("db-back", &v1alpha1.VMStateRestore{}) {
			return fmt.Errorf("the restore is still there")
		}
		return nil
	})
	// Things that look like a kept claim, and are none: a copy under another name, and one that a person made.
	for _, name := range []string{"copy", "person"} {
		c := build.Claim(name)
		c.Labels, c.Annotations = original.Labels, original.Annotations
		w.create(c)
	}
	w.now = w.now.Add(50 * time.Minute)
	w.sweep()
	for _, name := range names {
		if !slices.Contains(w.claims(), name) {
			t.Errorf("claim %q is gone before its time", name)
		}
	}
	// One of them is looked at by a virtual machine of its owner's.
	look := build.VM("look")
	look.Spec.Template.Spec.Volumes = []kubevirtv1.Volume{{Name: "old"}}
	look.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim = &kubevirtv1.PersistentVolumeClaimVolumeSource{}
	look.Spec.Template.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = names[0]
	w.create(look)
	w.now = w.now.Add(2 * time.Hour)
	before := w.claims()
	w.sweep()
	want := slices.DeleteFunc(before, func(c string) bool { return c == names[1] })
	if got := w.claims(); !slices.Equal(got, want) {
		t.Errorf("claims %v after the time is over, want %v: one is used, the others were never ours", got, want)
	}
	w.must(w.cluster.Client.Delete(t.Context(), look))
	w.sweep()
	want = slices.DeleteFunc(want, func(c string) bool { return c == names[0] })
	if got := w.claims(); !slices.Equal(got, want) {
		t.Errorf("claims %v when it is not used any more, want %v", got, want)
	}
}

// runWell runs the restore to its end, which must be a good one.
func (w *restoreWorld) runWell() *v1alpha1.VMStateRestore {
	w.t.Helper()
	rs := w.run(time.Minute)
	if ready(rs)[:4] != "True" {
		w.t.Fatal(ready(rs))
	}
	return rs
}

// TestRestoreOrphaned deletes the virtual machine at each pass after the point of no return: no
// replaced volume is left on the storage without a claim, whatever the garbage collector took first.
func TestRestoreOrphaned(t *testing.T) {
	for _, extra := range []int{0, 2, 4} {
		t.Run(fmt.Sprint(extra), func(t *testing.T) {
			t.Parallel()
			w := newRestoreWorld(t)
			vm := w.machine()
			w.start(vm)
			// The machine owns its firmware state, as KubeVirt has it.
			state := &corev1.PersistentVolumeClaim{}
			w.get("persistent-state-for-db-old", state)
			asItWas := state.DeepCopy() // a patch, as the cluster's own controllers write claims as well
			state.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(vm, kubevirtv1.VirtualMachineGroupVersionKind)}
			w.must(w.cluster.Client.Patch(t.Context(), state, client.MergeFrom(asItWas)))
			w.restore(keepSeconds(3600))
			w.committed(extra)
			w.must(w.cluster.Client.Delete(t.Context(), vm))
			rs := w.run(2 * time.Minute)
			if rs.Status.Failure == nil || rs.Status.Failure.Reason != v1alpha1.ReasonSwitchFailed {
				t.Fatalf("failure %+v, want %s", rs.Status.Failure, v1alpha1.ReasonSwitchFailed)
			}
			w.storageOwned(rs)
			w.now = w.now.Add(2 * time.Hour)
			w.sweep()
			for _, name := range keptNamesOf(rs) {
				if slices.Contains(w.claims(), name) {
					t.Errorf("claim %q is still there after keepReplacedSeconds", name)
				}
			}
		})
	}
}

// committed makes passes until the point of no return, and some more.
func (w *restoreWorld) committed(extra int) {
	w.t.Helper()
	r, rs := w.reconciler(), &v1alpha1.VMStateRestore{}
	for range 2000 {
		if w.get("db-back", rs) && rs.Status.Switch != nil && rs.Status.Switch.CommittedAt != nil {
			if extra == 0 {
				return
			}
			extra--
		}
		r = w.step(r)
		w.play()
	}
	w.t.Fatalf("not committed: %s", ready(rs))
}

// storageOwned fails if a replaced volume stays without a claim: it must be bound, or go with
// the claim that had it.
func (w *restoreWorld) storageOwned(rs *v1alpha1.VMStateRestore) {
	w.t.Helper()
	for _, r := range rs.Status.Replaced {
		pv := &corev1.PersistentVolume{}
		if err := w.cluster.Client.Get(w.t.Context(), types.NamespacedName{Name: r.PersistentVolumeName}, pv); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			w.t.Fatal(err)
		}
		if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			w.t.Errorf("volume %q of claim %q is left with the policy %q, %s", pv.Name, r.ClaimName, pv.Spec.PersistentVolumeReclaimPolicy, pv.Status.Phase)
		}
	}
}

// TestLabelsOfAnotherWriter: what somebody wrote on a claim since it was looked at is not written
// over, as the plan may rest on it.
func TestLabelsOfAnotherWriter(t *testing.T) {
	w := newRestoreWorld(t)
	rs := w.restore(newVM)
	e := w.reconciler().executor()
	for name, act := range map[string]func(*corev1.PersistentVolumeClaim) action.Action{
		"label": func(c *corev1.PersistentVolumeClaim) action.Action {
			return action.LabelState{Claim: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion, VM: "db"}
		},
		"unlabel": func(c *corev1.PersistentVolumeClaim) action.Action {
			return action.UnlabelState{Claim: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion}
		},
		"hand-over": func(c *corev1.PersistentVolumeClaim) action.Action {
			return action.HandOver{Kind: action.KindClaim, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion, StateOf: "db"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			seen := build.StateClaim("before", name)
			w.create(seen)
			theirs := seen.DeepCopy()
			theirs.Labels[v1alpha1.LabelPersistentState] = "another"
			w.must(w.cluster.Client.Patch(t.Context(), theirs, client.MergeFrom(seen)))
			if _, err := e.run(t.Context(), rs, []action.Action{act(seen)}); !apierrors.IsConflict(err) {
				t.Errorf("error %v, want a conflict", err)
			}
			is := &corev1.PersistentVolumeClaim{}
			if w.get(seen.Name, is); is.Labels[v1alpha1.LabelPersistentState] != "another" {
				t.Errorf("the other writer's label became %q", is.Labels[v1alpha1.LabelPersistentState])
			}
			if _, err := e.run(t.Context(), rs, []action.Action{act(is)}); err != nil {
				t.Errorf("what is as it was seen is written: %v", err)
			}
		})
	}
}

// TestRestoreMeetsInstance: an instance that somebody made directly on a disk of the machine, while
// the new volumes were being filled, keeps its disk; the restore is given up.
func TestRestoreMeetsInstance(t *testing.T) {
	w := newRestoreWorld(t)
	w.start(w.machine())
	w.restore(keepSeconds(3600))
	r, rs := w.reconciler(), &v1alpha1.VMStateRestore{}
	for range 200 {
		if w.get("db-back", rs) && len(rs.Status.Volumes) > 0 {
			break
		}
		r = w.step(r)
		w.play()
	}
	rescue := build.VMI(build.VM("rescue", build.Disk("root")))
	rescue.OwnerReferences, rescue.Spec.Domain.Firmware = nil, nil
	rescue.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "root-db"
	w.create(rescue)
	rescue.Status.Phase = kubevirtv1.Running
	w.must(w.cluster.Client.Update(t.Context(), rescue))
	rs = w.run(time.Minute)
	want := `False PreflightFailed: meanwhile, claim "root-db", which would be replaced, is used by instance rescue as well: detach it there first, or restore as a new virtual machine; nothing was replaced`
	if got := ready(rs); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	w.untouchedOrRestored()
}
