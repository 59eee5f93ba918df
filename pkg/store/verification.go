package store

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
	"github.com/vmstate/vmstate/pkg/job"
	moverconfig "github.com/vmstate/vmstate/pkg/mover/config"
)

const (
	// verifyEvery is how often a part of the store is read back.
	verifyEvery = 24 * time.Hour
	// verifyLimit bounds one part. What was read by then is lost: see spec.verification.
	verifyLimit = 20 * time.Hour
	// defaultRound is the days of a round that says nothing of it.
	defaultRound = 30
	// maxCursor bounds the cursor in bytes: it is told in the Job's environment, where Linux takes
	// 128 KiB. With a longer one the round begins anew.
	maxCursor = 96 << 10
	// maxDamaged bounds the damaged objects that are kept.
	maxDamaged = 200
)

func verificationChore() chore {
	return chore{
		task: v1alpha1.TaskVerify, mover: v1alpha1.MoverVerification, short: "verify",
		status: func(s *v1alpha1.VMStateStoreStatus) *v1alpha1.StoreTaskStatus {
			if s.Verification == nil {
				return nil
			}
			return &s.Verification.StoreTaskStatus
		},
		due: func(in Observed) (time.Time, bool) {
			spec, st := in.Store.Spec.Verification, in.Store.Status.Verification
			switch {
			case spec == nil || spec.Suspend || in.Store.Status.KeysSecretName == "":
				return time.Time{}, false
			case st == nil || st.LastSucceededAt == nil:
				return in.Store.CreationTimestamp.Add(time.Hour), true
			default:
				return st.LastSucceededAt.Add(verifyEvery), true
			}
		},
		begin: func(_ Observed, s *v1alpha1.VMStateStoreStatus) {
			if s.Verification == nil {
				s.Verification = &v1alpha1.VerificationStatus{}
			}
		},
		spec: verificationJob, conclude: concludeVerification,
		failed: func(in Observed, d *Decision, reason, message string) {
			conditions.False(in.target(d), v1alpha1.ConditionVerified, known(reason, v1alpha1.ReasonVerificationFailed),
				"the store could not be read back, and is tried again: "+message)
		},
		idle: func(in Observed, d *Decision) {
			conditions.Unknown(in.target(d), v1alpha1.ConditionVerified, v1alpha1.ReasonNotVerified,
				"nothing is read back: set spec.verification, in the cluster that holds the repository's keys")
		},
	}
}

func verificationJob(in Observed) job.Spec {
	s, parts := in.Store, int(in.Store.Spec.Verification.RoundDays)
	if parts == 0 {
		parts = defaultRound
	}
	told := &moverconfig.Verify{Cursor: s.Status.Verification.Cursor, Parts: parts, BytesPerSecond: s.Spec.Verification.BytesPerSecond}
	raw, _ := moverconfig.Config{Store: Config(s), Verify: told}.Encode() // strings and numbers alone: it encodes
	return job.Spec{
		Config: raw, Deadline: verifyLimit, Retries: 2,
		Mounts: append(Mounts(s), job.Mount{Secret: s.Status.KeysSecretName, Path: job.PathRepositoryKeys, Optional: true}),
	}
}

// concludeVerification marks the backups that can be judged, then records what was found.
func concludeVerification(in Observed, d *Decision) (done bool, wrong string) {
	r := in.Chore.Report.Verification
	if r == nil || r.CheckedBytes < 0 {
		return false, "it does not say what was read back"
	}
	started := in.Store.Status.Verification.LastStartedAt
	for _, v := range r.Backups {
		for i := range in.Backups {
			b := &in.Backups[i]
			if !sameCommit(commitOf(b), v.Commit) || b.Status.CompletedAt == nil || b.Status.Failure != nil || b.DeletionTimestamp != nil {
				continue
			}
			if a, missing := verdictOf(b, v, started); missing {
				d.Actions = append(d.Actions, a)
			}
		}
	}
	if n := len(d.Actions); n > 0 {
		d.Actions = d.Actions[:min(n, atOnce)]
		return false, ""
	}
	st, now := d.Status.Verification, metav1.NewTime(in.Now)
	st.LastSucceededAt, st.CheckedBytes, st.Cursor = &now, r.CheckedBytes, r.Cursor
	if len(st.Cursor) > maxCursor {
		st.Cursor = ""
	}
	if r.RoundDone {
		st.RoundEndedAt = &now
	}
	st.Damaged = bounded(r.Damaged, maxDamaged)
	t := in.target(d)
	if len(st.Damaged) == 0 {
		conditions.True(t, v1alpha1.ConditionVerified, v1alpha1.ReasonVerified, "nothing that was read back is damaged")
		return true, ""
	}
	conditions.False(t, v1alpha1.ConditionVerified, v1alpha1.ReasonDamaged, fmt.Sprintf(
		"%d objects are not as they were written, which status.verification.damaged lists; the backups that they hurt say so, and the next backup of each virtual machine sends again what it still has",
		len(r.Damaged)))
	return true, ""
}

// verdictOf marks a backup, unless it says so already.
func verdictOf(b *v1alpha1.VMStateBackup, v v1alpha1.BackupVerdict, started *metav1.Time) (action.Action, bool) {
	want := metav1.Condition{
		Type: v1alpha1.ConditionVerified, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonVerified, ObservedGeneration: b.Generation,
		Message: "all of it was read back from the store, and is as it was written",
	}
	if v.Damaged {
		want.Status, want.Reason, want.Message = metav1.ConditionFalse, v1alpha1.ReasonDamaged, limited(v.Message)
	}
	out := action.MarkBackup{Name: b.Name, UID: b.UID, Condition: want}
	if !v.Damaged {
		out.VerifiedAt = started
	}
	fresh := v.Damaged || b.Status.VerifiedAt != nil && !b.Status.VerifiedAt.Before(started)
	return out, !fresh || !says(b, want)
}
