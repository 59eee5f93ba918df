package backup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/document"
	"github.com/vmstate/vmstate/pkg/job"
	witnessconfig "github.com/vmstate/vmstate/pkg/witness/config"
)

// stateMount is where the witness finds the state.
const stateMount = job.PathVolumes + "/state"

// witnessLife bounds a witness's Job: it outlives the cut and the second reading.
const witnessLife = prepareLimit + cutLimit + proveLimit + 5*time.Minute

// prepare makes all that the cut needs, so that between the first reading and the cut there is
// nothing but the cut.
func prepare(in Observed) Decision {
	a := Open(in.Backup)
	if why := differs(in); why != "" {
		return in.discard(v1alpha1.AttemptDiscarded, "%s", why)
	}
	if why := strangers(in); why != "" {
		return in.discard(v1alpha1.AttemptDiscarded, "%s", why)
	}
	if in.Blocker != "" {
		return in.discard(v1alpha1.AttemptDiscarded, "backup %q of the VM began its attempt first", in.Blocker)
	}
	actions := preparations(in, a)
	if d, over := prepareOver(in, a, len(actions) > 0); over {
		return d
	}
	if len(actions) > 0 {
		return in.act(v1alpha1.ReasonWitnessing, "reading the firmware state", actions...)
	}
	if !in.Ready() {
		return waitForJob(in, in.Witness, v1alpha1.ReasonWitnessing, "reading the firmware state")
	}
	if why := distrust(in); why != "" {
		return in.fail(v1alpha1.ReasonWitnessFailed, "%s", why)
	}
	return openCut(in, a)
}

// prepareOver ends what cannot be prepared, or not in time.
func prepareOver(in Observed, a *v1alpha1.MomentAttempt, unprepared bool) (Decision, bool) {
	w := in.Witness
	if w.outcome() == v1alpha1.OutcomeFailed && w.Report.Reason == v1alpha1.ReasonStateChanged {
		return in.discard(v1alpha1.AttemptStateChanged, "the firmware state changed while it was read first: %s", w.Report.Message), true
	}
	if w.outcome() == v1alpha1.OutcomeFailed {
		return in.fail(known(w.Report.Reason, v1alpha1.ReasonWitnessFailed), "%s", w.Report.Message), true
	}
	read := in.Ready()
	switch {
	case w.Failed != "" && !read:
		return in.fail(v1alpha1.ReasonWitnessFailed, "the witness could not read the firmware state: %s", w.Failed), true
	case in.since(a.StartedAt.Time) < prepareLimit || read && !unprepared:
		return Decision{}, false
	case unprepared:
		return in.fail(v1alpha1.ReasonSnapshotFailed, "the cut could not be prepared in %s; the events of this backup and the manager's log say what failed", prepareLimit), true
	case w.Pending != "":
		return in.fail(v1alpha1.ReasonWitnessFailed, "the witness did not start in %s: %s", prepareLimit, w.Pending), true
	default:
		return in.fail(v1alpha1.ReasonWitnessFailed, "the witness did not read the firmware state in %s", prepareLimit), true
	}
}

// differs compares the machine with the one that is recorded; "" if it is the same.
func differs(in Observed) string {
	if r := in.Machine.Refusals; len(r) > 0 {
		return inWords(r)
	}
	was, is := *in.Backup.Status.VM, in.Machine.Inventory.VM
	switch {
	case was.UID != is.UID:
		return "the VM was made anew meanwhile"
	case was.InstanceUID != is.InstanceUID:
		return "the VM was started, stopped or restarted meanwhile"
	case was.NodeName != is.NodeName || was.LauncherUID != is.LauncherUID || was.MigrationUID != is.MigrationUID:
		return "the VM was migrated meanwhile"
	case was != is:
		return "the VM's firmware state is another one by now"
	}
	if !slices.Equal(claimUIDs(in.Backup.Status.Volumes), claimUIDs(in.Machine.Inventory.Recorded())) {
		return "the VM's volumes are others by now"
	}
	return ""
}

func claimUIDs(volumes []v1alpha1.BackupVolume) []string {
	var out []string
	for _, v := range volumes {
		out = append(out, v.Name+"="+string(v.ClaimUID))
	}
	return out
}

// strangers names a claim that carries the attempt's label and is none of its disks.
func strangers(in Observed) string {
	for _, m := range in.Members {
		if !slices.ContainsFunc(disksOf(&in.Backup.Status), func(v v1alpha1.BackupVolume) bool { return v.ClaimUID == m.UID }) {
			return fmt.Sprintf("claim %q carries the label of this backup's group, and is none of its disks", m.Name)
		}
	}
	return ""
}

// preparations are what is not there yet. The lock comes first: what follows is read while
// nothing can start the VM.
func preparations(in Observed, a *v1alpha1.MomentAttempt) []action.Action {
	var out []action.Action
	b := in.Backup
	if BindingOf(b) == v1alpha1.DisksOffline && !in.Machine.Inventory.Locked {
		out = append(out, action.LockVM{VM: b.Spec.VMName, UID: b.Status.VM.UID, Holder: Holder(b)})
	}
	if !in.Documents {
		out = append(out, action.CreateConfigMap{
			Name: DocumentsName(b), Data: map[string][]byte{document.FileName: in.Machine.Documents},
		})
	}
	if BindingOf(b) == v1alpha1.DisksGroup {
		out = append(out, labels(in, a)...)
	}
	if (hasState(b) || fenced(b)) && !in.Witness.Exists {
		out = append(out, action.RunJob{Job: witnessJob(in, a)})
	}
	return out
}

func labels(in Observed, a *v1alpha1.MomentAttempt) []action.Action {
	var out []action.Action
	for _, v := range disksOf(&in.Backup.Status) {
		if !slices.Contains(in.Members, ClaimRef{Name: v.ClaimName, UID: v.ClaimUID}) {
			out = append(out, action.LabelClaim{Claim: v.ClaimName, UID: v.ClaimUID, Member: Member(in.Backup, a.Number)})
		}
	}
	return out
}

// witnessJob mounts the live state. It never changes an owner or a mode there.
func witnessJob(in Observed, a *v1alpha1.MomentAttempt) job.Spec {
	b, vm := in.Backup, in.Backup.Status.VM
	mode := witnessconfig.Running
	if vm.InstanceUID == "" {
		mode = witnessconfig.Offline
	}
	dir, mounts := "", []job.Mount(nil)
	if hasState(b) {
		dir, mounts = stateMount, []job.Mount{{Claim: vm.StateClaimName, Path: stateMount, ReadOnly: true}}
	}
	raw, _ := witnessconfig.Config{ // strings and numbers alone: it encodes
		BackupName: b.Name, BackupUID: string(b.UID), Attempt: a.Number, Mode: mode, StateDir: dir, Fence: fenced(b),
		Machine: witnessconfig.Machine{
			VMName: b.Spec.VMName, FirmwareUUID: vm.FirmwareUUID,
			PersistentTPM: vm.PersistentTPM, PersistentEFI: vm.PersistentEFI,
		},
	}.Encode()
	return job.Spec{
		Name: WitnessName(b, a.Number), Task: v1alpha1.TaskWitness, Config: raw,
		Mounts:    mounts,
		Placement: in.Machine.Inventory.Placement,
		Deadline:  witnessLife,
		Retries:   2,
	}
}

// distrust checks a witness's report before anything of it is used; "" if it can be.
func distrust(in Observed) string {
	if !hasState(in.Backup) {
		return ""
	}
	w := in.Witness.witness()
	switch {
	case !isDigest(w.First.Digest) || !isDigest(w.StateDigest) || w.Fenced != nil && !isDigest(w.Fenced.Digest):
		return "the witness's report holds no digest"
	case len(w.SecretNames) == 0:
		return "the witness's report names no Secret with the state"
	}
	for _, name := range w.SecretNames {
		if !strings.HasPrefix(name, WitnessName(in.Backup, Last(in.Backup).Number)+"-") {
			return fmt.Sprintf("the witness's report names the Secret %q, which is not its own", name)
		}
	}
	return ""
}

func isDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// openCut records the first reading and the step that follows it.
func openCut(in Observed, a *v1alpha1.MomentAttempt) Decision {
	first := ""
	if hasState(in.Backup) {
		first = in.Witness.witness().First.Digest
	}
	if a.Freeze == nil && wantsFreeze(in) {
		return in.record(v1alpha1.ReasonFreezing, "freezing the guest's filesystems", func(s *v1alpha1.VMStateBackupStatus) {
			last := &s.Attempts[len(s.Attempts)-1]
			last.FirstReading = first
			last.Freeze = &v1alpha1.FreezeRecord{
				RequestedAt: *in.micro(),
				Deadline:    metav1.NewMicroTime(in.Now.Add(freezeTimeout(in.Backup))),
				Requester:   in.Process,
			}
		})
	}
	if f := a.Freeze; f != nil && f.FrozenAt == nil && f.Failure == "" {
		if !mayAsk(in, f) {
			return in.discard(v1alpha1.AttemptDiscarded, "the manager was interrupted while it froze the guest")
		}
		return in.act(v1alpha1.ReasonFreezing, "freezing the guest's filesystems", action.Freeze{
			Instance: in.Backup.Spec.VMName, UID: in.Backup.Status.VM.InstanceUID, Timeout: f.Deadline.Sub(in.Now),
		})
	}
	if a.Freeze != nil && a.Freeze.Failure != "" && in.Backup.Spec.Quiesce == v1alpha1.QuiesceRequired {
		return in.fail(v1alpha1.ReasonQuiesceFailed, "quiesce is Required, and the guest was not frozen: %s", a.Freeze.Failure)
	}
	if fenced(in.Backup) {
		return openFence(in, a, first)
	}
	return in.record(v1alpha1.ReasonTakingSnapshot, "cutting the snapshots", func(s *v1alpha1.VMStateBackupStatus) {
		last := &s.Attempts[len(s.Attempts)-1]
		last.FirstReading, last.CutStarted = first, in.micro()
	})
}

func wantsFreeze(in Observed) bool {
	inv := in.Machine.Inventory
	return inv.Running && inv.Agent && !inv.Paused && in.Backup.Spec.Quiesce != v1alpha1.QuiesceNever
}

func freezeTimeout(b *v1alpha1.VMStateBackup) time.Duration {
	return time.Duration(b.Spec.FreezeTimeoutSeconds) * time.Second
}
