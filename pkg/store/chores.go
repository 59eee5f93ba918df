package store

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/pkg/queue"
)

const (
	// firstPause follows the first failure of a chore; it doubles with each one.
	firstPause = 2 * time.Minute
	// longestPause is the longest after failures.
	longestPause = 6 * time.Hour
	// lookAgain is the pause of a wait that no event ends for certain.
	lookAgain = 10 * time.Second
)

// chore is a Job that a store has done from time to time.
type chore struct {
	task v1alpha1.ReportTask
	// mover is what its Job counts as; "" if it is small, and does not count.
	mover v1alpha1.MoverKind
	// short names the chore in the name of its Jobs, which has room for 18 characters.
	short string
	// status of the chore in d; nil if it was never begun.
	status func(*v1alpha1.VMStateStoreStatus) *v1alpha1.StoreTaskStatus
	// due is when the next run is to begin if the last one went well; the zero time is now, false
	// is never.
	due func(Observed) (time.Time, bool)
	// begin records what the run is about.
	begin func(Observed, *v1alpha1.VMStateStoreStatus)
	// spec of the Job that does what is recorded, but for its name.
	spec func(Observed) job.Spec
	// conclude records what a run that went well reports. Not done says that its actions come
	// first, and that it is asked again after them.
	conclude func(Observed, *Decision) (done bool, wrong string)
	// failed records why a run failed.
	failed func(in Observed, d *Decision, reason, message string)
	// idle says why it is never due, if somebody should know.
	idle func(in Observed, d *Decision)
}

// chores of a store, the more urgent first.
func all() []chore { return []chore{catalogueChore(), maintenanceChore(), verificationChore()} }

// running is the chore that is under way; false if none is.
func running(s *v1alpha1.VMStateStoreStatus) (chore, bool) {
	for _, c := range all() {
		if st := c.status(s); st != nil && st.JobName != "" {
			return c, true
		}
	}
	return chore{}, false
}

// ChoreName is the Job of the chore that is under way; "" if none is.
func ChoreName(s *v1alpha1.VMStateStore) string {
	c, ok := running(&s.Status)
	if !ok {
		return ""
	}
	return c.status(&s.Status).JobName
}

// choreAccounts are the service account, and its binding, of the chore that is under way.
func choreAccounts(s *v1alpha1.VMStateStore) []string {
	c, ok := running(&s.Status)
	if !ok {
		return nil
	}
	return []string{job.AccountName(s.UID, c.task)}
}

// chores follows the one that is under way, or begins the one that is due.
func chores(in Observed, d Decision) Decision {
	if c, ok := running(&in.Store.Status); ok {
		return follow(in, d, c)
	}
	d.RequeueAfter = max(nextProbe(in).Sub(in.Now), time.Second)
	ready := meta.IsStatusConditionTrue(in.Store.Status.Conditions, v1alpha1.ConditionReady)
	for _, c := range all() {
		at, ever := dueAt(in, c)
		st := c.status(&d.Status)
		switch {
		case !ever:
			if st != nil {
				st.NextAt = nil
			}
			c.idle(in, &d)
		case ready && !in.Now.Before(at) && kept(in, d, c):
			d.RequeueAfter = min(d.RequeueAfter, lookAgain)
		case ready && !in.Now.Before(at):
			return begin(in, d, c)
		default:
			if st != nil {
				next := metav1.NewTime(at)
				st.NextAt = &next
			}
			if ready { // else the probe that finds it so wakes us
				d.RequeueAfter = max(min(d.RequeueAfter, at.Sub(in.Now)), time.Second)
			}
		}
	}
	return d
}

// kept says that a chore is due and there is no room for its mover.
func kept(in Observed, d Decision, c chore) bool {
	return c.mover != "" && queue.Limited(in.Store) && queue.Working(d.Status.Movers, c.mover, in.Store.UID) == nil
}

// movers decides who may work for the store, its own chores included; the returned time is when to ask again, 0 for never.
func movers(in Observed, d *Decision) (again time.Duration) {
	if !queue.Limited(in.Store) {
		d.Status.Movers = nil
		return 0
	}
	d.Status.Movers, again = queue.Plan(queue.Observed{
		Now: in.Now, Limits: in.Store.Spec.Limits, Recorded: in.Store.Status.Movers,
		Candidates: append(ownCandidates(in), in.Queued...), Movers: in.Movers,
	})
	if again == 0 && d.Status.Movers.WaitingCount > 0 {
		again = lookAgain // what ends a mover is watched; this is for what a watch may miss
	}
	return again
}

// ownCandidates is the chore that needs a mover: the one that is under way, or else the first that is due.
func ownCandidates(in Observed) []queue.Candidate {
	turn := func(c chore, since time.Time) v1alpha1.MoverTurn {
		return v1alpha1.MoverTurn{Kind: c.mover, Name: in.Store.Name, UID: in.Store.UID, Since: metav1.NewTime(since)}
	}
	if c, ok := running(&in.Store.Status); ok {
		if c.mover == "" {
			return nil
		}
		return []queue.Candidate{{MoverTurn: turn(c, c.status(&in.Store.Status).LastStartedAt.Time), Begun: true}}
	}
	if !meta.IsStatusConditionTrue(in.Store.Status.Conditions, v1alpha1.ConditionReady) {
		return nil
	}
	for _, c := range all() {
		at, ever := dueAt(in, c)
		if c.mover == "" || !ever || in.Now.Before(at) {
			continue
		}
		return []queue.Candidate{{MoverTurn: turn(c, waitingSince(in, c))}}
	}
	return nil
}

// waitingSince is when a chore that is due was first seen to wait.
func waitingSince(in Observed, c chore) time.Time {
	if m := in.Store.Status.Movers; m != nil {
		for _, t := range m.Waiting {
			if t.Kind == c.mover && t.UID == in.Store.UID {
				return t.Since.Time
			}
		}
	}
	return in.Now
}

// dueAt is when a chore is due: not before its pause after failures is over.
func dueAt(in Observed, c chore) (time.Time, bool) {
	at, ever := c.due(in)
	st := c.status(&in.Store.Status)
	if st == nil || st.Failures == 0 || st.LastEndedAt == nil {
		return at, ever
	}
	if over := st.LastEndedAt.Add(pauseAfter(st.Failures)); over.After(at) {
		at = over
	}
	return at, ever
}

func pauseAfter(failures int32) time.Duration {
	pause := firstPause
	for range failures - 1 {
		if pause *= 2; pause >= longestPause {
			return longestPause
		}
	}
	return pause
}

// begin records a run; the next pass makes its Job.
func begin(in Observed, d Decision, c chore) Decision {
	c.begin(in, &d.Status)
	st := c.status(&d.Status)
	now := metav1.NewTime(in.Now)
	st.Runs++
	st.JobName = job.Name(in.Store.UID, fmt.Sprintf("%s-%d", c.short, st.Runs))
	st.LastStartedAt, st.NextAt = &now, nil
	d.RequeueAfter = time.Second
	return d
}

// follow makes the Job of a run, waits for it, and records its end.
func follow(in Observed, d Decision, c chore) Decision {
	t := in.Chore
	d.RequeueAfter = lookAgain
	switch {
	case t.outcome() == v1alpha1.OutcomeSucceeded:
		return concluded(in, d, c)
	case t.outcome() == v1alpha1.OutcomeFailed:
		return over(in, d, c, t.Report.Reason, t.Report.Message)
	case t.Failed != "":
		return over(in, d, c, "", "its Job failed: "+lastWords(t))
	case t.Exists && in.Now.Sub(t.Created) >= pendingLimit && t.Pending != "" && !t.NoRoom:
		return over(in, d, c, "", "its Job does not start: "+t.Pending)
	case !t.Exists:
		spec := c.spec(in)
		spec.Name, spec.Task = ChoreName(in.Store), c.task
		if c.mover != "" {
			spec.Store = in.Store.Name
			if t := queue.Working(d.Status.Movers, c.mover, in.Store.UID); t != nil {
				spec.Slot = t.Slot
			}
		}
		d.Actions = []action.Action{action.RunJob{Job: spec}}
	}
	return d
}

// lastWords of a Job that gave up: what its pod reported last says more than the Job does.
func lastWords(t Task) string {
	if t.Report != nil && t.Report.Message != "" {
		return t.Report.Message
	}
	return t.Failed
}

func concluded(in Observed, d Decision, c chore) Decision {
	done, wrong := c.conclude(in, &d)
	switch {
	case wrong != "":
		return over(in, Decision{Status: *in.Store.Status.DeepCopy()}, c, "", "its report is not what the Job was asked for: "+wrong)
	case !done:
		d.RequeueAfter = time.Second
		return d
	}
	st := c.status(&d.Status)
	now := metav1.NewTime(in.Now)
	st.JobName, st.LastEndedAt, st.Failures = "", &now, 0
	d.RequeueAfter = time.Second
	return d
}

// over records that a run failed.
func over(in Observed, d Decision, c chore, reason, message string) Decision {
	st := c.status(&d.Status)
	now := metav1.NewTime(in.Now)
	st.JobName, st.LastEndedAt = "", &now
	st.Failures++
	c.failed(in, &d, reason, message)
	d.RequeueAfter = time.Second
	return d
}
