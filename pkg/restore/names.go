package restore

import (
	"crypto/sha256"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/job"
)

// Every name is fixed by the UID of the restore: what a crashed pass made is met
// again, and two restores never meet.

// suffixLetters are those that Kubernetes itself uses for generated names: no vowels,
// so no words.
const suffixLetters = "bcdfghjklmnpqrstvwxz2456789"

func suffix(uid types.UID) string {
	sum := sha256.Sum256([]byte(uid))
	out := make([]byte, 5)
	for i := range out {
		out[i] = suffixLetters[int(sum[i])%len(suffixLetters)]
	}
	return string(out)
}

// targetName is the virtual machine that is made or replaced.
func targetName(r *v1alpha1.VMStateRestore, from *v1alpha1.RestoredFrom) string {
	if r.Spec.Target != nil {
		return r.Spec.Target.VMName
	}
	if from == nil {
		return ""
	}
	_, name, _ := strings.Cut(from.VM, "/")
	return name
}

// TargetName is the virtual machine that a restore makes or replaces, empty as long as
// that is not known.
func TargetName(r *v1alpha1.VMStateRestore) string { return targetName(r, r.Status.From) }

func namespaceOf(vm string) string {
	namespace, _, _ := strings.Cut(vm, "/")
	return namespace
}

// holdClaim does not exist, and must not.
func holdClaim(r *v1alpha1.VMStateRestore) string { return "vmstate-hold-" + string(r.UID) }

// holderName is what status.restoreInProgress says while we hold a machine. People
// read it in KubeVirt's refusals.
func holderName(r *v1alpha1.VMStateRestore) string { return "vmstate-" + string(r.UID) }

// diskClaim is the new claim of a disk, at most 253 characters.
func diskClaim(vm, volume string, uid types.UID) string {
	return vm + "-" + volume + "-" + suffix(uid)
}

// stateClaim has the form that KubeVirt up to 1.7 needs to find it again by the name
// of the instance's volume (pkg/storage/backend-storage, CurrentPVCName).
func stateClaim(vm string, uid types.UID) string {
	return legacyStateClaim(vm) + "-" + suffix(uid)
}

// legacyStateClaim is adopted by KubeVirt without a label.
func legacyStateClaim(vm string) string { return v1alpha1.LabelPersistentState + "-" + vm }

// keptClaim keeps a replaced volume. A long claim name is cut, not the UID.
func keptClaim(claim string, uid types.UID) string {
	tail := "-replaced-" + strings.SplitN(string(uid), "-", 2)[0]
	return strings.TrimRight(claim[:min(len(claim), 253-len(tail))], "-.") + tail
}

func revisionName(vm, field string, uid types.UID) string {
	return vm + "-" + field + "-" + suffix(uid)
}

func resolveJob(uid types.UID) string { return job.Name(uid, "resolve") }

func importJob(uid types.UID) string { return job.Name(uid, "import") }

// ours says that an object was made for this restore.
func ours(in Observed, labels map[string]string) bool {
	return labels[v1alpha1.LabelOwnerUID] == string(in.Restore.UID)
}

func madeBy(obj, owner metav1.Object) bool { return metav1.IsControlledBy(obj, owner) }

// stateClaims carry the label of a virtual machine's firmware state and are not going, sorted.
func stateClaims(in Observed, vm string) []string {
	var out []string
	for name, c := range in.Claims {
		if c.Labels[v1alpha1.LabelPersistentState] == vm && c.DeletionTimestamp == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// claimNames are those of the claims that this restore makes.
func claimNames(in Observed) []string {
	var out []string
	for _, c := range plannedClaims(in) {
		out = append(out, c.Name)
	}
	return out
}

// JobNames are the Jobs of a restore, and their reports.
func JobNames(r *v1alpha1.VMStateRestore) (resolve, importing string) {
	return resolveJob(r.UID), importJob(r.UID)
}
