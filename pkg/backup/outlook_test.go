package backup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/inventory"
	"github.com/vmstate/vmstate/pkg/snapshotset"
	"github.com/vmstate/vmstate/test/build"
)

func TestForesee(t *testing.T) {
	one := snapshotset.Choice{Binding: v1alpha1.DisksSingle, Snapshots: []snapshotset.Snapshot{{Volume: "root", Claim: "root-db", Class: "snaps"}}}
	atRest := one
	atRest.Binding = v1alpha1.DisksOffline
	fence := snapshotset.Choice{
		Binding: v1alpha1.DisksFence, Snapshots: append(one.Snapshots[:1:1], snapshotset.Snapshot{Volume: "data", Claim: "data-db", Class: "snaps"}),
		Why: "this cluster serves no group snapshots (groupsnapshot.storage.k8s.io v1 or v1beta2)",
	}
	agent := altered(inv(), func(i *inventory.Inventory) { i.Agent = true })
	for name, tc := range map[string]struct {
		why     string
		inv     inventory.Inventory
		quiesce v1alpha1.QuiescePolicy
		pause   time.Duration
		want    Outlook
	}{
		"MayEscalate": {
			why: "the guest is paused only if its firmware state changes at every try", inv: inv(), pause: 2 * time.Second,
			want: Outlook{
				Disks: one.Binding, State: v1alpha1.StateWitness, EscalatesTo: 2 * time.Second, Quiesce: v1alpha1.QuiesceNoAgent, QuiesceMessage: "no guest agent is connected", Choice: one,
			},
		},
		"MayNotEscalate": {
			why: "KubeVirt would refuse the pause", inv: altered(inv(), func(i *inventory.Inventory) { i.Unpausable = "a probe" }), pause: 2 * time.Second,
			want: Outlook{Disks: one.Binding, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceNoAgent, QuiesceMessage: "no guest agent is connected", Choice: one},
		},
		"Fence": {
			why: "the pause has its bound and its reason", inv: inv("data"), pause: 2 * time.Second,
			want: Outlook{
				Disks: v1alpha1.DisksFence, State: v1alpha1.StateFence, PausedAtMost: 2 * time.Second,
				Quiesce: v1alpha1.QuiesceNoAgent, QuiesceMessage: "no guest agent is connected", Choice: fence,
			},
		},
		"FenceOfOwner": {
			why: "who is paused already feels nothing of ours",
			inv: altered(inv("data"), func(i *inventory.Inventory) { i.Paused, i.PauseReason = true, snapshotset.PausedByUser }),
			want: Outlook{
				Disks: v1alpha1.DisksFence, State: v1alpha1.StateFence,
				Quiesce: v1alpha1.QuiesceNotAsked, QuiesceMessage: "the VM is paused by its owner", Choice: fence,
			},
		},
		"NoAgent": {
			why: "crash-consistent, and the guest feels nothing", inv: inv(),
			want: Outlook{Disks: one.Binding, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceNoAgent, QuiesceMessage: "no guest agent is connected", Choice: one},
		},
		"Agent": {
			why: "the freeze has its bound", inv: agent,
			want: Outlook{Disks: one.Binding, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceFrozen, FrozenAtMost: 30 * time.Second, Choice: one},
		},
		"Never": {
			inv: agent, quiesce: v1alpha1.QuiesceNever,
			want: Outlook{Disks: one.Binding, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceNotAsked, QuiesceMessage: "quiesce is Never", Choice: one},
		},
		"Paused": {
			why: "its agent cannot answer", inv: altered(agent, func(i *inventory.Inventory) { i.Paused = true }),
			want: Outlook{Disks: one.Binding, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceNotAsked, QuiesceMessage: "the VM is paused by its owner", Choice: one},
		},
		"AtRest": {
			inv:  altered(inv(), func(i *inventory.Inventory) { i.Running = false }),
			want: Outlook{Disks: atRest.Binding, State: v1alpha1.StateOffline, Quiesce: v1alpha1.QuiesceOffline, Choice: atRest},
		},
		"Stateless": {
			inv:  altered(inv(), func(i *inventory.Inventory) { i.VM.StateClaimName = "" }),
			want: Outlook{Disks: one.Binding, State: v1alpha1.StateNone, Quiesce: v1alpha1.QuiesceNoAgent, QuiesceMessage: "no guest agent is connected", Choice: one},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := at(quiesce(tc.quiesce)).Backup
			if tc.pause > 0 {
				b.Spec.Require.MaxPause = &metav1.Duration{Duration: tc.pause}
			}
			for _, d := range tc.inv.Disks() {
				tc.want.Reads = append(tc.want.Reads, Read{Volume: d.Name})
			}
			got := Foresee(&b.Spec, Machine{Inventory: tc.inv}, storage())
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}

// TestForeseeCopies: a clone that is a copy takes its time and its space.
func TestForeseeCopies(t *testing.T) {
	s := storage()
	s.Knowledge = snapshotset.NewKnowledge([]snapshotset.Driver{{Name: build.Driver, ClonesCopy: true, Source: "us"}})
	b := at().Backup
	want := []Read{{Volume: "root", Copied: "us"}}
	if diff := cmp.Diff(want, Foresee(&b.Spec, Machine{Inventory: inv()}, s).Reads); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestForeseeNothing: of a machine that is not there nothing else is said.
func TestForeseeNothing(t *testing.T) {
	b := at(quiesce(v1alpha1.QuiesceRequired)).Backup
	b.Spec.Require.FirmwareState = v1alpha1.FirmwareStateRequired
	gone := inventory.Refusal{Reason: v1alpha1.ReasonVMNotFound, Message: "gone"}
	want := Outlook{Obstacles: []inventory.Refusal{gone}}
	if diff := cmp.Diff(want, Foresee(&b.Spec, Machine{Refusals: []inventory.Refusal{gone}}, storage())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
