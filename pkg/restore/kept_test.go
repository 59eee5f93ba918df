package restore

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
	"github.com/vmstate/vmstate/test/build"
)

const (
	oldState  = "persistent-state-for-db-fghij"
	keptRoot  = "root-db-replaced-0b1c2d3e"
	keptState = oldState + "-replaced-0b1c2d3e"
	stray     = "; what was recorded of replaced claims cannot be read, so their PersistentVolumes stay until a person makes claims for them or deletes them: pv-" + oldState + ", pv-root-db"
	leftOver  = `virtual machine "db" was deleted by somebody before the restore was done; restored volumes that are left: ` + newRoot + ", " + newState + "; restore again as a new virtual machine"
)

// gone: somebody deleted the machine after the point of no return.
func gone(_ *testing.T, s *story) { s.in.Target = nil }

// retained: the volumes of the replaced claims stay without them.
func retained(_ *testing.T, s *story) {
	for _, pv := range s.in.Volumes {
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}
}

// namesFree: the replaced claims are gone.
func namesFree(_ *testing.T, s *story) {
	delete(s.in.Claims, "root-db")
	delete(s.in.Claims, oldState)
}

// namespaceGoes: the namespace is being deleted.
func namespaceGoes(_ *testing.T, s *story) { s.in.NamespaceGoes = true }

// reserved: their volumes wait for the claims that keep them.
func reserved(_ *testing.T, s *story) {
	for name, kept := range map[string]string{"pv-root-db": keptRoot, "pv-" + oldState: keptState} {
		s.in.Volumes[name].Spec.ClaimRef = &corev1.ObjectReference{Namespace: build.Namespace, Name: kept}
	}
}

// bound: the claims that keep the replaced volumes have them.
func bound(t *testing.T, s *story) {
	reserved(t, s)
	for kept, old := range map[string]string{keptRoot: "root-db", keptState: oldState} {
		c := build.Claim(kept)
		c.Labels = map[string]string{v1alpha1.LabelOwnerUID: string(restoreUID)}
		c.Annotations = map[string]string{v1alpha1.AnnotationReplaced: old}
		c.Status.Phase = corev1.ClaimBound
		s.in.Claims[kept] = c
		s.in.Volumes["pv-"+old].Spec.ClaimRef.UID = c.UID
	}
}

// asBefore: their volumes have their reclaim policy back.
func asBefore(_ *testing.T, s *story) {
	for _, pv := range s.in.Volumes {
		pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	}
}

// remade: the machine was deleted, and made again by somebody with the old spec.
func remade(t *testing.T, s *story) {
	vm := build.VM("db", build.Disk("root"), build.TPM(), build.EFI())
	vm.UID = "vm-again"
	exists(vm)(t, s)
}

// TestPlanOrphaned: volumes that were taken from a machine which somebody deletes end up under
// claims, with the reclaim policy that they had; nothing is left on the storage that nobody owns.
func TestPlanOrphaned(t *testing.T) {
	orphan := []option{begun, committed, gone}
	failing := func(actions ...action.Action) want {
		return want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, after: step, actions: actions,
			message: leftOver + "; its replaced volumes are being put under claims of their own: " + oldState + ", root-db"}
	}
	testPlan(t, map[string]planCase{
		"Untouched": {
			reason: "a claim goes only when its volume stays without it",
			story:  orphan,
			want: failing(action.SetReclaimPolicy{Volume: "pv-" + oldState, ClaimUID: "claim-" + oldState, Policy: "Retain"},
				action.SetReclaimPolicy{Volume: "pv-root-db", ClaimUID: "claim-root-db", Policy: "Retain"}),
		},
		"Going": {
			reason: "a claim that a pod still holds is waited for, and named",
			story: append(orphan, retained, func(_ *testing.T, s *story) {
				s.in.Claims["root-db"].DeletionTimestamp = &metav1.Time{Time: now}
				delete(s.in.Claims, oldState)
				delete(s.in.Volumes, "pv-"+oldState)
			}),
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, after: patience,
				message: leftOver + "; its replaced volumes are being put under claims of their own: root-db"},
		},
		"OfADataVolume": {
			reason: "the DataVolume goes first, the very one that owns the claim",
			story: append(orphan, func(_ *testing.T, s *story) {
				controller := true
				s.in.Claims["root-db"].OwnerReferences = []metav1.OwnerReference{{Kind: "DataVolume", Name: "root-db", UID: "dv-1", Controller: &controller}}
				delete(s.in.Claims, oldState)
				delete(s.in.Volumes, "pv-"+oldState)
			}),
			want: want{state: conditions.Failing, reason: v1alpha1.ReasonSwitchFailed, after: step,
				message: leftOver + "; its replaced volumes are being put under claims of their own: root-db",
				actions: []action.Action{action.OrphanDataVolume{Name: "root-db", UID: "dv-1", Claim: "root-db", ClaimUID: "claim-root-db"}}},
		},
		"Retained": {
			reason: "the old names stop resolving",
			story:  append(orphan, retained),
			want: failing(action.DeleteReplaced{Claim: oldState, UID: "claim-" + oldState, Volume: "pv-" + oldState},
				action.DeleteReplaced{Claim: "root-db", UID: "claim-root-db", Volume: "pv-root-db"}),
		},
		"GoneWithTheMachine": {
			reason: "a state claim that the garbage collector took with its machine leaves a volume, which is reserved",
			story:  append(orphan, retained, namesFree),
			want: failing(action.ReserveVolume{Volume: "pv-" + oldState, ClaimUID: "claim-" + oldState, For: keptState},
				action.ReserveVolume{Volume: "pv-root-db", ClaimUID: "claim-root-db", For: keptRoot}),
		},
		"TakenByTheCollector": {
			reason: "a volume that goes with its claim, which somebody else deleted, is not bound to another: its contents may be gone already",
			story:  append(orphan, namesFree),
			want: want{state: conditions.Stalled, reason: v1alpha1.ReasonSwitchFailed, after: soon, message: leftOver,
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					failure(v1alpha1.ReasonSwitchFailed, leftOver)(s)
					s.CompletedAt = &metav1.Time{Time: now}
				}},
		},
		"Bound": {
			reason: "whoever deletes a kept claim deletes its volume, as it was before the restore",
			story:  append(orphan, retained, namesFree, bound),
			want: failing(action.SetReclaimPolicy{Volume: "pv-" + oldState, ClaimUID: "claim-" + keptState, Policy: "Delete"},
				action.SetReclaimPolicy{Volume: "pv-root-db", ClaimUID: "claim-" + keptRoot, Policy: "Delete"}),
		},
		"KeptClaimsDeleted": {
			reason: "who deletes a kept claim before it got its policy back wants the volume to go",
			story: append(orphan, retained, namesFree, bound, func(_ *testing.T, s *story) {
				delete(s.in.Claims, keptRoot)
				delete(s.in.Claims, keptState)
			}),
			want: failing(action.SetReclaimPolicy{Volume: "pv-" + oldState, ClaimUID: "claim-" + keptState, Policy: "Delete"},
				action.SetReclaimPolicy{Volume: "pv-root-db", ClaimUID: "claim-" + keptRoot, Policy: "Delete"}),
		},
		"Kept": {
			reason: "the restore ends when all of them are out of the way, and says where they are",
			story:  append(orphan, namesFree, bound, asBefore),
			want: want{state: conditions.Stalled, reason: v1alpha1.ReasonSwitchFailed, after: soon,
				message: leftOver + "; its replaced volumes are kept for 24h0m0s as " + keptState + ", " + keptRoot,
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					failure(v1alpha1.ReasonSwitchFailed, leftOver+"; its replaced volumes are kept for 24h0m0s as "+keptState+", "+keptRoot)(s)
					s.CompletedAt = &metav1.Time{Time: now}
					s.Replaced[0].KeptClaimUID, s.Replaced[1].KeptClaimUID = "claim-"+keptState, "claim-"+keptRoot
				}},
		},
		"FormUnreadable": {
			reason: "a volume that no claim can be made for stays, and is named",
			story: append(orphan, retained, namesFree, reserved, func(_ *testing.T, s *story) {
				for i := range s.in.Restore.Status.Replaced {
					s.in.Restore.Status.Replaced[i].Claim = nil
				}
			}),
			want: want{state: conditions.Stalled, reason: v1alpha1.ReasonSwitchFailed, after: soon, message: leftOver + stray,
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					failure(v1alpha1.ReasonSwitchFailed, leftOver+stray)(s)
					s.CompletedAt = &metav1.Time{Time: now}
				}},
		},
		"NamespaceGoes": {
			reason: "in a namespace that is being deleted no claim can be made: the volumes go as they would have gone",
			story:  append(orphan, retained, namesFree, namespaceGoes),
			want: failing(action.SetReclaimPolicy{Volume: "pv-" + oldState, ClaimUID: "claim-" + oldState, Policy: "Delete"},
				action.SetReclaimPolicy{Volume: "pv-root-db", ClaimUID: "claim-root-db", Policy: "Delete"}),
		},
		"NamespaceGoesReserved": {
			reason: "the restore does not hold the namespace up for claims that cannot be made",
			story:  append(orphan, retained, namesFree, reserved, namespaceGoes),
			want: want{state: conditions.Stalled, reason: v1alpha1.ReasonSwitchFailed, after: soon, message: leftOver,
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					failure(v1alpha1.ReasonSwitchFailed, leftOver)(s)
					s.CompletedAt = &metav1.Time{Time: now}
				}},
		},
		"MadeAgain": {
			reason: "a claim that a machine made anew is on is that machine's: it keeps it, with its policy",
			story: append(orphan, retained, remade, func(_ *testing.T, s *story) {
				delete(s.in.Claims, oldState)
			}),
			want: failing(action.ReserveVolume{Volume: "pv-" + oldState, ClaimUID: "claim-" + oldState, For: keptState},
				action.SetReclaimPolicy{Volume: "pv-root-db", ClaimUID: "claim-root-db", Policy: "Delete"}),
		},
		"InstanceAlone": {
			reason: "so is one that an instance is on which somebody made directly",
			story: append(orphan, asBefore, func(_ *testing.T, s *story) {
				s.in.Instance = build.VMI(build.VM("db", build.Disk("root")))
				delete(s.in.Claims, oldState)
				delete(s.in.Volumes, "pv-"+oldState)
			}),
			want: want{state: conditions.Stalled, reason: v1alpha1.ReasonSwitchFailed, after: soon, message: leftOver,
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					failure(v1alpha1.ReasonSwitchFailed, leftOver)(s)
					s.CompletedAt = &metav1.Time{Time: now}
				}},
		},
	})
}

// ready: the restore is done, and its kept claims are recorded.
func ready(t *testing.T, s *story) {
	begun(t, s)
	committed(t, s)
	namesFree(t, s)
	bound(t, s)
	asBefore(t, s)
	s.in.Restore.Status.CompletedAt = &metav1.Time{Time: now.Add(-time.Hour)}
	s.in.Restore.Status.Replaced[0].KeptClaimUID = "claim-" + keptState
	s.in.Restore.Status.Replaced[1].KeptClaimUID = "claim-" + keptRoot
	s.in.Restore.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: "True", Reason: v1alpha1.ReasonRestored, Message: "whole"}}
}

// noted: the kept claims say until when they are kept.
func noted(_ *testing.T, s *story) {
	for _, name := range []string{keptRoot, keptState} {
		c := s.in.Claims[name]
		c.Annotations[v1alpha1.AnnotationKeptUID] = string(c.UID)
		c.Annotations[v1alpha1.AnnotationKeptUntil] = now.Add(23 * time.Hour).Format(time.RFC3339)
	}
}

func letGone(_ *testing.T, s *story) { s.in.Restore.Finalizers = nil }

func dayLater(_ *testing.T, s *story) { s.in.Now = now.Add(24 * time.Hour) }

// TestPlanKept: what is kept says itself until when, before the restore can go.
func TestPlanKept(t *testing.T) {
	whole := func(after time.Duration, actions ...action.Action) want {
		return want{state: conditions.Done, reason: v1alpha1.ReasonRestored, message: "whole", after: after, actions: actions}
	}
	off := action.RemoveFinalizer{Finalizer: v1alpha1.FinalizerSwitch}
	mark := func(claim string) action.Action {
		return action.MarkKept{Claim: claim, UID: "claim-" + types.UID(claim), Until: now.Add(23 * time.Hour)}
	}
	testPlan(t, map[string]planCase{
		"Ended": {
			reason: "the note comes before the finalizer goes",
			story:  []option{ready},
			want:   whole(step, mark(keptState), mark(keptRoot)),
		},
		"Deleted": {
			reason: "also where the restore is being deleted, which ends its record",
			story:  []option{ready, func(_ *testing.T, s *story) { s.in.Restore.DeletionTimestamp = &metav1.Time{Time: now} }},
			want:   whole(step, mark(keptState), mark(keptRoot)),
		},
		"Noted": {
			reason: "with the note the restore is not needed any more",
			story:  []option{ready, noted},
			want:   whole(23*time.Hour, off),
		},
		"NoteTakenAway": {
			reason: "a person who takes the note away keeps the claim; it is not written again",
			story:  []option{ready, letGone},
			want:   whole(23 * time.Hour),
		},
		"Over": {
			reason: "the claims go by their own note; the restore waits for it",
			story:  []option{ready, noted, letGone, dayLater},
			want:   whole(patience),
		},
		"Removed": {
			reason: "that they are gone is recorded when it is seen",
			story: []option{ready, letGone, dayLater, func(_ *testing.T, s *story) {
				delete(s.in.Claims, keptRoot)
				delete(s.in.Claims, keptState)
			}},
			want: want{state: conditions.Done, reason: v1alpha1.ReasonRestored, message: "whole", after: soon,
				record: func(s *v1alpha1.VMStateRestoreStatus) {
					s.ReplacedRemovedAt = &metav1.Time{Time: now.Add(24 * time.Hour)}
				}},
		},
		"GivenUpBeforeTheCommit": {
			reason: "claims that were recorded and put back are not said to be removed",
			story: []option{begun, failedWith, dayLater, letGone, func(_ *testing.T, s *story) {
				s.in.Restore.Status.CompletedAt = &metav1.Time{Time: now}
			}},
			want: want{state: conditions.Stalled, reason: v1alpha1.ReasonSwitchFailed, message: "it was not to be"},
		},
	})
}

// TestInterruptedAfterTheEnd: an error while the restore lets go does not take back that it is done.
func TestInterruptedAfterTheEnd(t *testing.T) {
	in := seen(t, ready)
	d := Plan(in).Interrupted(in, errors.New("connection refused"))
	if d.State != conditions.Done || d.Message != "whole" || d.Status.ReplacedRemovedAt != nil {
		t.Errorf("Interrupted() = %v %q, removed %v", d.State, d.Message, d.Status.ReplacedRemovedAt)
	}
}

func TestExpiry(t *testing.T) {
	until := now.Add(time.Hour)
	cases := map[string]struct {
		change func(*corev1.PersistentVolumeClaim)
		want   bool
	}{
		"Kept":        {func(*corev1.PersistentVolumeClaim) {}, true},
		"NoTime":      {func(c *corev1.PersistentVolumeClaim) { delete(c.Annotations, v1alpha1.AnnotationKeptUntil) }, false},
		"NotATime":    {func(c *corev1.PersistentVolumeClaim) { c.Annotations[v1alpha1.AnnotationKeptUntil] = "for ever" }, false},
		"Copied":      {func(c *corev1.PersistentVolumeClaim) { c.UID = "another" }, false},
		"Renamed":     {func(c *corev1.PersistentVolumeClaim) { c.Name = "root-db" }, false},
		"AnotherName": {func(c *corev1.PersistentVolumeClaim) { c.Annotations[v1alpha1.AnnotationReplaced] = "data-db" }, false},
		"NoOwner":     {func(c *corev1.PersistentVolumeClaim) { delete(c.Labels, v1alpha1.LabelOwnerUID) }, false},
		"AnotherUID":  {func(c *corev1.PersistentVolumeClaim) { c.Labels[v1alpha1.LabelOwnerUID] = "9999" }, false},
		"Going":       {func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} }, false},
		"Adopted": {func(c *corev1.PersistentVolumeClaim) {
			c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(build.VM("db"), kubevirtv1.VirtualMachineGroupVersionKind)}
		}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := seen(t, ready, noted)
			c := in.Claims[keptRoot]
			c.Annotations[v1alpha1.AnnotationKeptUntil] = until.Format(time.RFC3339)
			tc.change(c)
			got, ok := Expiry(c)
			if ok != tc.want || ok && !got.Equal(until) {
				t.Errorf("Expiry() = %v, %v, want %v, %v", got, ok, until, tc.want)
			}
		})
	}
}

func TestUser(t *testing.T) {
	vm := build.VM("rescue")
	vm.Spec.Template.Spec.Volumes = []kubevirtv1.Volume{mountedClaim("old", keptRoot)}
	ended := build.VMI(vm)
	ended.Status.Phase = kubevirtv1.Failed
	pod := func(phase corev1.PodPhase) corev1.Pod {
		p := *build.Launcher(build.VM("look"))
		p.Name, p.Status.Phase = "look", phase
		p.Spec.Volumes = []corev1.Volume{{Name: "old"}}
		p.Spec.Volumes[0].PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: keptRoot}
		return p
	}
	for name, tc := range map[string]struct {
		around Around
		want   string
	}{
		"Nobody":   {Around{Machines: []kubevirtv1.VirtualMachine{*build.VM("db", build.Disk("root"))}}, ""},
		"Machine":  {Around{Machines: []kubevirtv1.VirtualMachine{*vm}}, "virtual machine rescue"},
		"Instance": {Around{Instances: []kubevirtv1.VirtualMachineInstance{*ended, *build.VMI(vm)}}, "instance rescue"},
		"Ended":    {Around{Instances: []kubevirtv1.VirtualMachineInstance{*ended}, Pods: []corev1.Pod{pod(corev1.PodSucceeded)}}, ""},
		"Pod":      {Around{Pods: []corev1.Pod{pod(corev1.PodPending)}}, "pod look"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.around.User(keptRoot); got != tc.want {
				t.Errorf("User() = %q, want %q", got, tc.want)
			}
		})
	}
}
