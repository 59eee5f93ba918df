package backup

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
	"github.com/vmstate/vmstate/pkg/inventory"
	"github.com/vmstate/vmstate/pkg/snapshotset"
)

// Observed is all that a plan knows. What a stage does not look at is left at its zero value;
// StageOf says which stage that is.
type Observed struct {
	Now time.Time
	// Process names the manager process that plans.
	Process string
	Backup  *v1alpha1.VMStateBackup
	// Store that the backup names; nil if there is none of that name.
	Store *v1alpha1.VMStateStore
	// Blocker is another backup of the same VM that takes its moment; "" if there is none.
	Blocker string
	// Parent is the newest backup of the same VM in the same store.
	Parent *v1alpha1.CommitRef
	// Others are the other backups of the namespace.
	Others []*v1alpha1.VMStateBackup
	// Remembered is what the stores of the namespace remember of CSI drivers that told too little.
	Remembered []v1alpha1.DriverFinding
	// Trackers are the CSI drivers that tell what their snapshots hold, by name.
	Trackers map[string]Tracker
	// MachineGone says that the VM of the backup is not there any more.
	MachineGone bool
	// Machine as it is now.
	Machine *Machine
	// Storage is what the cluster offers for snapshots.
	Storage snapshotset.Storage
	// Documents says that the documents of the attempt are kept.
	Documents bool
	// Members are the claims that carry the attempt's label.
	Members []ClaimRef
	Witness Task
	Export  Task
	Keep    Task
	// Cut is how far the snapshots are.
	Cut snapshotset.Progress
	// PausedSince is since when the recorded instance is paused, looked at after Cut and Witness; nil if it
	// is not.
	PausedSince *metav1.Time
	// Locked says that we hold the VM's lock.
	Locked bool
	// Children are the objects that are controlled by the backup.
	Children []Child
	// Terminating says that the namespace is being deleted.
	Terminating bool
}

// ReadOnce says that the first reading is there.
func (in Observed) ReadOnce() bool { return hasState(in.Backup) && in.Witness.witness().First != nil }

// Ready says that the witness has done what comes before the cut.
func (in Observed) Ready() bool {
	w := in.Witness.witness()
	return (!hasState(in.Backup) || w.First != nil) && (!fenced(in.Backup) || w.Guarding)
}

// ReadTwice says that nothing more is expected from a witness.
func (in Observed) ReadTwice() bool {
	return !hasState(in.Backup) || fenced(in.Backup) || in.Witness.witness().Second != nil
}

// Machine is the virtual machine as it was just read.
type Machine struct {
	Inventory inventory.Inventory
	// Refusals are all reasons why it cannot be captured (now); none if it can.
	Refusals []inventory.Refusal
	// Documents of the machine, encoded.
	Documents []byte
}

// ClaimRef is a claim and which one of that name.
type ClaimRef struct {
	Name string
	UID  types.UID
}

// Task is a Job and its report.
type Task struct {
	// Exists says that the Job is there.
	Exists  bool
	Created time.Time
	// Started says that a pod runs, or ran.
	Started bool
	// Failed is why the Job will not go on; "" if it may.
	Failed string
	// Pending is what keeps its pod from starting; "" if nothing does.
	Pending string
	// NoRoom says that it waits for room: nodes are full, or a quota is used up. That is no failure, however long it takes.
	NoRoom bool
	// Standing is how its newest pod stands; "" if that is not known.
	Standing string
	// Report of the Job; nil if there is none.
	Report *v1alpha1.VMStateReportStatus
}

func (t Task) outcome() v1alpha1.ReportOutcome {
	if t.Report == nil {
		return ""
	}
	return t.Report.Outcome
}

func (t Task) witness() *v1alpha1.WitnessResult {
	if t.Report == nil || t.Report.Witness == nil {
		return &v1alpha1.WitnessResult{}
	}
	return t.Report.Witness
}

// Child is an object that is controlled by the backup.
type Child struct {
	Kind    action.Kind
	Name    string
	UID     types.UID
	Created time.Time
	// Deleting says that it is being deleted already.
	Deleting bool
	// DeletedAt is when it began to be deleted.
	DeletedAt time.Time
	// Bound says that a snapshot knows its content. One that does not may leave it behind.
	Bound bool
	// Unnamed says that a group snapshot has a content and does not name it: deleted now, it is sure to
	// leave it behind.
	Unnamed bool
}

// Decision is what to record, do and say.
type Decision struct {
	State   conditions.State
	Reason  string
	Message string
	Actions []action.Action
	// Status is the backup's status with the records of this decision, conditions apart.
	Status v1alpha1.VMStateBackupStatus
	// Waiting is what the removal of what was made waits for, for a person; "" if for nothing.
	Waiting string
	// LeftBehind is what is still being removed when the backup is let go of, for a person; "" if nothing is.
	LeftBehind string
	// Findings are conditions besides those of State.
	Findings []Finding
	// Warnings for a person, said once.
	Warnings []string
	// Farewell is what a person should know when the backup is let go of; "" if nothing.
	Farewell string
	// NotInStore says that the farewell is to a backup that its store was seen to lack.
	NotInStore bool
	// RequeueAfter is when a wait ends that nothing else ends; 0 if something will wake us.
	RequeueAfter time.Duration
}

// Stage is what a pass is about; it follows from the status alone.
type Stage int

const (
	// StageSettled: nothing is left to do.
	StageSettled Stage = iota
	// StageHolding: all is done, and snapshots are kept for the next backup.
	StageHolding
	// StageEnding: an outcome is recorded, or the backup is being deleted.
	StageEnding
	// StageBeginning: no attempt is open.
	StageBeginning
	// StagePreparing: an attempt is open, its cut has not begun.
	StagePreparing
	// StageCutting: the cut has begun.
	StageCutting
	// StageProving: the cut has ended.
	StageProving
	// StageExporting: the moment is there, and goes to a store.
	StageExporting
	// StageKeeping: the moment is there, and stays here.
	StageKeeping
	// StageAdopting: the backup is in its store, and its record is to be read.
	StageAdopting
)

// StageOf is the stage of a backup.
func StageOf(b *v1alpha1.VMStateBackup) Stage {
	s := &b.Status
	a := Open(b)
	switch {
	case b.DeletionTimestamp != nil:
		return StageEnding
	case s.CompletedAt != nil && !hasFinalizer(b) && s.Export != nil && s.Export.Base != nil:
		return StageHolding
	case s.CompletedAt != nil && !hasFinalizer(b):
		return StageSettled
	case ended(b):
		return StageEnding
	case b.Spec.Commit != nil:
		return StageAdopting
	case s.Moment != nil && b.Spec.StoreRef != nil:
		return StageExporting
	case s.Moment != nil:
		return StageKeeping
	case a == nil:
		return StageBeginning
	case a.CutStarted == nil:
		return StagePreparing
	case a.CutEnded == nil:
		return StageCutting
	default:
		return StageProving
	}
}

// GoesFirst says that a takes its turn at the VM before b: it is at it, or may have left the guest
// frozen, or is about to begin and older. One that only waits for something holds nobody up.
func GoesFirst(a, b *v1alpha1.VMStateBackup) bool {
	mine := StageOf(b)
	switch StageOf(a) {
	case StageCutting, StageProving:
		return true
	case StagePreparing:
		return mine != StagePreparing || older(a, b)
	case StageBeginning:
		return anyHeld(&a.Status) || mine == StageBeginning && Last(a) != nil && older(a, b)
	default:
		return anyHeld(&a.Status)
	}
}

func older(a, b *v1alpha1.VMStateBackup) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// ended says that an outcome is recorded.
func ended(b *v1alpha1.VMStateBackup) bool {
	s := &b.Status
	return s.Failure != nil || s.Local != nil || s.Export != nil && s.Export.Commit != nil
}

// Open is the attempt without a verdict; nil if there is none.
func Open(b *v1alpha1.VMStateBackup) *v1alpha1.MomentAttempt {
	a := Last(b)
	if a == nil || a.Verdict != "" {
		return nil
	}
	return a
}

// Last is the newest attempt; nil if there is none.
func Last(b *v1alpha1.VMStateBackup) *v1alpha1.MomentAttempt {
	n := len(b.Status.Attempts)
	if n == 0 {
		return nil
	}
	return &b.Status.Attempts[n-1]
}

func hasFinalizer(b *v1alpha1.VMStateBackup) bool {
	for _, f := range b.Finalizers {
		if f == v1alpha1.FinalizerRelease {
			return true
		}
	}
	return false
}
