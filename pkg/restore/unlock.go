package restore

import (
	"fmt"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/mover/config"
)

// unlock has a Job ask for its keys; nil where an identity is mounted.
func unlock(in Observed) *config.Unlock {
	if in.Restore.Spec.IdentitySecretRef != nil {
		return nil
	}
	return &config.Unlock{Restore: string(in.Restore.UID)}
}

// Waiting says whether a report's request for keys is unanswered.
func Waiting(r *v1alpha1.VMStateReport) bool {
	if r == nil || r.Status.Unlock == nil || r.Status.Outcome != "" {
		return false
	}
	t := r.Spec.Ticket
	return t == nil || t.Request != r.Status.Unlock.ID || r.Status.Unlock.Refused != ""
}

// waitForUnlock tells what to type. It is never a failure, however long it takes.
func waitForUnlock(in Observed, j *JobSeen) Decision {
	refused := ""
	if why := j.Report.Status.Unlock.Refused; why != "" {
		refused = fmt.Sprintf("; the last ticket was not taken: %s", cut(why, 1000))
	}
	return working(in, v1alpha1.ReasonWaitingForUnlock,
		"the backup is encrypted and no identity is in this cluster: type kubectl vmstate unlock %s -n %s --identity FILE where the identity is%s. "+
			"Nothing is lost by waiting; delete the restore to cancel. A pod that is started again asks again",
		in.Restore.Name, in.Restore.Namespace, refused)
}

// IdentityInCluster is what to say of a restore that has an identity in a Secret; empty if it has none.
func IdentityInCluster(r *v1alpha1.VMStateRestore) string {
	if r.Spec.IdentitySecretRef == nil {
		return ""
	}
	return fmt.Sprintf("Secret %q brings an identity into this cluster: whoever reads Secrets or creates pods in namespace %q can read every "+
		"backup that it opens. Remove the Secret after the restore, or leave identitySecretRef out and use kubectl vmstate unlock",
		r.Spec.IdentitySecretRef.Name, r.Namespace)
}
