package backup

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/inventory"
	"github.com/vmstate/vmstate/pkg/snapshotset"
)

// Outlook is what a backup will be and what it will cost its guest, as far as that can be said before anything is
// touched; or all that stands in its way. The manager goes by it, and kubectl vmstate plan prints it.
type Outlook struct {
	// Disks says how the disks will be bound together.
	Disks v1alpha1.DiskBinding
	// State says how the firmware state will be bound to them.
	State v1alpha1.StateBinding
	// Quiesce is what will become of the guest's filesystems, if its agent does what it is asked for.
	Quiesce v1alpha1.QuiesceOutcome
	// QuiesceMessage says why they will not be frozen.
	QuiesceMessage string
	// FrozenAtMost bounds how long they stay frozen; 0 if they are not.
	FrozenAtMost time.Duration
	// PausedAtMost bounds how long the guest is paused for its disks; 0 if it is not.
	PausedAtMost time.Duration
	// EscalatesTo bounds how long it is paused if its firmware state changes at every try; 0 if it never is.
	EscalatesTo time.Duration
	// Choice of snapshots.
	Choice snapshotset.Choice
	// Reads say from what each disk is exported.
	Reads []Read
	// Obstacles are all that stands in the way. With any, the fields above mean nothing.
	Obstacles []inventory.Refusal
	// Waits says that a backup waits for the obstacles to pass, for a time, instead of failing at once.
	Waits bool
}

// Read is from what a disk is exported: a claim that is made from its snapshot, ReadWriteOnce, since journals are
// replayed when it is mounted.
type Read struct {
	Volume string
	// Copied is where it is known from that the storage copies the whole disk to make the claim; "" if it does not,
	// or nothing is known.
	Copied string
}

// Foresee says what a backup of a machine will be, or all that stands in its way.
func Foresee(spec *v1alpha1.VMStateBackupSpec, m Machine, storage snapshotset.Storage) Outlook {
	inv := m.Inventory
	if inv.VM.UID == "" { // there is no machine to look at
		return Outlook{Obstacles: m.Refusals}
	}
	var out Outlook
	var found []inventory.Refusal
	out.Choice, found = snapshotset.Choose(inv, storage, maxPause(spec) > 0)
	out.Disks, out.State = out.Choice.Binding, stateBinding(inv, out.Choice.Binding)
	switch {
	case !inv.Running || inv.Paused:
	case out.Disks == v1alpha1.DisksFence:
		out.PausedAtMost = maxPause(spec)
	case out.State == v1alpha1.StateWitness && inv.Unpausable == "":
		out.EscalatesTo = maxPause(spec)
	}
	out.Quiesce, out.QuiesceMessage = quiesceOutcome(spec, inv)
	if out.Quiesce == v1alpha1.QuiesceFrozen {
		out.FrozenAtMost = time.Duration(spec.FreezeTimeoutSeconds) * time.Second
	}
	for _, d := range inv.Disks() {
		read := Read{Volume: d.Name}
		if known, _ := storage.Knowledge.Of(d.Driver); known.ClonesCopy {
			read.Copied = known.Source
		}
		out.Reads = append(out.Reads, read)
	}
	out.Obstacles = slices.Concat(m.Refusals, found, required(spec, inv, out.PausedAtMost > 0))
	out.Waits = waits(out.Obstacles)
	return out
}

// waits says that all obstacles pass by themselves, or may be right a moment later: what is found of a machine
// that moves ends no backup before the machine has come to rest.
func waits(found []inventory.Refusal) bool {
	final := slices.ContainsFunc(found, func(r inventory.Refusal) bool { return !r.Passing })
	return len(found) > 0 && (!final || slices.ContainsFunc(found, inventory.Refusal.Moving))
}

func stateBinding(inv inventory.Inventory, disks v1alpha1.DiskBinding) v1alpha1.StateBinding {
	switch {
	case !inv.HasState():
		return v1alpha1.StateNone
	case !inv.Running:
		return v1alpha1.StateOffline
	case disks == v1alpha1.DisksFence:
		return v1alpha1.StateFence
	default:
		return v1alpha1.StateWitness
	}
}

func quiesceOutcome(spec *v1alpha1.VMStateBackupSpec, inv inventory.Inventory) (v1alpha1.QuiesceOutcome, string) {
	switch {
	case !inv.Running:
		return v1alpha1.QuiesceOffline, ""
	case spec.Quiesce == v1alpha1.QuiesceNever:
		return v1alpha1.QuiesceNotAsked, "quiesce is Never"
	case inv.Paused:
		return v1alpha1.QuiesceNotAsked, "the VM is paused by its owner"
	case !inv.Agent:
		return v1alpha1.QuiesceNoAgent, "no guest agent is connected"
	default:
		return v1alpha1.QuiesceFrozen, ""
	}
}

// required is what the backup requires and the machine does not have, and who else has frozen its guest.
func required(spec *v1alpha1.VMStateBackupSpec, inv inventory.Inventory, pauses bool) (found []inventory.Refusal) {
	object := "virtualmachine/" + spec.VMName
	if spec.Require.FirmwareState == v1alpha1.FirmwareStateRequired && !inv.HasState() {
		found = append(found, inventory.Refusal{
			Reason: v1alpha1.ReasonStateMissing, Object: object,
			Message: fmt.Sprintf("firmwareState is Required, and VM %q keeps neither TPM nor EFI variables", spec.VMName),
			Next:    "make them persistent again (in its spec or its preference), or do not require them",
		})
	}
	if !inv.Running {
		return found
	}
	refused := inventory.Refusal{Reason: v1alpha1.ReasonQuiesceFailed, Object: "virtualmachineinstance/" + spec.VMName}
	switch {
	case spec.Quiesce == v1alpha1.QuiesceRequired && inv.Paused:
		refused.Message = fmt.Sprintf("quiesce is Required, and VM %q is paused: its agent cannot answer", spec.VMName)
		refused.Next = "unpause it, or do not require it"
		found = append(found, refused)
	case spec.Quiesce == v1alpha1.QuiesceRequired && !inv.Agent:
		refused.Message = fmt.Sprintf("quiesce is Required, and no guest agent is connected in VM %q", spec.VMName)
		refused.Next = "start qemu-guest-agent in the guest, or do not require it"
		found = append(found, refused)
	}
	if inv.Frozen && (pauses || spec.Quiesce != v1alpha1.QuiesceNever) {
		// A second freeze would not be noticed, our thaw would end the other's too early, and its own does
		// not reach a paused guest.
		refused.Reason, refused.Passing = v1alpha1.ReasonVMUnsettled, true
		refused.Message = fmt.Sprintf("the guest of VM %q is frozen, and not by this backup: by another tool, or by a backup that could not thaw it", spec.VMName)
		refused.Next = "wait for the end of that, or thaw it (virtctl unfreeze " + spec.VMName + ")"
		found = append(found, refused)
	}
	return found
}

// refused waits for what passes, and records what does not.
func refused(in Observed, out Outlook) Decision {
	found, limit := out.Obstacles, waitLimit
	if slices.ContainsFunc(found, func(r inventory.Refusal) bool { return r.Reason == v1alpha1.ReasonMigrating }) {
		limit = migrationLimit
	}
	if out.Waits && in.since(waitingFrom(in)) < limit {
		return in.say(found[0].Reason, "%s", inWords(found))
	}
	final := slices.IndexFunc(found, func(r inventory.Refusal) bool { return !r.Passing })
	return in.fail(found[max(final, 0)].Reason, "%s", inWords(found))
}

// inWords is all that was found.
func inWords(found []inventory.Refusal) string {
	if len(found) == 1 {
		return found[0].String()
	}
	out := make([]string, len(found))
	for i, r := range found {
		out[i] = fmt.Sprintf("(%d) %s", i+1, r)
	}
	return fmt.Sprintf("%d obstacles: %s", len(found), strings.Join(out, " "))
}
