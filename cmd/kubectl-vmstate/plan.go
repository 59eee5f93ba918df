package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/controllers"
	"github.com/vmstate/vmstate/pkg/inventory"
	"github.com/vmstate/vmstate/pkg/snapshotset"
)

const aboutPlan = `Shows what a backup of a virtual machine would hold and how its moment would be made, or what stands in the way and
what to do about it. It only reads. What an administrator attests of a CSI driver is known to the manager alone: a
driver that is not known here may still do.`

func (a *app) planCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "plan VM",
		Short: "Show how a virtual machine would be backed up, and what stands in the way",
		Long:  aboutPlan,
		Args:  cobra.ExactArgs(1),
		RunE:  func(cmd *cobra.Command, args []string) error { return a.plan(cmd.Context(), args[0]) },
	}
}

// planView is a plan as it is printed.
type planView struct {
	VM      string `json:"vm"`
	Running bool   `json:"running"`
	// Moment says how disks and state would be bound, as in Group+Witness.
	Moment   string       `json:"moment,omitempty"`
	Agent    bool         `json:"agent"`
	Volumes  []volumeView `json:"volumes"`
	Steps    []string     `json:"steps,omitempty"`
	Warnings []string     `json:"warnings,omitempty"`
	// Reason and Obstacle say why it cannot be done; Passing that it may go away by itself.
	Reason   string `json:"reason,omitempty"`
	Obstacle string `json:"obstacle,omitempty"`
	Passing  bool   `json:"passing,omitempty"`
}

func (a *app) plan(ctx context.Context, vm string) error {
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
	seen, storage, err := controllers.Preview(ctx, c.Client, guests, c.key(vm))
	if err != nil {
		return err
	}
	v := makePlan(c.namespace+"/"+vm, seen, storage)
	if a.format == formatJSON {
		err = a.printJSON(v)
	} else {
		a.printPlan(v)
	}
	if err != nil || v.Obstacle == "" {
		return err
	}
	s := state{reason: v.Reason, message: v.Obstacle}
	return failure("VM "+v.VM, s)
}

// makePlan is what the manager would decide before it touches anything.
func makePlan(vm string, seen inventory.Seen, storage snapshotset.Storage) planView {
	v := planView{VM: vm, Volumes: []volumeView{}}
	inv, refusal := inventory.Of(seen)
	if refusal != nil {
		v.Reason, v.Obstacle, v.Passing = refusal.Reason, refusal.Message, refusal.Passing
		return v
	}
	v.Running, v.Agent, v.Warnings = inv.Running, inv.Agent, inv.Warnings
	for _, volume := range inv.Volumes {
		v.Volumes = append(v.Volumes, volumeView{
			Name: volume.Name, Role: string(volume.Role), Outcome: string(volume.Outcome), Reason: volume.Reason,
			SizeBytes: volume.SizeBytes, Claim: volume.ClaimName,
		})
	}
	choice, refusal := snapshotset.Choose(inv, storage)
	if refusal != nil {
		v.Reason, v.Obstacle, v.Passing = refusal.Reason, refusal.Message, refusal.Passing
		return v
	}
	v.Moment = string(choice.Binding)
	if inv.HasState() && inv.Running {
		v.Moment += "+" + string(v1alpha1.StateWitness)
	}
	v.Steps = steps(inv, choice)
	return v
}

// steps tell in order what would happen to the guest and its volumes.
func steps(inv inventory.Inventory, choice snapshotset.Choice) []string {
	var out []string
	if inv.HasState() {
		out = append(out, fmt.Sprintf("read the firmware state from claim %q", inv.VM.StateClaimName))
	}
	if inv.Running && inv.Agent && !inv.Paused {
		out = append(out, "freeze the guest's filesystems, for the cut alone")
	}
	if choice.Binding == v1alpha1.DisksGroup {
		out = append(out, fmt.Sprintf("snapshot all disks at one instant, by group class %q", choice.GroupClass))
	}
	for _, s := range choice.Snapshots {
		out = append(out, fmt.Sprintf("snapshot disk %q (claim %q) by class %q", s.Volume, s.Claim, s.Class))
	}
	if inv.HasState() && inv.Running {
		out = append(out, "read the firmware state again: if it changed, the moment is discarded and tried again")
	}
	return append(out, "export from clones of the snapshots; the guest runs on")
}

func (a *app) printPlan(v planView) {
	head := []string{"VM " + v.VM}
	if v.Obstacle == "" {
		running, agent := "at rest", ""
		if v.Running {
			running, agent = "running", "no guest agent"
			if v.Agent {
				agent = "guest agent connected"
			}
		}
		for _, word := range []string{running, agent, "moment " + v.Moment} {
			if word != "" {
				head = append(head, word)
			}
		}
	}
	fmt.Fprintln(a.out, strings.Join(head, "  "))
	var rows [][]string
	for _, volume := range v.Volumes {
		word := strings.ToLower(volume.Outcome)
		if volume.Reason != "" {
			word += ": " + volume.Reason
		}
		rows = append(rows, []string{volume.Name, volume.Role, size(volume.SizeBytes), orDash(volume.Claim), word})
	}
	table(a.out, "  ", rows)
	for i, step := range v.Steps {
		fmt.Fprintf(a.out, "  %d. %s\n", i+1, step)
	}
	for _, w := range v.Warnings {
		a.note("warning: %s", w)
	}
}
