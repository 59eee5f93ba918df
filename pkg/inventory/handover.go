package inventory

import (
	"fmt"
	"slices"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// handedOver waits while a migration's claim for the state is there beside the VM's own. KubeVirt removes it when the
// migration failed, and puts it in the place of the other when it worked; before that, only what is in them tells which
// one the guest used last (kubevirt.io/kubevirt v1.9.0, pkg/storage/backend-storage). While an instance runs, its state is
// in the claim that it mounts.
func handedOver(in Seen, claims []string) *Refusal {
	name := in.VM.Name
	if !running(in) {
		if len(in.Targets) == 0 {
			return nil
		}
		return wait(v1alpha1.ReasonMigrating, claim(in.Targets[0]),
			"claim %q was made for a migration of VM %q that did not come to its end, and either it or %s holds the firmware state", in.Targets[0], name, theOther(claims)).
			next("KubeVirt removes one of them; if it does not, the one before is out of date where it holds a file meta/migrated")
	}
	mounted := in.Claims[MountedState(in)]
	switch {
	case mounted != nil && mounted.DeletionTimestamp != nil:
		return refuse(v1alpha1.ReasonVolumeNotReady, claim(mounted.Name),
			"claim %q, in which the running pod keeps the firmware state, is being deleted and goes when VM %q stops", mounted.Name, name).
			of(mounted.Name).next("keep it running, and copy the state out of the pod")
	case mounted != nil && mounted.Labels[v1alpha1.LabelMigrationName] != "" && !slices.Contains(claims, mounted.Name):
		return wait(v1alpha1.ReasonMigrating, claim(mounted.Name),
			"the running pod keeps the firmware state in claim %q of migration %q, which has not been put in the place of the one before",
			mounted.Name, mounted.Labels[v1alpha1.LabelMigrationName]).
			next("if that does not happen, label it %s=%s and remove the other", v1alpha1.LabelPersistentState, name)
	default:
		return nil
	}
}

func theOther(claims []string) string {
	if len(claims) == 0 {
		return "the one before, which is gone,"
	}
	return fmt.Sprintf("%q", claims[0])
}
