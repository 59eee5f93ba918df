package main

import (
	"fmt"
	"strings"
)

func (a *app) printPlan(v planView) {
	fmt.Fprintln(a.out, strings.Join(planHead(v), "  "))
	var rows [][]string
	for _, volume := range v.Volumes {
		word := strings.ToLower(volume.Outcome)
		switch {
		case volume.Reason != "":
			word += ": " + volume.Reason
		case volume.Read != "":
			word += ", read from " + volume.Read
		}
		rows = append(rows, []string{volume.Name, volume.Role, size(volume.SizeBytes), orDash(volume.Claim), storageWords(volume), word})
	}
	table(a.out, "  ", rows)
	if h := v.Holds; h != nil {
		fmt.Fprintf(a.out, "holds\n  disks %s, firmware state %s, filesystems %s", h.Disks, h.State, h.Consistency)
		if h.QuiesceMessage != "" {
			fmt.Fprintf(a.out, " (%s)", h.QuiesceMessage)
		}
		fmt.Fprintln(a.out)
	}
	if v.Guest != nil {
		fmt.Fprintf(a.out, "guest\n  %s\n", strings.Join(v.Guest.Effects, "\n  "))
	}
	for i, step := range v.Steps {
		if i == 0 {
			fmt.Fprintln(a.out, "steps")
		}
		fmt.Fprintf(a.out, "  %d. %s\n", i+1, step)
	}
	a.printObstacles(v)
	for _, w := range v.Warnings {
		a.note("warning: %s", w)
	}
}

func (a *app) printObstacles(v planView) {
	if len(v.Volumes) == 0 { // the error says it
		return
	}
	for i, o := range v.Obstacles {
		if i == 0 {
			fmt.Fprintln(a.out, "in the way")
		}
		fmt.Fprintf(a.out, "  %d. %s: %s\n", i+1, o.Reason, o.Message)
		if o.Next != "" {
			fmt.Fprintf(a.out, "     %s: %s\n", o.Object, o.Next)
		}
	}
	if v.Unattested != "" {
		a.note("what an administrator says of CSI drivers is not known here: %s; a driver that is refused may still do", v.Unattested)
	}
}

func planHead(v planView) []string {
	head := []string{"VM " + v.VM}
	if len(v.Volumes) == 0 {
		return head
	}
	switch {
	case v.Moving:
		return append(head, "not settled")
	case !v.Running:
		head = append(head, "not running")
	case v.Paused:
		head = append(head, "paused")
	default:
		head = append(head, "running")
	}
	switch {
	case !v.Running:
	case v.Agent:
		head = append(head, "guest agent connected")
	default:
		head = append(head, "no guest agent")
	}
	if v.Moment != "" {
		head = append(head, "moment "+v.Moment)
	}
	return head
}

// storageWords are where a volume is, as in "rbd.csi.ceph.com Block RWX".
func storageWords(v planVolumeView) string {
	if v.Claim == "" {
		return "-"
	}
	words := []string{v.Driver}
	if v.Driver == "" {
		words = []string{"class " + orDash(v.Class)}
	}
	words = append(words, v.Mode)
	for _, mode := range v.AccessModes {
		words = append(words, shortMode(mode))
	}
	return strings.Join(words, " ")
}

// shortMode is an access mode as kubectl prints it.
func shortMode(mode string) string {
	switch mode {
	case "ReadWriteOnce":
		return "RWO"
	case "ReadWriteMany":
		return "RWX"
	case "ReadOnlyMany":
		return "ROX"
	case "ReadWriteOncePod":
		return "RWOP"
	default:
		return mode
	}
}
