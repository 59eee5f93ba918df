package backup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
)

// bindGrace is how long an unbound snapshot is not deleted: deleting it before it knows its
// content leaves the content and what is on the storage behind (external-snapshotter 8.7).
const bindGrace = 2 * time.Minute

// removeLimit is how long a snapshot may be being removed, or know nothing of the content that it has, before it is not
// waited for any more. No failure of a driver is terminal for the snapshotter: it would be for ever.
const removeLimit = time.Hour

// order in which children are removed: what uses something goes before it.
var order = [][]action.Kind{
	{action.KindJob},
	{action.KindClaim},
	{action.KindVolumeSnapshot, action.KindVolumeGroupSnapshot},
	{action.KindConfigMap, action.KindReport},
	{action.KindRoleBinding, action.KindServiceAccount},
}

// end removes what is left, then lets go of the backup.
func end(in Observed) Decision {
	d := outcome(in)
	remove := func(c Child) bool {
		return in.Backup.DeletionTimestamp != nil || !kept(in.Backup, c) && !isBase(in.Backup, c)
	}
	left := remains(in, remove)
	switch {
	case !hasFinalizer(in.Backup) && in.Backup.DeletionTimestamp != nil && heldForStore(in.Backup):
		return removeFromStore(in, d)
	case !hasFinalizer(in.Backup) && in.Backup.DeletionTimestamp != nil:
		return d // nothing holds it any more
	case anyHeld(&in.Backup.Status):
		// The witness is the dead man's switch: it stays as long as a guest may be frozen.
		d.Actions, d.RequeueAfter, d.Waiting = undo(in), lookAgain, thawing(&in.Backup.Status)
		return d
	case len(left.actions) > 0 || left.waiting != "":
		d.Actions, d.RequeueAfter, d.Waiting = left.actions, lookAgain, left.waiting
		return d
	}
	if in.unheard() {
		d.RequeueAfter, d.Waiting = lookAgain, fmt.Sprintf("waiting until store %q has noted what the audit found", in.Store.Name)
		return d
	}
	d.Actions = []action.Action{action.RemoveFinalizer{Finalizer: v1alpha1.FinalizerRelease}}
	d.LeftBehind = leftBehind(left)
	if in.Backup.DeletionTimestamp != nil {
		return d
	}
	if d.State == conditions.Failing {
		d.State = conditions.Stalled
	} else {
		d.State = conditions.Done
	}
	if d.Status.CompletedAt == nil {
		// The next pass lets go: the record comes before its effect.
		at := metav1.NewTime(in.Now)
		d.Status.CompletedAt, d.Actions, d.LeftBehind = &at, nil, ""
	}
	return d
}

func leftBehind(l left) string {
	if len(l.stuck) == 0 {
		return ""
	}
	return fmt.Sprintf("%s: being removed for more than %s, and not waited for any more; the events of what it is bound to say what its driver answers",
		strings.Join(l.stuck, ", "), removeLimit)
}

// outcome says what the backup came to.
func outcome(in Observed) Decision {
	s := &in.Backup.Status
	d := in.say(v1alpha1.ReasonCleaningUp, "removing what was made")
	d.RequeueAfter = 0
	switch {
	case in.Backup.DeletionTimestamp != nil:
	case s.Failure != nil:
		d.State, d.Reason, d.Message = conditions.Failing, s.Failure.Reason, s.Failure.Message
	case s.Export != nil && s.Export.Commit != nil:
		d.State, d.Reason = conditions.Tidying, v1alpha1.ReasonStored
		if in.Backup.Spec.Commit != nil {
			d.Reason = v1alpha1.ReasonAdopted
		}
		d.Message = fmt.Sprintf("%s of %s stored as commit %d", plural(includedCount(s), "volume"), s.Summary.Size, s.Export.Commit.Sequence)
	case s.Local != nil:
		d.State, d.Reason = conditions.Tidying, v1alpha1.ReasonKept
		d.Message = fmt.Sprintf("%s of %s kept as snapshots on the storage", plural(includedCount(s), "volume"), s.Summary.Size)
	}
	if warning := unconfirmed(s); warning != "" {
		d.Message += "; " + warning
	}
	return d
}

// kept says that a child is what a backup without a store consists of.
func kept(b *v1alpha1.VMStateBackup, c Child) bool {
	l := b.Status.Local
	last := Last(b)
	if l == nil || last == nil {
		return false
	}
	switch c.Kind {
	case action.KindVolumeSnapshot:
		return slices.ContainsFunc(l.Snapshots, func(s v1alpha1.CutSnapshot) bool { return s.SnapshotName == c.Name })
	case action.KindVolumeGroupSnapshot:
		return c.Name == GroupName(b, last.Number)
	case action.KindConfigMap:
		return c.Name == DocumentsName(b)
	case action.KindClaim:
		return c.Name == l.StateClaimName
	default:
		return false
	}
}

func isAccount(c Child) bool {
	return c.Kind == action.KindServiceAccount || c.Kind == action.KindRoleBinding
}

// left is what is still to be removed.
type left struct {
	actions []action.Action
	// waiting names something that is being removed already, or cannot be yet; since is from when on.
	waiting string
	since   time.Time
	// stuck are snapshots that are not waited for any more.
	stuck []string
}

// remains undoes what the backup did to the VM's own objects, then removes the first group of
// children that is not gone; the next group follows when it is.
func remains(in Observed, remove func(Child) bool) left {
	out := left{actions: undo(in)}
	if len(out.actions) > 0 {
		return out
	}
	for _, kinds := range order {
		for _, c := range in.Children {
			if !slices.Contains(kinds, c.Kind) || !remove(c) {
				continue
			}
			out.add(in, c)
		}
		if len(out.actions) > 0 || out.waiting != "" {
			return out
		}
	}
	return out
}

func (l *left) add(in Observed, c Child) {
	switch {
	case c.Deleting && isSnapshot(c) && in.since(c.DeletedAt) >= removeLimit:
		l.stuck = append(l.stuck, fmt.Sprintf("%s %q", c.Kind, c.Name))
	case c.Deleting:
		l.wait(c.DeletedAt, "%s %q is being removed", c.Kind, c.Name)
	case !in.deletable(c):
		l.wait(c.Created, "%s %q is not bound to its content yet, which its removal would leave behind", c.Kind, c.Name)
	default:
		l.actions = append(l.actions, action.Delete{Kind: c.Kind, Name: c.Name, UID: c.UID})
	}
}

// wait keeps what has been waited for the longest.
func (l *left) wait(since time.Time, format string, args ...any) {
	if l.waiting == "" || since.Before(l.since) {
		l.waiting, l.since = fmt.Sprintf(format, args...), since
	}
}

func isSnapshot(c Child) bool {
	return c.Kind == action.KindVolumeSnapshot || c.Kind == action.KindVolumeGroupSnapshot
}

// deletable says that nothing is left behind if a child is deleted now, as far as can be known. A group that is
// deleted before it names its content leaves it, and what it holds on the storage, for good: the snapshot controller
// looks by that name alone (external-snapshotter 8.7, pkg/common-controller/groupsnapshot_controller_helper.go).
func (in Observed) deletable(c Child) bool {
	switch {
	case !isSnapshot(c), c.Bound:
		return true
	case c.Unnamed:
		return in.since(c.Created) >= removeLimit
	default:
		return in.since(c.Created) >= bindGrace
	}
}

// undo takes our marks off the VM and its claims.
func undo(in Observed) []action.Action {
	var out []action.Action
	if in.Locked && in.Backup.Status.VM != nil {
		out = append(out, action.UnlockVM{VM: in.Backup.Spec.VMName, UID: in.Backup.Status.VM.UID, Holder: Holder(in.Backup)})
	}
	if last := Last(in.Backup); last != nil {
		for _, c := range in.Members {
			out = append(out, action.UnlabelClaim{Claim: c.Name, UID: c.UID, Member: Member(in.Backup, last.Number)})
		}
	}
	return out
}

func includedCount(s *v1alpha1.VMStateBackupStatus) int {
	return len(includedOf(s, v1alpha1.RoleDisk)) + len(includedOf(s, v1alpha1.RoleFirmwareState))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
