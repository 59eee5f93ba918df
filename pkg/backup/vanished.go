package backup

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// vanished is what a stored backup without firmware state says if an earlier one of the same machine holds some: a
// platform change can switch persistence off, and KubeVirt deletes the claim at the next start (FC-007). The earlier
// backup is the last that a sealed guest can be restored from.
func vanished(in Observed) []Finding {
	if held := in.Backup.Status.Moment; held == nil || held.State != v1alpha1.StateNone {
		return nil
	}
	var last *v1alpha1.VMStateBackup
	for _, o := range in.Others {
		holds := sameChain(o, in.Backup) && commitOf(o) != nil && o.Status.Moment != nil && o.Status.Moment.State != v1alpha1.StateNone
		if holds && follows(in.Backup, o) && (last == nil || follows(o, last)) {
			last = o
		}
	}
	if last == nil {
		return nil
	}
	return []Finding{{v1alpha1.ConditionFirmwareStateKept, metav1.ConditionFalse, v1alpha1.ReasonStateVanished, fmt.Sprintf(
		"VM %q keeps no TPM and no EFI variables any more, which backup %q still holds: keep that one, as nothing after it opens what the guest has sealed; "+
			"make them persistent again (in the VM's spec or its preference), and restore it if they are gone", in.Backup.Spec.VMName, last.Name)}}
}
