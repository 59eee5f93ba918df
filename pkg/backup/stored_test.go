package backup

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/test/build"
)

// TestPlanStored: what becomes of the data of a backup whose object is deleted.
func TestPlanStored(t *testing.T) {
	now := metav1.NewTime(noon)
	stored := func(change ...func(*Observed)) Observed {
		b := build.Backup("x", "db")
		b.Spec.DeletionPolicy = v1alpha1.DeletionDelete
		b.Status.CompletedAt, b.Status.Export = &now, &v1alpha1.ExportStatus{Commit: &v1alpha1.CommitRef{Key: "c/x"}}
		in := Observed{Now: noon, Backup: b, Store: build.Store("main")}
		for _, c := range change {
			c(&in)
		}
		return in
	}
	held := func(in *Observed) { in.Backup.Finalizers = []string{v1alpha1.FinalizerStored} }
	retain := func(in *Observed) { in.Backup.Spec.DeletionPolicy = v1alpha1.DeletionRetain }
	deleted := func(in *Observed) { in.Backup.DeletionTimestamp = &now }
	marked := func(reason string) func(*Observed) {
		return func(in *Observed) {
			in.Backup.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionVerified, Status: "False", Reason: reason, Message: "not there"}}
		}
	}
	on := []action.Action{action.AddFinalizer{Finalizer: v1alpha1.FinalizerStored}}
	off := []action.Action{action.RemoveFinalizer{Finalizer: v1alpha1.FinalizerStored}}
	tests := map[string]struct {
		in   Observed
		want []action.Action
		says string
	}{
		"Delete":         {stored(), on, ""},
		"DeleteHeld":     {stored(held), nil, ""},
		"Retain":         {stored(retain), nil, ""},
		"RetainAfterAll": {stored(held, retain), off, ""},
		"Deleted":        {stored(held, deleted), nil, "waiting until maintenance of store main"},
		"DeletedRetain":  {stored(held, deleted, retain), off, ""},
		"NamespaceGoes":  {stored(held, deleted, func(in *Observed) { in.Terminating = true }), off, "stays in its store"},
		"StoreIsGone":    {stored(held, deleted, func(in *Observed) { in.Store = nil }), off, "stays in its bucket"},
		"NoMaintenance": {stored(held, deleted, func(in *Observed) {
			in.Store.Status.Conditions = append(in.Store.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionMaintained, Status: "False", Message: "set spec.maintenance"})
		}), nil, "set spec.maintenance"},
		"Locked": {stored(held, deleted, func(in *Observed) {
			in.Store.Status.Maintenance = &v1alpha1.MaintenanceStatus{LockedBytes: 1 << 20}
		}), nil, "object locks keep 1.0 MiB"},
		"Missing":         {stored(held, deleted, marked(v1alpha1.ReasonCommitMissing)), off, "there is nothing to remove: not there"},
		"Damaged":         {stored(held, deleted, marked(v1alpha1.ReasonCommitDamaged)), nil, "waiting until maintenance of store main"},
		"MissingStays":    {stored(held, marked(v1alpha1.ReasonCommitMissing)), nil, ""},
		"DeletedNotStore": {stored(deleted), nil, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := Plan(tc.in)
			if diff := cmp.Diff(tc.want, d.Actions); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if d.NotInStore != (name == "Missing") {
				t.Errorf("not in the store: %v", d.NotInStore)
			}
			if said := d.Farewell + d.Waiting; !strings.Contains(said, tc.says) || tc.says == "" && said != "" {
				t.Errorf("says %q", said)
			}
		})
	}
}
