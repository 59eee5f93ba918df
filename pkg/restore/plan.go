package restore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
)

// Decision is what to do now, and what to say.
type Decision struct {
	State   conditions.State
	Reason  string
	Message string
	// Status is what is to be recorded, without conditions. A pass that records
	// something which an effect depends on has no such effect: that is for the next.
	Status  v1alpha1.VMStateRestoreStatus
	Actions []action.Action
	// RequeueAfter is when to look again if nothing wakes the restore before; 0 never.
	RequeueAfter time.Duration
}

const (
	// soon is the next pass after a record.
	soon = time.Millisecond
	// patience is how long a wait goes on without being woken: what is waited for is
	// watched, this is for what a watch may miss.
	patience = 10 * time.Second
	// step is when to look at what an effect has done, where nobody watches it.
	step = 250 * time.Millisecond
)

// Plan decides the next step of a restore; see the table of the package.
func Plan(in Observed) Decision {
	s := in.Restore.Status
	switch {
	case s.CompletedAt != nil:
		return afterwards(in)
	case s.Switch != nil && s.Switch.CommittedAt != nil:
		return finish(in)
	case s.Failure != nil:
		return undo(in)
	case in.Restore.DeletionTimestamp != nil:
		return giveUp(in, v1alpha1.ReasonSwitchFailed, "the restore was deleted before it was done; nothing was replaced")
	case s.From == nil:
		return resolve(in)
	case in.Unreadable != "":
		return giveUp(in, v1alpha1.ReasonBackupDamaged, "what was recorded of the backup cannot be read (%s): create the restore again; nothing was replaced", in.Unreadable)
	case sourceGone(in):
		return giveUp(in, v1alpha1.ReasonBackupNotFound, "backup %q was deleted, or made again, before its volumes were restored; nothing was replaced", in.Restore.Spec.Source.BackupRef.Name)
	case len(s.Volumes) == 0:
		return preflight(in)
	case !filled(in):
		return fill(in)
	default:
		return switchOver(in)
	}
}

// sourceGone: snapshots go with their backup, and the store of a backup is known from it.
// Another backup of that name is not the one that was found.
func sourceGone(in Observed) bool {
	if in.Restore.Spec.Source.BackupRef == nil || len(in.Restore.Status.Volumes) > 0 && filled(in) {
		return false
	}
	if in.Restore.Status.From.Commit != nil {
		return in.Backup == nil
	}
	if localCopy(in) == nil || in.Backup.DeletionTimestamp != nil {
		return true
	}
	return slices.ContainsFunc(in.Restore.Status.From.Volumes, func(v v1alpha1.VolumeFacts) bool {
		return v.Role == v1alpha1.RoleDisk && localSnapshot(in, v) == nil
	})
}

// decide starts a decision from what is recorded already.
func decide(in Observed, state conditions.State, reason, format string, args ...any) Decision {
	d := Decision{State: state, Reason: reason, Message: fmt.Sprintf(format, args...), Status: *in.Restore.Status.DeepCopy()}
	d.Status.Conditions = nil
	d.Status.Summary.VM = targetName(in.Restore, in.Restore.Status.From)
	return d
}

func working(in Observed, reason, format string, args ...any) Decision {
	d := decide(in, conditions.Working, reason, format, args...)
	d.RequeueAfter = patience
	return d
}

// do adds effects to a decision, and looks at them soon.
func (d Decision) do(actions ...action.Action) Decision {
	d.Actions = append(d.Actions, actions...)
	if len(actions) > 0 && d.RequeueAfter > step {
		d.RequeueAfter = step
	}
	return d
}

// record makes a decision that writes something down and has no effect.
func (d Decision) record(write func(*v1alpha1.VMStateRestoreStatus)) Decision {
	write(&d.Status)
	d.RequeueAfter = soon
	return d
}

// stalled waits for a person; what they change wakes the restore.
func stalled(in Observed, reason, format string, args ...any) Decision {
	d := decide(in, conditions.Stalled, reason, format, args...)
	d.RequeueAfter = patience
	return d
}

// giveUp records why the restore cannot be done. What was made is undone in the passes
// that follow; the record wins against a commit, or loses, by the one write of a status.
func giveUp(in Observed, reason, format string, args ...any) Decision {
	message := fmt.Sprintf(format, args...)
	d := decide(in, conditions.Failing, reason, "%s", message)
	return d.record(func(s *v1alpha1.VMStateRestoreStatus) {
		s.QueuedAt = nil
		s.Failure = &v1alpha1.RestoreFailure{At: microTime(in), Reason: reason, Message: message}
	})
}

// Interrupted is the decision after err stopped its actions: nothing is recorded but what
// was before. A refusal that would come again ends a restore that can still be undone.
func (d Decision) Interrupted(in Observed, err error) Decision {
	s := in.Restore.Status
	if s.CompletedAt != nil {
		return Unseen(in.Restore, err) // what was reached does not change
	}
	undoable := s.CompletedAt == nil && s.Failure == nil && (s.Switch == nil || s.Switch.CommittedAt == nil)
	// Until the switch all effects are creations: a policy in their way stays. A quota does not.
	refused := s.Switch == nil && (apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) && !errors.Is(err, action.ErrNoRoom)
	if undoable && (refused || errors.Is(err, action.ErrDenied)) {
		reason := v1alpha1.ReasonSwitchFailed
		if len(s.Volumes) == 0 {
			reason = v1alpha1.ReasonPreflightFailed
		}
		denied := giveUp(in, reason, "%v; nothing was replaced", err)
		denied.Status.Findings = d.Status.Findings
		return denied
	}
	interrupted := decide(in, d.State, d.Reason, "%s: %v", d.Message, err)
	if d.State == conditions.Done {
		interrupted.State = conditions.Working
	}
	return interrupted
}

// Unseen is what to say of a restore that could not be looked at: what was said before, and
// why. One that has ended says nothing new.
func Unseen(r *v1alpha1.VMStateRestore, err error) Decision {
	in := Observed{Restore: r}
	if r.Status.CompletedAt != nil {
		return ended(in)
	}
	reason := v1alpha1.ReasonResolving
	if c := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		reason = c.Reason
	}
	return working(in, reason, "cannot go on: %v", err)
}

// letGo takes the finalizer off, if it is there.
func letGo(in Observed) []action.Action {
	if !slices.Contains(in.Restore.Finalizers, v1alpha1.FinalizerSwitch) {
		return nil
	}
	return []action.Action{action.RemoveFinalizer{Finalizer: v1alpha1.FinalizerSwitch}}
}

// preflight looks at everything that could stand in the way, and records the names of
// the claims to be made if nothing does.
func preflight(in Observed) Decision {
	if in.Machine == nil || in.Cluster == nil {
		return working(in, v1alpha1.ReasonPreflight, "looking for what could stand in the way")
	}
	findings := Preflight(in)
	blocking := blockers(findings)
	if len(blocking) > 0 {
		d := giveUp(in, v1alpha1.ReasonPreflightFailed, "nothing was changed; in the way: %s", sentences(blocking))
		d.Status.Findings = findings
		return d
	}
	d := working(in, v1alpha1.ReasonPreflight, "nothing stands in the way")
	if in.Restore.Spec.DryRun {
		d = decide(in, conditions.Done, v1alpha1.ReasonDryRun, "nothing stands in the way%s; nothing was changed", warned(findings))
	}
	return d.do(admission(in)...).record(func(s *v1alpha1.VMStateRestoreStatus) {
		s.Findings = findings
		if in.Restore.Spec.DryRun {
			s.CompletedAt = &metav1.Time{Time: in.Now}
			return
		}
		for i, c := range plannedClaims(in) {
			v := in.Machine.Held[i]
			s.Volumes = append(s.Volumes, v1alpha1.RestoredVolume{Name: v.Name, Role: v.Role, ClaimName: c.Name})
		}
	})
}

// admission asks the API server whether it would take the new virtual machine: its answer
// covers what only KubeVirt's own admission knows. It cannot be asked for a machine whose
// revisions do not exist yet.
func admission(in Observed) []action.Action {
	w := wanted(in)
	if in.Restore.Spec.Mode != v1alpha1.RestoreNewVM || len(w.Revisions) > 0 {
		return nil
	}
	object, err := heldMachine(in)
	if err != nil {
		return nil // said by the findings
	}
	return []action.Action{action.CreateVM{Object: object, DryRun: true}}
}

func warned(findings []v1alpha1.Finding) string {
	n := 0
	for _, f := range findings {
		if f.Outcome == v1alpha1.FindingWarning {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d warnings in status.findings)", n)
}

// sentences are the messages of findings; a condition's message has room for 32768 bytes.
func sentences(findings []v1alpha1.Finding) string {
	var out []string
	for _, f := range findings {
		out = append(out, f.Message)
	}
	return cut(strings.Join(out, "; "), 8000)
}

// cut shortens a text to at most n bytes, at a whole character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

func microTime(in Observed) metav1.MicroTime { return metav1.NewMicroTime(in.Now) }

func microTimePtr(in Observed) *metav1.MicroTime {
	t := microTime(in)
	return &t
}
