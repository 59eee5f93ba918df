package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/snapshotset"
	"github.com/vmstate/vmstate/test/build"
)

// pausing is what KubeVirt knows of a guest's pauses; the instance's condition says the same.
type pausing struct {
	pauses, unpauses int
	// calls to pause, unpause, freeze and thaw that had an effect, in their order.
	order []string
	// late: the next pause is answered with a time-out, and lands so much later.
	late  time.Duration
	lands time.Time
	// refusal of a pause.
	refusal error
}

var paused = kubevirtv1.VirtualMachineInstancePaused

func conflict(why string) error {
	return apierrors.NewConflict(kubevirtv1.Resource("virtualmachineinstances"), "db", errors.New(why))
}

func (g *guest) isPaused() bool { return g.w.paused() != nil }

// paused is the condition of the instance; nil if there is none.
func (w *backupWorld) paused() *kubevirtv1.VirtualMachineInstanceCondition {
	vmi := &kubevirtv1.VirtualMachineInstance{}
	if !w.get("db", vmi) {
		return nil
	}
	i := slices.IndexFunc(vmi.Status.Conditions, func(c kubevirtv1.VirtualMachineInstanceCondition) bool { return c.Type == paused })
	if i < 0 {
		return nil
	}
	return &vmi.Status.Conditions[i]
}

// setPaused writes the condition as virt-handler does.
func (w *backupWorld) setPaused(is bool) {
	vmi := &kubevirtv1.VirtualMachineInstance{}
	w.get("db", vmi)
	vmi.Status.Conditions = slices.DeleteFunc(vmi.Status.Conditions, func(c kubevirtv1.VirtualMachineInstanceCondition) bool { return c.Type == paused })
	if is {
		vmi.Status.Conditions = append(vmi.Status.Conditions, kubevirtv1.VirtualMachineInstanceCondition{
			Type: paused, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.now()), Reason: "PausedByUser",
		})
	}
	w.must(w.cluster.Client.Update(context.Background(), vmi))
}

func (g *guest) Pause(context.Context, string, string) error {
	g.w.calls++
	return g.w.write(func() error {
		g.pauses++
		switch {
		case g.refusal != nil:
			return g.refusal
		case g.isPaused():
			return conflict("VMI is already paused")
		case g.late > 0:
			g.lands, g.late = g.w.now().Add(g.late), 0
			return context.DeadlineExceeded
		}
		g.w.setPaused(true)
		g.order = append(g.order, "pause")
		return nil
	})
}

func (g *guest) Unpause(ctx context.Context, namespace, _ string) error {
	g.w.calls++
	return g.w.write(func() error {
		g.unpauses++
		vm := &kubevirtv1.VirtualMachine{}
		if err := g.w.cluster.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "db"}, vm); err != nil {
			return err
		}
		switch {
		case vm.Status.SnapshotInProgress != nil:
			return conflict("VM snapshot is in progress")
		case !g.isPaused():
			return conflict("VMI is not paused")
		}
		g.w.setPaused(false)
		g.order = append(g.order, "unpause")
		return nil
	})
}

// playFence is the witness of a fence: it reads while the guest is paused, and never else.
func (w *backupWorld) playFence(r *v1alpha1.VMStateReport, b *v1alpha1.VMStateBackup, attempt int32) {
	at := metav1.NewMicroTime(w.now())
	for _, a := range b.Status.Attempts {
		switch {
		case a.Number != attempt:
		case a.CutEnded != nil:
			r.Status.Outcome = v1alpha1.OutcomeSucceeded
		case a.Fence != nil && a.Fence.PausedAt != nil && r.Status.Witness.Fenced == nil && w.paused() != nil:
			r.Status.Witness.Fenced = &v1alpha1.WitnessReading{Digest: digestOf("3"), StartedAt: at, EndedAt: at}
		}
	}
}

func (w *backupWorld) knowledge() snapshotset.Knowledge {
	if w.ungrouped {
		return snapshotset.NewKnowledge(nil)
	}
	return snapshotset.NewKnowledge([]snapshotset.Driver{{Name: build.Driver, GroupsCutTogether: true, Source: "test"}})
}

// runs fails the test if a pause of ours is left.
func (w *backupWorld) runs() {
	w.t.Helper()
	if len(w.guest.order) > 0 && w.guest.isPaused() {
		w.t.Error("the guest is still paused")
	}
}

// newFenceWorld has two disks on a driver that cuts no groups, and lands the pauses that are late.
func newFenceWorld(t *testing.T) *backupWorld {
	w := newBackupWorld(t, "root", "data")
	w.ungrouped = true
	w.hook = func(*v1alpha1.VMStateBackup) { w.land() }
	return w
}

func (w *backupWorld) land() {
	if g := w.guest; !g.lands.IsZero() && w.now().After(g.lands) {
		g.lands = time.Time{}
		w.setPaused(true)
		g.order = append(g.order, "late pause")
	}
}

// patient allows for a slow machine: what is under test takes tenths of a second.
func patient(s *v1alpha1.VMStateBackupSpec) {
	s.Require.MaxPause = &metav1.Duration{Duration: 25 * time.Second}
}

var fencedAtOnce = reached{
	Said:  "True Stored: 3 volumes of 3.0 GiB stored as commit 1",
	Disks: v1alpha1.DisksFence, State: v1alpha1.StateFence, Quiesce: v1alpha1.QuiesceFrozen, Attempts: 1,
}

func TestBackupFenced(t *testing.T) {
	w := newFenceWorld(t)
	w.start(true)
	w.backup(patient)
	b := w.expect(fencedAtOnce)
	a, m := b.Status.Attempts[0], b.Status.Moment
	if order := strings.Join(w.guest.order, " "); order != "pause unpause" || w.guest.freezes != 1 || w.guest.thaws == 0 {
		t.Errorf("%s, %d freezes, %d thaws", order, w.guest.freezes, w.guest.thaws)
	}
	if m.PausedMilliseconds < 1 || a.Fence.ReleasedAt.After(a.Fence.Deadline.Time) || a.Freeze.ReleasedAt.Before(a.Fence.ReleasedAt) {
		t.Errorf("paused for %d ms; fence %+v, freeze %+v", m.PausedMilliseconds, a.Fence, a.Freeze)
	}
	w.clean(b)
}

// A VM that its owner paused is at rest already, and is not unpaused.
func TestBackupOfOwnersPause(t *testing.T) {
	w := newFenceWorld(t)
	w.start(true)
	w.setPaused(true)
	w.backup(patient)
	want := fencedAtOnce
	want.Quiesce = v1alpha1.QuiesceNotAsked
	b := w.expect(want)
	if g := w.guest; !g.isPaused() || g.pauses+g.unpauses+g.freezes > 0 || b.Status.Moment.PausedMilliseconds != 0 {
		t.Errorf("paused %t, %d pauses, %d unpauses, %d freezes", g.isPaused(), g.pauses, g.unpauses, g.freezes)
	}
	w.clean(b)
}

// The owner unpauses during the cut: that attempt holds nothing. The next one is ours to pause.
func TestBackupWhoseOwnerUnpauses(t *testing.T) {
	w := newFenceWorld(t)
	w.start(false)
	w.setPaused(true)
	did := false
	w.hook = func(b *v1alpha1.VMStateBackup) {
		if a := b.Status.Attempts; len(a) == 1 && a[0].CutStarted != nil && a[0].CutEnded == nil && !did {
			did = true
			w.setPaused(false)
		}
	}
	w.backup(patient)
	want := fencedAtOnce
	want.Quiesce, want.Attempts = v1alpha1.QuiesceNoAgent, 2
	b := w.expect(want)
	if got := b.Status.Attempts[0].Message; !did || got != "somebody unpaused the guest during the cut" {
		t.Errorf("the first attempt ended with %q", got)
	}
	w.clean(b)
}

// The storage hangs: the guest runs again at the deadline, is given time, and is not paused a third time.
func TestBackupFencedWhoseStorageHangs(t *testing.T) {
	w := newFenceWorld(t)
	w.start(true)
	w.mute["Driver"] = true
	w.hook = func(b *v1alpha1.VMStateBackup) {
		for _, a := range b.Status.Attempts {
			if a.Fence != nil && w.now().After(a.Fence.Deadline.Add(5*time.Second)) && w.guest.unpauses == 0 {
				t.Error("the deadline passed and nobody unpaused the guest")
			}
		}
		if n := len(b.Status.Attempts); n > 0 && b.Status.Attempts[n-1].Verdict != "" {
			w.mute["Driver"] = false // what was begun can be removed
		} else {
			w.mute["Driver"] = true
		}
	}
	w.backup(nil)
	b := w.expect(reached{Said: "False PauseExceeded: within the 2s that the guest may be paused the storage did not cut the snapshots, 2 times: " +
		"raise require.maxPause, stop the VM for the backup, or put its disks on a driver that cuts them together"})
	if w.guest.pauses != 2 || w.guest.unpauses < 2 {
		t.Errorf("%d pauses, %d unpauses", w.guest.pauses, w.guest.unpauses)
	}
	w.clean(b)
}

// The firmware state changes at every try: the guest is paused for it, and only then.
func TestBackupEscalates(t *testing.T) {
	w := newBackupWorld(t, "root")
	w.start(false)
	w.changes = 5
	w.backup(patient)
	b := w.expect(reached{
		Said:  "True Stored: 2 volumes of 2.0 GiB stored as commit 1",
		Disks: v1alpha1.DisksSingle, State: v1alpha1.StateFence, Quiesce: v1alpha1.QuiesceNoAgent, Attempts: 4,
	})
	if w.guest.pauses != 1 {
		t.Errorf("%d pauses", w.guest.pauses)
	}
	w.clean(b)
}

// A snapshot of KubeVirt's own begins while the guest is paused, and ends: the unpause is repeated until it
// is one, and what was cut meanwhile is discarded.
func TestBackupFencedBesideSnapshot(t *testing.T) {
	w := newFenceWorld(t)
	w.start(false)
	stage := 0
	inProgress := func(holder *string) {
		stage++
		vm := &kubevirtv1.VirtualMachine{}
		w.get("db", vm)
		before := vm.DeepCopy()
		vm.Status.SnapshotInProgress = holder
		w.must(w.cluster.Client.Status().Patch(t.Context(), vm, client.MergeFrom(before)))
	}
	w.hook = func(*v1alpha1.VMStateBackup) {
		theirs := "theirs"
		switch {
		case stage == 0 && w.guest.isPaused():
			inProgress(&theirs)
		case stage == 1 && w.guest.unpauses >= 3:
			inProgress(nil)
		}
	}
	w.backup(patient)
	b := w.run(2 * time.Minute)
	if s := said(b); !strings.HasPrefix(s, "True Stored") || stage != 2 {
		t.Errorf("stage %d: %s", stage, s)
	}
	w.clean(b)
}

// A pause that was answered with a time-out lands a minute later: it is seen and ended, and counts for nothing.
func TestBackupFencedLate(t *testing.T) {
	w := newFenceWorld(t)
	w.start(false)
	w.guest.late = time.Minute
	w.backup(patient)
	want := fencedAtOnce
	want.Quiesce, want.Attempts = v1alpha1.QuiesceNoAgent, 2
	b := w.expect(want)
	if order := strings.Join(w.guest.order, " "); order != "late pause unpause pause unpause" {
		t.Errorf("the guest saw: %s", order)
	}
	if f := b.Status.Attempts[0].Fence; f.ReleasedAt.Sub(f.RequestedAt.Time) < 150*time.Second {
		t.Errorf("called released after %s", f.ReleasedAt.Sub(f.RequestedAt.Time))
	}
	w.clean(b)
}

// KubeVirt pauses no VM that it probes: the reason is said, and nothing is tried again.
func TestBackupFencedRefused(t *testing.T) {
	w := newFenceWorld(t)
	w.start(false)
	w.guest.refusal = apierrors.NewForbidden(kubevirtv1.Resource("virtualmachineinstances"), "db", errors.New("it has a LivenessProbe"))
	w.backup(patient)
	b := w.expect(reached{Said: `False PauseFailed: KubeVirt does not pause VM "db": ` + w.guest.refusal.Error()})
	if w.guest.pauses != 1 || w.guest.unpauses != 0 {
		t.Errorf("%d pauses, %d unpauses", w.guest.pauses, w.guest.unpauses)
	}
	w.clean(b)
}

// Another tool has frozen the guest: it is left alone until that is over.
func TestBackupWaitsForOtherFreeze(t *testing.T) {
	w := newFenceWorld(t)
	vmi := w.start(true)
	report := func(status string) {
		w.must(w.cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(vmi), vmi))
		vmi.Status.FSFreezeStatus = status
		w.must(w.cluster.Client.Update(t.Context(), vmi))
	}
	report("frozen")
	waited := false
	w.hook = func(b *v1alpha1.VMStateBackup) {
		if !waited && strings.HasPrefix(said(b), "False VMUnsettled: ") {
			waited = true
			if g := w.guest; g.freezes+g.thaws+g.pauses > 0 {
				t.Error("the guest was touched")
			}
			report("")
		}
	}
	w.backup(patient)
	b := w.expect(fencedAtOnce)
	if !waited {
		t.Error("it did not wait")
	}
	w.clean(b)
}

// TestBackupKilledFenced kills the manager at every write and every call to the guest between the record of the
// freeze and the end of the cut, as TestBackupKilled does everywhere: no guest is left paused or frozen.
func TestBackupKilledFenced(t *testing.T) {
	const first, last = 1, 12
	for n := first; n <= last; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := newFenceWorld(t)
			w.start(true)
			began := false
			w.hook = func(b *v1alpha1.VMStateBackup) {
				if a := b.Status.Attempts; !began && len(a) > 0 && a[0].Freeze != nil {
					began, w.kill = true, w.writes+n
				}
			}
			w.backup(patient)
			w.survives()
			if w.starts != 2 {
				t.Errorf("%d managers, want one that was killed and one that was not", w.starts)
			}
		})
	}
}
