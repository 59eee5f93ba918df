package backup

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
)

const (
	// maxAttempts at a moment whose firmware state does not change.
	maxAttempts = 5
	// sendWindow is how long after its record a freeze is asked for.
	sendWindow = 5 * time.Second
	// requestLimit bounds one request to freeze or thaw, on our side.
	requestLimit = 15 * time.Second
	// inFlight bounds how long after its record a freeze can still land: the time until it is sent,
	// our own limit, 60 s of the API server's request time-out and 60 s of virt-handler's call to the
	// launcher (KubeVirt 1.8 and later).
	inFlight = 2*time.Minute + sendWindow + requestLimit
	// stallLimit bounds an export without progress.
	stallLimit = 30 * time.Minute
	// thawLimit bounds how long a guest is asked to thaw that does not confirm it.
	thawLimit = 30 * time.Minute
	// frozenLimit is the same where KubeVirt reports the guest as frozen.
	frozenLimit = 24 * time.Hour
	// goneLimit is how long KubeVirt must be gone from the cluster before nobody is asked any more. With the
	// definition of instances the instances went, and their pods with them.
	goneLimit = 30 * time.Minute
	// keepLimit bounds the Job that writes a few hundred KiB of firmware state.
	keepLimit = 10 * time.Minute
	// waitLimit bounds a wait before anything was touched.
	waitLimit = 10 * time.Minute
	// migrationLimit bounds the wait for a migration.
	migrationLimit = time.Hour
	// prepareLimit bounds the time until the first reading: image pull, mount, read.
	prepareLimit = 5 * time.Minute
	// cutLimit bounds the time until the storage has cut.
	cutLimit = 3 * time.Minute
	// proveLimit bounds the time until the second reading.
	proveLimit = time.Minute
	// readyLimit bounds the time until claims can be made from the snapshots.
	readyLimit = 2 * time.Hour
	// pendingLimit bounds how long a Job's pod may not start.
	pendingLimit = 30 * time.Minute
	// lookAgain is the pause of a wait that no event ends for certain.
	lookAgain = 5 * time.Second
)

// Plan decides the next step of a backup.
func Plan(in Observed) Decision {
	d := plan(in)
	return released(in, d)
}

func plan(in Observed) Decision {
	switch StageOf(in.Backup) {
	case StageSettled:
		return holdForStore(in, settled(in))
	case StageHolding:
		return holdForStore(in, hold(in))
	case StageEnding:
		return holdForStore(in, end(in))
	case StageAdopting:
		return adopt(in)
	}
	if !hasFinalizer(in.Backup) {
		return in.act(v1alpha1.ReasonWitnessing, "starting", action.AddFinalizer{Finalizer: v1alpha1.FinalizerRelease})
	}
	switch StageOf(in.Backup) {
	case StageExporting:
		return export(in)
	case StageKeeping:
		return keep(in)
	case StagePreparing:
		return prepare(in)
	case StageCutting:
		return cut(in)
	case StageProving:
		return prove(in)
	default:
		return begin(in)
	}
}

// say goes on with nothing to do but wait.
func (in Observed) say(reason, format string, args ...any) Decision {
	return Decision{
		State: conditions.Working, Reason: reason, Message: fmt.Sprintf(format, args...),
		Status: *in.Backup.Status.DeepCopy(), RequeueAfter: lookAgain,
	}
}

// act goes on with actions.
func (in Observed) act(reason, message string, actions ...action.Action) Decision {
	d := in.say(reason, "%s", message)
	d.Actions = actions
	return d
}

// record goes on with a change of the status.
func (in Observed) record(reason, message string, change func(*v1alpha1.VMStateBackupStatus)) Decision {
	d := in.say(reason, "%s", message)
	d.RequeueAfter = 0 // the record itself wakes us
	change(&d.Status)
	return d
}

// fail records why the backup failed, and gives up an open attempt. What was made is removed
// by later passes.
func (in Observed) fail(reason, format string, args ...any) Decision {
	message := fmt.Sprintf(format, args...)
	d := in.record(reason, message, func(s *v1alpha1.VMStateBackupStatus) {
		s.Failure, s.QueuedAt = &v1alpha1.Failure{Reason: reason, Message: message}, nil
		if n := len(s.Attempts); n > 0 && s.Attempts[n-1].Verdict == "" {
			s.Attempts[n-1].Verdict = v1alpha1.AttemptDiscarded
			s.Attempts[n-1].Message = message
		}
	})
	d.State = conditions.Failing
	return d
}

// discard gives up the open attempt; the next one starts afresh.
func (in Observed) discard(verdict v1alpha1.AttemptVerdict, format string, args ...any) Decision {
	message := fmt.Sprintf(format, args...)
	return in.record(v1alpha1.ReasonBinding, message, func(s *v1alpha1.VMStateBackupStatus) {
		a := &s.Attempts[len(s.Attempts)-1]
		a.Verdict, a.Message = verdict, message
	})
}

func (in Observed) micro() *metav1.MicroTime {
	t := metav1.NewMicroTime(in.Now)
	return &t
}

// since is how long ago a recorded time was.
func (in Observed) since(t time.Time) time.Duration { return in.Now.Sub(t) }
