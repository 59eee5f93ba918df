package restore

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/queue"
)

// filled says that every claim is there and was read back, where it had to be filled.
func filled(in Observed) bool {
	return !slices.ContainsFunc(in.Restore.Status.Volumes, func(v v1alpha1.RestoredVolume) bool { return !v.Verified })
}

// fill makes the claims, records which they are, and has a Job fill them. The virtual
// machine is not touched.
func fill(in Observed) Decision {
	if in.Machine == nil {
		return working(in, v1alpha1.ReasonFilling, "reading what was recorded")
	}
	if why := lost(in); why != "" {
		return giveUp(in, v1alpha1.ReasonImportFailed, "%s; nothing was replaced", why)
	}
	if actions := missing(in); len(actions) > 0 {
		return working(in, v1alpha1.ReasonFilling, "making %d claims", len(in.Restore.Status.Volumes)).do(actions...)
	}
	if slices.ContainsFunc(in.Restore.Status.Volumes, func(v v1alpha1.RestoredVolume) bool { return v.ClaimUID == "" }) {
		return working(in, v1alpha1.ReasonFilling, "made %d claims", len(in.Restore.Status.Volumes)).record(func(s *v1alpha1.VMStateRestoreStatus) {
			for i := range s.Volumes {
				s.Volumes[i].ClaimUID = in.Claims[s.Volumes[i].ClaimName].UID
			}
		})
	}
	return runImport(in)
}

// lost says which claim is not the one that was recorded, or is another's.
func lost(in Observed) string {
	for _, v := range in.Restore.Status.Volumes {
		c := in.Claims[v.ClaimName]
		switch {
		case c == nil && v.ClaimUID != "":
			return fmt.Sprintf("claim %q of volume %q was deleted", v.ClaimName, v.Name)
		case c == nil:
		case v.ClaimUID != "" && c.UID != v.ClaimUID:
			return fmt.Sprintf("claim %q of volume %q was deleted and made again by somebody", v.ClaimName, v.Name)
		case !ours(in, c.Labels) || v.ClaimUID == "" && !madeBy(c, in.Restore):
			return fmt.Sprintf("claim %q of volume %q exists and was not made by this restore", v.ClaimName, v.Name)
		case c.DeletionTimestamp != nil:
			return fmt.Sprintf("claim %q of volume %q is being deleted", v.ClaimName, v.Name)
		}
	}
	return ""
}

// missing makes what is planned and not there, compared one by one.
func missing(in Observed) []action.Action {
	var out []action.Action
	for _, c := range plannedClaims(in) {
		if in.Claims[c.Name] == nil {
			out = append(out, action.CreateClaim{Claim: c})
		}
	}
	for _, r := range plannedRevisions(in) {
		if in.Revisions[r.Name] == nil {
			out = append(out, action.CreateRevision{Revision: r})
		}
	}
	return out
}

// plannedRevisions are those of instancetype and preference that the backup holds, under
// names of their own: the originals, where they exist, go with another machine.
func plannedRevisions(in Observed) []*appsv1.ControllerRevision {
	var out []*appsv1.ControllerRevision
	names := wanted(in).Revisions
	for _, old := range in.Machine.revisionNames() {
		held := in.Machine.revision(old)
		if held == nil {
			continue
		}
		labels := carried(held.Labels)
		out = append(out, &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: names[old], Namespace: in.Restore.Namespace, Labels: withOwner(labels, in.Restore.UID)},
			Data:       *held.Data.DeepCopy(),
			Revision:   held.Revision,
		})
	}
	slices.SortFunc(out, func(a, b *appsv1.ControllerRevision) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// runImport has a Job fill the claims. Also where there is nothing to fill but snapshots:
// a pod that mounts them is what shows that the storage has made them.
func runImport(in Observed) Decision {
	job := in.Import
	if job == nil || job.UID == "" {
		if in.Restore.Status.From.Commit != nil && in.Store == nil {
			return stalled(in, v1alpha1.ReasonStoreNotFound, "there is no VMStateStore %q in namespace %q any more", storeName(in), in.Restore.Namespace)
		}
		if in.Restore.Status.From.Commit != nil && queue.Waits(in.Store, v1alpha1.MoverRestore, in.Restore.UID) {
			return waitForMover(in)
		}
		spec, err := importSpec(in)
		if err != nil {
			return giveUp(in, v1alpha1.ReasonImportFailed, "%v", err)
		}
		return working(in, v1alpha1.ReasonFilling, "filling %d volumes", len(in.Restore.Status.Volumes)).do(action.RunJob{Job: spec})
	}
	d := followImport(in, job)
	d.Status.QueuedAt = nil // it has its mover
	return d
}

// waitForMover asks the store for a turn, and says where the restore stands among those who wait.
func waitForMover(in Observed) Decision {
	d := working(in, v1alpha1.ReasonWaitingForMover, "%s", queue.Place(in.Store, v1alpha1.MoverRestore, in.Restore.UID))
	if in.Restore.Status.QueuedAt == nil {
		d.Status.QueuedAt = &metav1.Time{Time: in.Now}
	}
	return d
}

func followImport(in Observed, job *JobSeen) Decision {
	switch outcome(job) {
	case v1alpha1.OutcomeFailed:
		reason, message := failureOf(job, v1alpha1.ReasonImportFailed)
		return giveUp(in, reason, "the volumes were not filled, nothing was replaced: %s", message)
	case v1alpha1.OutcomeSucceeded:
		if job.Active {
			return working(in, v1alpha1.ReasonFilling, "waiting until the pod that filled the volumes has ended")
		}
		return imported(in)
	}
	if Waiting(job.Report) {
		d := waitForUnlock(in, job)
		d.Status.Filling = nil // who waits for a person does not stall
		return d
	}
	if job.Pending != "" {
		return working(in, v1alpha1.ReasonJobPending, "the Job that fills the volumes does not start: %s", job.Pending)
	}
	return filling(in)
}

// imported believes a report only if it speaks of every volume.
func imported(in Observed) Decision {
	result := in.Import.Report.Status.Import
	for _, v := range in.Restore.Status.Volumes {
		if in.Restore.Status.From.Commit == nil && v.Role == v1alpha1.RoleDisk {
			continue // made from its snapshot by the storage
		}
		if result == nil || !slices.ContainsFunc(result.Volumes, func(i v1alpha1.ImportedVolume) bool { return i.Name == v.Name }) {
			return giveUp(in, v1alpha1.ReasonImportFailed, "the Job that fills the volumes says nothing of volume %q; nothing was replaced", v.Name)
		}
	}
	return withNotes(verified(in), result)
}

// maxNote bounds what is kept of the words of a pod.
const maxNote = 2000

// withNotes keeps what the Job found not to be as it should be.
func withNotes(d Decision, result *v1alpha1.ImportResult) Decision {
	if result == nil || len(result.Notes) == 0 {
		return d
	}
	const check = "Import"
	d.Status.Findings = slices.DeleteFunc(d.Status.Findings, func(f v1alpha1.Finding) bool { return f.Check == check })
	d.Status.Findings = append(d.Status.Findings, v1alpha1.Finding{
		Check: check, Outcome: v1alpha1.FindingWarning, Message: cut(strings.Join(result.Notes, "; "), maxNote),
	})
	return d
}

func verified(in Observed) Decision {
	text := "filled and read back %d volumes"
	if in.Restore.Status.From.Commit == nil {
		text = "made %d volumes of the backup's snapshots and state"
	}
	d := working(in, v1alpha1.ReasonFilling, text, len(in.Restore.Status.Volumes))
	return d.record(func(s *v1alpha1.VMStateRestoreStatus) {
		s.Summary.Progress = "100 %"
		for i := range s.Volumes {
			s.Volumes[i].Verified = true
		}
	})
}
