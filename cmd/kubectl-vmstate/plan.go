package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/controllers"
	"github.com/vmstate/vmstate/pkg/backup"
	"github.com/vmstate/vmstate/pkg/inventory"
)

const aboutPlan = `Shows what a backup of a virtual machine would hold, how its moment would be made and what it would cost the guest, or
all that stands in its way and what to do about each. It only reads, and decides by the manager's own code.

What an administrator says of CSI drivers is read from the manager's ConfigMap, where you may.`

type planFlags struct {
	terms   termFlags
	manager string
}

func (a *app) planCommand() *cobra.Command {
	f := &planFlags{}
	cmd := &cobra.Command{
		Use:   "plan VM",
		Short: "Show how a virtual machine would be backed up, and what stands in the way",
		Long:  aboutPlan,
		Args:  cobra.ExactArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return a.plan(cmd.Context(), args[0], f) },
	}
	f.terms.register(cmd.Flags())
	cmd.Flags().StringVar(&f.manager, "manager-namespace", "vmstate-system", "namespace of vmstate's manager")
	return cmd
}

func (a *app) plan(ctx context.Context, vm string, f *planFlags) error {
	c, err := a.cluster.connect()
	if err != nil {
		return err
	}
	http, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return err
	}
	guests, err := controllers.NewGuests(c.config, http)
	if err != nil {
		return err
	}
	seen, err := controllers.ReadPreview(ctx, c.Client, guests, c.key(vm), f.manager)
	if err != nil {
		return err
	}
	return a.showPlan(c.namespace, f.terms.spec(vm), seen)
}

// planView is a plan as it is printed.
type planView struct {
	VM      string `json:"vm"`
	Running bool   `json:"running"`
	Paused  bool   `json:"paused,omitempty"`
	// Moving says that it starts, stops or migrates, or that its volumes do.
	Moving bool `json:"moving,omitempty"`
	Agent  bool `json:"agent"`
	// Moment says how disks and state would be bound, as in Group+Witness.
	Moment string `json:"moment,omitempty"`
	// Holds is what binds the parts of the moment together; nil with obstacles.
	Holds *holdsView `json:"holds,omitempty"`
	// Guest is what it would cost the guest; nil with obstacles.
	Guest     *guestView       `json:"guest,omitempty"`
	Volumes   []planVolumeView `json:"volumes"`
	Steps     []string         `json:"steps,omitempty"`
	Warnings  []string         `json:"warnings,omitempty"`
	Obstacles []obstacleView   `json:"obstacles,omitempty"`
	// Waits says that a backup that is asked for now waits for the obstacles to pass.
	Waits bool `json:"waits,omitempty"`
	// Unattested is why it is not known what an administrator says of drivers.
	Unattested string `json:"unattested,omitempty"`
}

type holdsView struct {
	Disks   string `json:"disks"`
	State   string `json:"state"`
	Quiesce string `json:"quiesce"`
	// Consistency is what the guest's filesystems will be.
	Consistency    string `json:"consistency"`
	QuiesceMessage string `json:"quiesceMessage,omitempty"`
}

type guestView struct {
	FrozenAtMostSeconds int64 `json:"frozenAtMostSeconds"`
	// PausedAtMostMilliseconds bounds the pause for its disks; 0 if there is none.
	PausedAtMostMilliseconds int64 `json:"pausedAtMostMilliseconds"`
	// Why its disks cannot be cut at one instant while it runs.
	Why string `json:"why,omitempty"`
	// EscalatesToMilliseconds bounds the pause if its firmware state changes at every try; 0 if there is none.
	EscalatesToMilliseconds int64 `json:"escalatesToMilliseconds,omitempty"`
	// Effects are what else happens to it.
	Effects []string `json:"effects,omitempty"`
}

type planVolumeView struct {
	volumeView
	Class       string   `json:"storageClass,omitempty"`
	Driver      string   `json:"driver,omitempty"`
	Mode        string   `json:"volumeMode,omitempty"`
	AccessModes []string `json:"accessModes,omitempty"`
	// Read says from what it is exported.
	Read string `json:"read,omitempty"`
}

type obstacleView struct {
	Reason  string `json:"reason"`
	Volume  string `json:"volume,omitempty"`
	Object  string `json:"object,omitempty"`
	Message string `json:"message"`
	Next    string `json:"next,omitempty"`
	// Passing says that it may go away by itself.
	Passing bool `json:"passing,omitempty"`
}

// showPlan prints a plan; with obstacles it is an error as well.
func (a *app) showPlan(namespace string, spec v1alpha1.VMStateBackupSpec, seen controllers.Preview) error {
	out := backup.Foresee(&spec, seen.Machine, seen.Storage)
	v := makePlan(namespace, &spec, seen, out)
	if a.format == formatJSON {
		if err := a.printJSON(v); err != nil {
			return err
		}
	} else {
		a.printPlan(v)
	}
	if len(out.Obstacles) == 0 {
		return nil
	}
	first := state{reason: out.Obstacles[0].Reason, message: out.Obstacles[0].String()}
	if len(v.Volumes) > 0 {
		first.message = inTheWay(out)
	}
	return failure("VM "+v.VM, first)
}

// inTheWay is what becomes of a backup that is asked for all the same.
func inTheWay(out backup.Outlook) string {
	text, then := "an obstacle stands in the way of a backup", "it"
	if n := len(out.Obstacles); n > 1 {
		text, then = fmt.Sprintf("%d obstacles stand in the way of a backup", n), "them"
	}
	if out.Waits {
		return text + "; one that is asked for now waits for " + then + " to pass"
	}
	return text
}

// makePlan is what the manager would decide before it touches anything.
func makePlan(namespace string, spec *v1alpha1.VMStateBackupSpec, seen controllers.Preview, out backup.Outlook) planView {
	inv := seen.Machine.Inventory
	v := planView{VM: namespace + "/" + spec.VMName, Running: inv.Running, Paused: inv.Paused, Agent: inv.Agent, Warnings: inv.Warnings, Volumes: []planVolumeView{}}
	for _, r := range out.Obstacles {
		v.Obstacles = append(v.Obstacles, obstacleView{Reason: r.Reason, Volume: r.Volume, Object: r.Object, Message: r.Message, Next: r.Next, Passing: r.Passing})
	}
	v.Moving = slices.ContainsFunc(seen.Machine.Refusals, inventory.Refusal.Moving)
	blocked := len(v.Obstacles) > 0
	for _, volume := range inv.Volumes {
		row := planVolumeView{
			volumeView: volumeView{
				Name: volume.Name, Role: string(volume.Role), Outcome: string(volume.Outcome), Reason: volume.Reason,
				SizeBytes: volume.SizeBytes, Claim: volume.ClaimName,
			},
			Class: volume.StorageClassName, Driver: volume.Driver, Mode: volume.VolumeMode, AccessModes: volume.AccessModes,
		}
		if !blocked && volume.Outcome == v1alpha1.VolumeIncluded {
			row.Read = readOf(volume, out)
		}
		v.Volumes = append(v.Volumes, row)
	}
	if blocked {
		v.Unattested, v.Waits = seen.Unattested, out.Waits
		return v
	}
	v.Moment = string(out.Disks)
	if out.State != v1alpha1.StateNone && string(out.State) != string(out.Disks) {
		v.Moment += "+" + string(out.State)
	}
	v.Holds = &holdsView{
		Disks: string(out.Disks), State: string(out.State), Quiesce: string(out.Quiesce), QuiesceMessage: out.QuiesceMessage, Consistency: consistency(spec, out),
	}
	v.Guest = &guestView{
		FrozenAtMostSeconds: int64(out.FrozenAtMost.Seconds()), PausedAtMostMilliseconds: out.PausedAtMost.Milliseconds(), Why: out.Choice.Why,
		EscalatesToMilliseconds: out.EscalatesTo.Milliseconds(), Effects: effects(inv, out),
	}
	v.Steps = steps(inv, out)
	return v
}

// readOf says from what a volume is exported.
func readOf(v inventory.Volume, out backup.Outlook) string {
	if v.Role == v1alpha1.RoleFirmwareState {
		return "what the witness has read"
	}
	i := slices.IndexFunc(out.Reads, func(r backup.Read) bool { return r.Volume == v.Name })
	if out.Reads[i].Copied != "" {
		return "a full copy of its snapshot, which takes time and space"
	}
	return "a clone of its snapshot"
}

// consistency is what the guest's filesystems are on the disks of the moment.
func consistency(spec *v1alpha1.VMStateBackupSpec, out backup.Outlook) string {
	switch {
	case out.Quiesce == v1alpha1.QuiesceFrozen && spec.Quiesce == v1alpha1.QuiesceRequired:
		return "frozen: a guest whose agent does not answer fails the backup"
	case out.Quiesce == v1alpha1.QuiesceFrozen:
		return "frozen, if the agent answers; else crash-consistent"
	case out.Quiesce == v1alpha1.QuiesceOffline:
		return "as the guest left them when it stopped"
	default:
		return "crash-consistent"
	}
}

// effects are what happens to the guest and around it.
func effects(inv inventory.Inventory, out backup.Outlook) (all []string) {
	switch {
	case !inv.Running:
		return []string{"it cannot be started while its snapshots are cut"}
	case out.FrozenAtMost > 0:
		all = append(all, fmt.Sprintf("its filesystems are frozen until the snapshots are cut, at most %s: writes wait", out.FrozenAtMost))
	default:
		all = append(all, "its filesystems are not frozen")
	}
	switch {
	case inv.Paused:
		return append(all, "it stays paused, as its owner has it")
	case out.PausedAtMost > 0:
		return append(all,
			fmt.Sprintf("it is paused until its snapshots are cut and its firmware state is read, at most %s: its disks cannot be cut at one instant while it runs, as %s",
				out.PausedAtMost, out.Choice.Why),
			"while it is paused it answers nobody, and its Services drop it (readiness gate kubevirt.io/virtual-machine-unpaused)")
	case out.EscalatesTo > 0:
		return append(all, fmt.Sprintf("it is not paused, unless its firmware state changes at every try: then for at most %s", out.EscalatesTo))
	default:
		return append(all, "it is not paused")
	}
}

// steps tell in order what would happen to the guest and its volumes.
func steps(inv inventory.Inventory, out backup.Outlook) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if !inv.Running {
		add("lock the VM, so that nothing starts it (status.snapshotInProgress)")
	}
	if inv.HasState() {
		add("read the firmware state from claim %q", inv.VM.StateClaimName)
	}
	if out.FrozenAtMost > 0 {
		add("freeze the guest's filesystems, for the cut alone")
	}
	if out.Disks == v1alpha1.DisksGroup {
		add("snapshot all disks at one instant, by group class %q", out.Choice.GroupClass)
	}
	if out.PausedAtMost > 0 {
		add("pause the guest, for the cut alone")
	}
	for _, s := range out.Choice.Snapshots {
		add("snapshot disk %q (claim %q) by class %q", s.Volume, s.Claim, s.Class)
	}
	if out.State == v1alpha1.StateFence {
		add("read the firmware state of the paused guest")
	}
	if out.PausedAtMost > 0 {
		add("unpause the guest; if its pause has become too long by then, the moment is discarded")
	}
	if out.State == v1alpha1.StateWitness {
		add("read the firmware state again: if it changed, the moment is discarded and tried again")
	}
	verb := "export"
	if !inv.Running {
		verb = "unlock the VM, and export"
	}
	add("%s from claims made of the snapshots (%s, which the namespace's quota counts)", verb, clones(inv))
	return all
}

// clones says how many claims an export makes, and how big they are.
func clones(inv inventory.Inventory) string {
	var bytes int64
	for _, d := range inv.Disks() {
		bytes += d.SizeBytes
	}
	return fmt.Sprintf("%d of together %s", len(inv.Disks()), size(bytes))
}
