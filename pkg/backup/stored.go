package backup

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/store"
)

// wantsRemoval says that the backup goes from its store when its object is deleted.
func wantsRemoval(b *v1alpha1.VMStateBackup) bool {
	return b.Spec.DeletionPolicy == v1alpha1.DeletionDelete && b.Spec.StoreRef != nil && b.Status.Export != nil && b.Status.Export.Commit != nil
}

func heldForStore(b *v1alpha1.VMStateBackup) bool {
	return slices.Contains(b.Finalizers, v1alpha1.FinalizerStored)
}

// holdForStore keeps the finalizer in step with spec.deletionPolicy, as long as nobody deletes the backup.
func holdForStore(in Observed, d Decision) Decision {
	b := in.Backup
	switch {
	case b.DeletionTimestamp != nil:
	case wantsRemoval(b) && !heldForStore(b):
		d.Actions = append(d.Actions, action.AddFinalizer{Finalizer: v1alpha1.FinalizerStored})
	case !wantsRemoval(b) && heldForStore(b):
		d.Actions = append(d.Actions, action.RemoveFinalizer{Finalizer: v1alpha1.FinalizerStored})
	}
	return d
}

// removeFromStore waits until the store's maintenance has removed a deleted backup, and lets go of
// it. Where that cannot be, it lets go and says that the data stays: a finalizer never holds up
// a namespace.
func removeFromStore(in Observed, d Decision) Decision {
	b := in.Backup
	switch {
	case !wantsRemoval(b):
		d.Farewell = ""
	case in.Terminating:
		d.Farewell = "the namespace is being deleted: the backup stays in its store"
	case in.Store == nil:
		d.Farewell = fmt.Sprintf("VMStateStore %q does not exist any more: the backup stays in its bucket", b.Spec.StoreRef.Name)
	case store.Missing(b):
		d.NotInStore = true
		d.Farewell = fmt.Sprintf("VMStateStore %q was seen to lack the backup, so there is nothing to remove: %s; "+
			"if the bucket is brought back, kubectl vmstate import makes it an object again",
			b.Spec.StoreRef.Name, meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionVerified).Message)
	default:
		d.Waiting = "waiting until maintenance of store " + in.Store.Name + " has removed the backup" + because(unmaintained(in.Store)) + locked(in.Store) +
			"; to let go of it and leave the data, set deletionPolicy to Retain"
		d.RequeueAfter = lookAgain * 12
		return d
	}
	d.Actions = []action.Action{action.RemoveFinalizer{Finalizer: v1alpha1.FinalizerStored}}
	return d
}

// locked says that object locks keep what is to go; "" if none does.
func locked(s *v1alpha1.VMStateStore) string {
	if m := s.Status.Maintenance; m != nil && m.LockedBytes > 0 {
		return fmt.Sprintf("; object locks keep %s of what is to go in the bucket until they end", bytesText(m.LockedBytes))
	}
	return ""
}

// unmaintained is what a store says of its maintenance, where that does not do its work.
func unmaintained(s *v1alpha1.VMStateStore) string {
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionMaintained} {
		if c := meta.FindStatusCondition(s.Status.Conditions, kind); c != nil && c.Status == "False" {
			return c.Message
		}
	}
	return ""
}
