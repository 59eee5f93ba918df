package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
	"github.com/vmstate/vmstate/pkg/job"
	moverconfig "github.com/vmstate/vmstate/pkg/mover/config"
)

const (
	// maintainEvery is how often a store is cleaned up that does not say how often.
	maintainEvery = 24 * time.Hour
	// maintainLimit bounds one pass; what is left follows with the next one.
	maintainLimit = 6 * time.Hour
	// generationDays is how much longer than asked for objects are locked (repository.Generation).
	generationDays = 30
	// maxRemovals and maxTold bound what one Job is told: it is told in its environment.
	maxRemovals = 100
	maxTold     = 200
	// maxSessions bounds the sessions that are remembered.
	maxSessions = 200
	// maxHeld bounds the chains that are named.
	maxHeld = 20
)

// MaintenanceKeyName is the Secret with the key that removals are signed with.
func MaintenanceKeyName(s *v1alpha1.VMStateStore) string { return s.Name + "-maintenance-key" }

func maintenanceChore() chore {
	return chore{
		task: v1alpha1.TaskMaintain, mover: v1alpha1.MoverMaintenance, short: "maintain",
		status: func(s *v1alpha1.VMStateStoreStatus) *v1alpha1.StoreTaskStatus {
			if s.Maintenance == nil {
				return nil
			}
			return &s.Maintenance.StoreTaskStatus
		},
		due: maintenanceDue,
		begin: func(_ Observed, s *v1alpha1.VMStateStoreStatus) {
			if s.Maintenance == nil {
				s.Maintenance = &v1alpha1.MaintenanceStatus{}
			}
		},
		spec: maintenanceJob, conclude: concludeMaintenance,
		failed: func(in Observed, d *Decision, reason, message string) {
			conditions.False(in.target(d), v1alpha1.ConditionMaintained, known(reason, v1alpha1.ReasonMaintenanceFailed),
				"the store could not be cleaned up, and is tried again: "+message)
		},
		idle: func(in Observed, d *Decision) {
			reason, message := v1alpha1.ReasonNoMaintenance, whyUnmaintained(in.Store)
			if lock := in.Store.Spec.S3.ObjectLock; lock != nil {
				reason, message = v1alpha1.ReasonLocksLapse, message+"; "+lapsing(lock)
			}
			conditions.False(in.target(d), v1alpha1.ConditionMaintained, reason, message)
		},
	}
}

// whyUnmaintained says why nothing is ever removed from a store; "" if it is.
func whyUnmaintained(s *v1alpha1.VMStateStore) string {
	switch m := s.Spec.Maintenance; {
	case m == nil:
		return "nothing is ever removed from the bucket: to have it cleaned up, set spec.maintenance with credentials that may delete"
	case m.Suspend:
		return "nothing is removed from the bucket while spec.maintenance.suspend is set"
	case s.Status.KeysSecretName == "":
		return "nothing is removed from the bucket by this cluster: the repository's keys are elsewhere"
	default:
		return ""
	}
}

// lapsing says what becomes of locks that no maintenance extends.
func lapsing(lock *v1alpha1.ObjectLock) string {
	return fmt.Sprintf("nor is any object lock extended: %d days after an object was written its lock ends, also if backups still need it. "+
		"Maintenance extends the locks: it needs spec.maintenance, with credentials that may also s3:PutObjectRetention, not suspended, in the cluster with the repository's keys",
		lock.RetentionDays+generationDays)
}

func maintenanceDue(in Observed) (time.Time, bool) {
	s := in.Store
	if whyUnmaintained(s) != "" {
		return time.Time{}, false
	}
	m := s.Status.Maintenance
	for i := range in.Backups {
		b := &in.Backups[i]
		if in.removable(b) && (m == nil || m.LastStartedAt == nil || !b.DeletionTimestamp.Before(m.LastStartedAt)) {
			return time.Time{}, true // somebody waits for it
		}
	}
	if m == nil || m.LastSucceededAt == nil {
		return s.CreationTimestamp.Add(passEvery(s)), true
	}
	return m.LastSucceededAt.Add(passEvery(s)), true
}

// passEvery is how often a pass is made. One that extends locks is made each day: a lock is
// extended when a week of it is left.
func passEvery(s *v1alpha1.VMStateStore) time.Duration {
	if s.Spec.S3.ObjectLock != nil {
		return min(maintenanceInterval(s), maintainEvery)
	}
	return maintenanceInterval(s)
}

func maintenanceInterval(s *v1alpha1.VMStateStore) time.Duration {
	if s.Spec.Maintenance.IntervalHours == 0 {
		return maintainEvery
	}
	return time.Duration(s.Spec.Maintenance.IntervalHours) * time.Hour
}

// removable says that a backup was deleted by somebody who wants it gone from the store as well,
// that the store was not seen to lack, and that no restore stands on.
func (in Observed) removable(b *v1alpha1.VMStateBackup) bool {
	return b.DeletionTimestamp != nil && b.Spec.DeletionPolicy == v1alpha1.DeletionDelete && slices.Contains(b.Finalizers, v1alpha1.FinalizerStored) &&
		b.Status.Export != nil && b.Status.Export.Commit != nil && !Missing(b) && !slices.Contains(in.InUse, b.Status.Export.Commit.Key)
}

func maintenanceJob(in Observed) job.Spec {
	s := in.Store
	told := &moverconfig.Maintain{
		IntervalSeconds: int64(maintenanceInterval(s) / time.Second), KeySecretName: MaintenanceKeyName(s), Ended: s.Status.Maintenance.Sessions,
		Lost: s.Spec.Maintenance.Lost,
	}
	newest := map[string]v1alpha1.CommitRef{}
	for i := range in.Backups {
		b := &in.Backups[i]
		if b.Status.CompletedAt == nil && b.Status.VM != nil && len(told.Alive) < maxTold {
			told.Alive = append(told.Alive, moverconfig.Writer{VMUID: string(b.Status.VM.UID), BackupUID: string(b.UID)})
		}
		if b.Status.Export == nil || b.Status.Export.Commit == nil {
			continue
		}
		c := *b.Status.Export.Commit
		if in.removable(b) {
			if len(told.Remove) < maxRemovals {
				told.Remove = append(told.Remove, moverconfig.Commit{Key: c.Key, Digest: c.Digest})
			}
			continue
		}
		chain, sequence, ok := chainOf(c.Key)
		if ok && !lost(b) && b.DeletionTimestamp == nil && sequence > newest[chain].Sequence {
			newest[chain] = c
		}
	}
	told.Readers = in.Readers[:min(len(in.Readers), maxTold)]
	if len(told.Alive) == maxTold || len(told.Readers) == maxTold {
		told.Ended = nil // somebody may have been left out
	}
	for _, c := range newest {
		if len(told.Known) < maxTold {
			told.Known = append(told.Known, moverconfig.Commit{Key: c.Key, Digest: c.Digest})
		}
	}
	slices.SortFunc(told.Known, func(a, b moverconfig.Commit) int { return strings.Compare(a.Key, b.Key) })
	raw, _ := moverconfig.Config{Store: Config(s), Maintain: told}.Encode() // strings and numbers alone: it encodes
	mounts := []job.Mount{
		{Secret: s.Status.KeysSecretName, Path: job.PathRepositoryKeys, Optional: true},
		{Secret: MaintenanceKeyName(s), Path: job.PathMaintenanceKey, Optional: true},
	}
	return job.Spec{Config: raw, Mounts: append(mountsWith(s, s.Spec.Maintenance.CredentialsSecretRef), mounts...), Deadline: maintainLimit, Retries: 2}
}

// mountsWith are what a mover needs to reach a store with other credentials than those that write.
func mountsWith(s *v1alpha1.VMStateStore, credentials v1alpha1.ObjectRef) []job.Mount {
	out := Mounts(s)
	for i := range out {
		if out[i].Path == job.PathCredentials {
			out[i].Secret = credentials.Name
		}
	}
	return out
}

// concludeMaintenance lets go of the backups that are gone, then records what was done.
func concludeMaintenance(in Observed, d *Decision) (done bool, wrong string) {
	r := in.Chore.Report.Maintenance
	if r == nil {
		return false, "it does not say what was removed"
	}
	if min(r.DeletedObjects, r.FreedBytes, r.WaitingBytes, r.LockedBytes, r.UnexplainedBytes, r.RetainedObjects, r.ExtendedObjects) < 0 {
		return false, "it counts less than nothing"
	}
	m := d.Status.Maintenance
	for i := range in.Backups {
		b := &in.Backups[i]
		if in.removable(b) && slices.ContainsFunc(r.Removed, func(c v1alpha1.CommitRef) bool { return sameCommit(c, *b.Status.Export.Commit) }) {
			d.Actions = append(d.Actions, action.ReleaseBackup{Name: b.Name, UID: b.UID})
			removedFrom(d.Status.Catalogue, b.Status.Export.Commit.Key)
			m.RemovedBackups++
		}
	}
	now := metav1.NewTime(in.Now)
	m.LastSucceededAt, m.KeySecretName = &now, MaintenanceKeyName(in.Store)
	m.DeletedObjects += r.DeletedObjects
	m.FreedBytes += r.FreedBytes
	m.WaitingBytes, m.LockedBytes, m.UnexplainedBytes = r.WaitingBytes, r.LockedBytes, r.UnexplainedBytes
	m.RetainedObjects = r.RetainedObjects
	m.ExtendedObjects += r.ExtendedObjects
	m.Held, m.Sessions = bounded(append(slices.Clone(r.Held), r.Stay...), maxHeld), r.Sessions[:min(len(r.Sessions), maxSessions)]
	t := in.target(d)
	if len(m.Held) == 0 {
		conditions.True(t, v1alpha1.ConditionMaintained, v1alpha1.ReasonMaintained, fmt.Sprintf(
			"%d backups and %d objects removed so far; %d bytes wait for a later pass", m.RemovedBackups, m.DeletedObjects, m.WaitingBytes))
		return true, ""
	}
	conditions.False(t, v1alpha1.ConditionMaintained, v1alpha1.ReasonMaintenanceHeld, fmt.Sprintf(
		"nothing was removed where the store cannot be relied on, which status.maintenance.held lists: %s: %s; what is lost for good, spec.maintenance.lost may name",
		m.Held[0].Key, m.Held[0].Message))
	return true, ""
}

func sameCommit(a, b v1alpha1.CommitRef) bool { return a.Key == b.Key && a.Digest == b.Digest }

// removedFrom notes that a chain may end earlier from now on.
func removedFrom(c *v1alpha1.CatalogueStatus, key string) {
	chain, sequence, ok := chainOf(key)
	if !ok || c == nil {
		return
	}
	for i := range c.Chains {
		if c.Chains[i].Chain == chain && c.Chains[i].Sequence == sequence {
			c.Chains[i].Removed = true
		}
	}
}

// bounded keeps the first faults, with texts of a bounded length.
func bounded(faults []v1alpha1.CatalogueFault, limit int) []v1alpha1.CatalogueFault {
	var out []v1alpha1.CatalogueFault
	for _, f := range faults[:min(len(faults), limit)] {
		out = append(out, v1alpha1.CatalogueFault{Key: limited(f.Key), Message: limited(f.Message)})
	}
	return out
}
