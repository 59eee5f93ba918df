package backup

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/job"
)

// leftoverAge is how long an object must have been there before it counts as left over: a list of owners may be older.
const leftoverAge = 10 * time.Minute

// Leftover says that something was made for an owner which is gone, and is controlled by nobody: kubectl delete
// --cascade=orphan leaves it so, and garbage collection never takes it. It is told of and not removed: whoever
// deletes like this may have meant to keep it.
func Leftover(o metav1.Object, owners map[types.UID]bool, now time.Time) bool {
	owner := types.UID(o.GetLabels()[v1alpha1.LabelOwnerUID])
	return owner != "" && !owners[owner] && o.GetLabels()[v1alpha1.LabelManagedBy] == v1alpha1.ManagedBy &&
		strings.HasPrefix(o.GetName(), job.Name(owner, "")) && metav1.GetControllerOf(o) == nil &&
		o.GetDeletionTimestamp() == nil && now.Sub(o.GetCreationTimestamp().Time) >= leftoverAge
}
