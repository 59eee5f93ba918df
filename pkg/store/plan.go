package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
	"github.com/vmstate/vmstate/pkg/job"
	moverconfig "github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/queue"
)

const (
	// probeEvery is how often a usable store is probed.
	probeEvery = time.Hour
	// retryEvery is how often a store is probed that is not usable.
	retryEvery = 2 * time.Minute
	// pendingLimit bounds how long the probe's pod may not start.
	pendingLimit = 5 * time.Minute
	// setupLimit bounds a probe.
	setupLimit = 10 * time.Minute
)

// Observed is all that a plan knows.
type Observed struct {
	Now   time.Time
	Store *v1alpha1.VMStateStore
	// Setup is the Job of JobName; its zero value says that there is none.
	Setup Task
	// Chore is the Job of ChoreName; its zero value says that there is none.
	Chore Task
	// Children are the objects that are controlled by the store: what its Jobs made. Between two
	// Jobs there is no account that anybody could borrow.
	Children []Child
	// Backups of the namespace that name the store.
	Backups []v1alpha1.VMStateBackup
	// InUse are the keys of commits that a restore stands on.
	InUse []string
	// Readers are the UIDs of restores that may be reading: they have not ended, or a pod of theirs has not.
	Readers []string
	// Queued are the backups and restores that wait for a mover of the store, or have been let in, and Movers those that
	// there are; both only where the store bounds them.
	Queued []queue.Candidate
	Movers []queue.Mover
}

// Task is a Job and its report.
type Task struct {
	Exists  bool
	Created time.Time
	Failed  string
	Pending string
	// NoRoom says that its pod waits for room, which is no failure.
	NoRoom bool
	Report *v1alpha1.VMStateReportStatus
}

func (t Task) outcome() v1alpha1.ReportOutcome {
	if t.Report == nil {
		return ""
	}
	return t.Report.Outcome
}

// Child is an object that was made for a Job.
type Child struct {
	Kind     action.Kind
	Name     string
	UID      types.UID
	Deleting bool
}

// Decision is what to record, do and say.
type Decision struct {
	Actions []action.Action
	// Status with the records of this decision, conditions included.
	Status       v1alpha1.VMStateStoreStatus
	RequeueAfter time.Duration
}

// JobName is the setup Job of a store's generation.
func JobName(s *v1alpha1.VMStateStore) string {
	return job.Name(s.UID, fmt.Sprintf("setup-%d", s.Generation))
}

// Plan decides the next step of a store.
func Plan(in Observed) Decision {
	d := Decision{Status: *in.Store.Status.DeepCopy()}
	if in.Store.DeletionTimestamp != nil {
		return d
	}
	remember(in, &d)
	notice(in, &d)
	again := movers(in, &d)
	if d = next(in, d); again > 0 && (d.RequeueAfter == 0 || again < d.RequeueAfter) {
		d.RequeueAfter = again
	}
	return d
}

func next(in Observed, d Decision) Decision {
	switch {
	case in.Setup.Exists && !recorded(in) && in.Setup.outcome() != "":
		return conclude(in, d)
	case in.Setup.Exists && !recorded(in) && in.Setup.Failed != "":
		return broken(in, d, "the setup Job failed: "+in.Setup.Failed)
	case in.Setup.Exists && !recorded(in) && in.Now.Sub(in.Setup.Created) >= pendingLimit && in.Setup.Pending != "" && !in.Setup.NoRoom:
		return broken(in, d, "the setup Job does not start: "+in.Setup.Pending)
	case in.Setup.Exists && !recorded(in):
		return probing(in, d)
	case len(strays(in)) > 0:
		return tidy(in, d)
	case probeDue(in):
		d = probing(in, d)
		d.Actions = []action.Action{action.RunJob{Job: setupJob(in.Store)}}
		return d
	default:
		return chores(in, d)
	}
}

// probeDue: a changed spec is probed at once, also beside a chore; the rest waits until that has ended.
func probeDue(in Observed) bool {
	changed := in.Store.Status.ProbedAt == nil || in.Store.Status.ObservedGeneration != in.Store.Generation
	return changed || ChoreName(in.Store) == "" && !in.Now.Before(nextProbe(in))
}

// recorded says that what this Job found is in the status already.
func recorded(in Observed) bool {
	s := in.Store.Status
	return s.ObservedGeneration == in.Store.Generation && s.ProbedAt != nil && !s.ProbedAt.Time.Before(in.Setup.Created)
}

// nextProbe is when the store is to be probed again; in the past if it is due.
func nextProbe(in Observed) time.Time {
	s := in.Store.Status
	if s.ProbedAt == nil || s.ObservedGeneration != in.Store.Generation {
		return time.Time{}
	}
	if meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady) {
		return s.ProbedAt.Add(probeEvery)
	}
	return s.ProbedAt.Add(retryEvery)
}

func (in Observed) target(d *Decision) conditions.Target {
	return conditions.Target{List: &d.Status.Conditions, Generation: in.Store.Generation, Now: metav1.NewTime(in.Now)}
}

// probing says that the first probe of a spec is under way. Later ones are silent.
func probing(in Observed, d Decision) Decision {
	d.RequeueAfter = 10 * time.Second
	if in.Store.Status.ObservedGeneration == in.Store.Generation && in.Store.Status.ProbedAt != nil {
		return d
	}
	reason, message := v1alpha1.ReasonProbing, "the store is being probed"
	if in.Setup.Pending != "" {
		reason, message = v1alpha1.ReasonJobPending, in.Setup.Pending
	}
	t := in.target(&d)
	conditions.Write(t, conditions.Working, reason, message)
	conditions.Unknown(t, v1alpha1.ConditionWritable, reason, message)
	redundant(in, t)
	return d
}

// conclude records what a probe found.
func conclude(in Observed, d Decision) Decision {
	report := in.Setup.Report
	now := metav1.NewTime(in.Now)
	d.Status.ProbedAt, d.Status.ObservedGeneration = &now, in.Store.Generation
	setup := report.Setup
	if setup != nil {
		d.Status.Findings = append(transport(in.Store), setup.Findings...)
	}
	if report.Outcome != v1alpha1.OutcomeSucceeded || setup == nil {
		reason := known(report.Reason, v1alpha1.ReasonSetupFailed)
		if reason == v1alpha1.ReasonKeysSetBack {
			return setBack(in, d, report.Message)
		}
		return unusable(in, d, reason, report.Message)
	}
	if was := in.Store.Status; was.RepositoryID != "" && (was.RepositoryID != setup.RepositoryID || was.SigningKey != setup.SigningKey) {
		return unusable(in, d, v1alpha1.ReasonRepositoryDamaged, fmt.Sprintf(
			"the repository under the prefix is not the one that was there (ID %s, now %s): bring it back, or create another VMStateStore",
			was.RepositoryID, setup.RepositoryID))
	}
	trust, wrong := forward(in.Store.Status.Trust, setup.Trust)
	if wrong != "" {
		return setBack(in, d, wrong)
	}
	d.Status.Trust = trust
	d.Status.ChecksumMode, d.Status.RepositoryID, d.Status.SigningKey = setup.ChecksumMode, setup.RepositoryID, setup.SigningKey
	t := in.target(&d)
	conditions.Write(t, conditions.Done, v1alpha1.ReasonProbed, fmt.Sprintf("%d checks made%s", len(d.Status.Findings), warned(d.Status.Findings)))
	redundant(in, t)
	proven(in, t, &d.Status, setup)
	return writable(in, d, setup)
}

// writable says whether backups can be written, and with which keys.
func writable(in Observed, d Decision, setup *v1alpha1.SetupResult) Decision {
	t := in.target(&d)
	if setup.Writable {
		d.Status.KeysSecretName, d.Status.KeyEpoch = KeysSecretName(in.Store), epoch(in.Store)
		conditions.True(t, v1alpha1.ConditionWritable, v1alpha1.ReasonKeysHere, "the repository's keys are in Secret "+d.Status.KeysSecretName)
		return d
	}
	d.Status.KeysSecretName, d.Status.KeyEpoch = "", 0
	if setup.Superseded {
		conditions.False(t, v1alpha1.ConditionWritable, v1alpha1.ReasonKeysSuperseded, fmt.Sprintf(
			"the keys in Secret %q are of epoch %d, and another epoch follows in the bucket: restores work; to write, bring its keys as Secret %q and set spec.keyEpoch to %d",
			KeysSecretName(in.Store), epoch(in.Store), keysSecretName(in.Store, epoch(in.Store)+1), epoch(in.Store)+1))
		return d
	}
	conditions.False(t, v1alpha1.ConditionWritable, v1alpha1.ReasonKeysElsewhere, fmt.Sprintf(
		"the repository was made elsewhere, and its keys are not here: restores work; to write, bring its keys as Secret %q, or use another prefix", KeysSecretName(in.Store)))
	return d
}

// Interrupted is the decision after a look or an action failed: a store that nobody has probed
// yet says so, one that is known stays as it is.
func Interrupted(in Observed, err error) Decision {
	d := Decision{Status: *in.Store.Status.DeepCopy()}
	if in.Store.Status.ObservedGeneration == in.Store.Generation && in.Store.Status.ProbedAt != nil {
		return d
	}
	t := in.target(&d)
	conditions.Write(t, conditions.Working, v1alpha1.ReasonProbing, err.Error())
	conditions.Unknown(t, v1alpha1.ConditionWritable, v1alpha1.ReasonProbing, err.Error())
	return d
}

// broken records a probe that ended without a word.
func broken(in Observed, d Decision, message string) Decision {
	now := metav1.NewTime(in.Now)
	d.Status.ProbedAt, d.Status.ObservedGeneration = &now, in.Store.Generation
	return unusable(in, d, v1alpha1.ReasonSetupFailed, message)
}

func unusable(in Observed, d Decision, reason, message string) Decision {
	t := in.target(&d)
	conditions.Write(t, conditions.Stalled, reason, message)
	conditions.False(t, v1alpha1.ConditionWritable, reason, message)
	redundant(in, t)
	return d
}

// redundant says how many can read the backups.
func redundant(in Observed, t conditions.Target) {
	if n := len(in.Store.Spec.Recipients); n > 1 {
		conditions.True(t, v1alpha1.ConditionRedundant, v1alpha1.ReasonSeveralRecipients, fmt.Sprintf("%d recipients can read the backups", n))
		return
	}
	conditions.False(t, v1alpha1.ConditionRedundant, v1alpha1.ReasonOneRecipient,
		"one recipient alone can read the backups: if its identity is lost, they are; add one that is kept elsewhere")
}

// proven says whether anybody has shown that an identity opens what is written here. A store is usable without: that
// it is not is said until it is done.
func proven(in Observed, t conditions.Target, s *v1alpha1.VMStateStoreStatus, setup *v1alpha1.SetupResult) {
	s.Challenges, s.Proven = setup.Challenges, setup.Proven
	n, of := len(setup.Proven), len(in.Store.Spec.Recipients)
	command := fmt.Sprintf("kubectl vmstate prove %s -n %s --identity FILE", in.Store.Name, in.Store.Namespace)
	switch {
	case n == 0:
		conditions.False(t, v1alpha1.ConditionProven, v1alpha1.ReasonNotProven,
			"nobody has shown yet that an identity opens the backups: type "+command+" where the identity is")
	case n < of:
		conditions.True(t, v1alpha1.ConditionProven, v1alpha1.ReasonProvenByHolder,
			fmt.Sprintf("%d of %d recipients were shown to open the backups; for the others, type %s", n, of, command))
	default:
		conditions.True(t, v1alpha1.ConditionProven, v1alpha1.ReasonProvenByHolder, "every recipient was shown to open the backups")
	}
}

// transport is a finding of our own: the mover does not judge the scheme that it was told.
func transport(s *v1alpha1.VMStateStore) []v1alpha1.Finding {
	if strings.HasPrefix(s.Spec.S3.Endpoint, "https://") {
		return nil
	}
	return []v1alpha1.Finding{{
		Check: "Transport", Outcome: v1alpha1.FindingWarning,
		Message: "the endpoint is plain http: backups are encrypted, but who listens sees names and sizes of objects and can disturb them; use https",
	}}
}

func warned(findings []v1alpha1.Finding) string {
	n := 0
	for _, f := range findings {
		if f.Outcome != v1alpha1.FindingOK {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d with a warning", n)
}

// strays are what is left of Jobs that have ended.
func strays(in Observed) []Child {
	name := ChoreName(in.Store)
	if name == "" {
		return in.Children
	}
	return slices.DeleteFunc(slices.Clone(in.Children), func(c Child) bool {
		return c.Name == name || slices.Contains(choreAccounts(in.Store), c.Name)
	})
}

// tidy removes what is left of Jobs that have ended, the Job first.
func tidy(in Observed, d Decision) Decision {
	d.RequeueAfter = 5 * time.Second
	left := strays(in)
	for _, kind := range []action.Kind{action.KindJob, action.KindReport, action.KindRoleBinding, action.KindServiceAccount} {
		of := slices.DeleteFunc(slices.Clone(left), func(c Child) bool { return c.Kind != kind })
		for _, c := range of {
			if !c.Deleting {
				d.Actions = append(d.Actions, action.Delete{Kind: c.Kind, Name: c.Name, UID: c.UID})
			}
		}
		if len(of) > 0 {
			return d
		}
	}
	return d
}

func setupJob(s *v1alpha1.VMStateStore) job.Spec {
	setup := &moverconfig.Setup{Recipients: s.Spec.Recipients, KeysSecretName: KeysSecretName(s)}
	mounts := append(Mounts(s), job.Mount{Secret: KeysSecretName(s), Path: job.PathRepositoryKeys, Optional: true})
	if n := epoch(s); n > 1 {
		setup.Epoch = uint32(n)
		mounts = append(mounts, job.Mount{Secret: keysSecretName(s, n-1), Path: job.PathPreviousKeys, Optional: true})
	}
	for _, p := range s.Spec.Proofs {
		setup.Proofs = append(setup.Proofs, moverconfig.Proof(p))
	}
	for _, d := range s.Spec.Distrust {
		said := moverconfig.Distrust{Epoch: uint32(d.Epoch)}
		for _, g := range d.LastGood {
			said.LastGood = append(said.LastGood, moverconfig.Commit(g))
		}
		setup.Distrust = append(setup.Distrust, said)
	}
	raw, _ := moverconfig.Config{Store: Config(s), Setup: setup}.Encode() // strings and bytes alone: it encodes
	return job.Spec{
		Name: JobName(s), Task: v1alpha1.TaskSetup, Config: raw,
		Mounts:   mounts,
		Deadline: setupLimit, Retries: 2,
	}
}

// known is a report's reason if a store can have it, else the other one: a report is written by a
// pod, whose account others in the namespace can borrow.
func known(reason, other string) string {
	switch reason {
	case v1alpha1.ReasonKeysSetBack, v1alpha1.ReasonUnreachable, v1alpha1.ReasonAccessDenied, v1alpha1.ReasonBucketNotFound, v1alpha1.ReasonClockSkew,
		v1alpha1.ReasonNoConditionalWrites, v1alpha1.ReasonNoObjectLock, v1alpha1.ReasonSecretNotFound, v1alpha1.ReasonStoreFull,
		v1alpha1.ReasonInvalidRecipients, v1alpha1.ReasonKeysElsewhere, v1alpha1.ReasonRepositoryDamaged,
		v1alpha1.ReasonWrongIdentity, v1alpha1.ReasonNotAuthentic:
		return reason
	default:
		return other
	}
}
