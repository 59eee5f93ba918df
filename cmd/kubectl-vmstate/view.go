package main

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// backupView is one backup as it is printed: from its object or from its record in a store.
type backupView struct {
	// ID in the store: the first digits of the record's digest.
	ID        string     `json:"id,omitempty"`
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	VM        string     `json:"vm"`
	Taken     *time.Time `json:"taken,omitempty"`
	Ready     bool       `json:"ready"`
	Reason    string     `json:"reason,omitempty"`
	Message   string     `json:"message,omitempty"`
	// Moment says how disks and state were bound, as in Group+Witness.
	Moment    string `json:"moment,omitempty"`
	Quiesce   string `json:"quiesce,omitempty"`
	SizeBytes int64  `json:"sizeBytes"`
	SentBytes int64  `json:"sentBytes"`
	Store     string `json:"store,omitempty"`
	Sequence  int64  `json:"sequence,omitempty"`
	Key       string `json:"key,omitempty"`
	Digest    string `json:"digest,omitempty"`
	// Authenticated says that the record goes back to a signing key that the reader knew. Only for what is read from a store.
	Authenticated *bool        `json:"authenticated,omitempty"`
	Volumes       []volumeView `json:"volumes,omitempty"`
	Findings      []string     `json:"findings,omitempty"`
}

type volumeView struct {
	Name      string `json:"name"`
	Role      string `json:"role"`
	Outcome   string `json:"outcome"`
	Reason    string `json:"reason,omitempty"`
	SizeBytes int64  `json:"sizeBytes"`
	UsedBytes int64  `json:"usedBytes,omitempty"`
	Claim     string `json:"claim,omitempty"`
}

func viewOf(b *v1alpha1.VMStateBackup) backupView {
	v := backupView{Namespace: b.Namespace, Name: b.Name, VM: b.Namespace + "/" + b.Spec.VMName}
	if ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		v.Ready, v.Reason, v.Message = ready.Status == metav1.ConditionTrue, ready.Reason, ready.Message
	}
	if b.Spec.StoreRef != nil {
		v.Store = b.Spec.StoreRef.Name
	}
	if m := b.Status.Moment; m != nil {
		v.setMoment(*m)
	}
	if e := b.Status.Export; e != nil {
		v.SentBytes = e.SentBytes
		if e.Commit != nil {
			v.Key, v.Digest, v.Sequence, v.ID = e.Commit.Key, e.Commit.Digest, e.Commit.Sequence, shortID(e.Commit.Digest)
		}
	}
	for _, volume := range b.Status.Volumes {
		if volume.Outcome == v1alpha1.VolumeIncluded {
			v.SizeBytes += volume.SizeBytes
		}
		v.Volumes = append(v.Volumes, volumeView{
			Name: volume.Name, Role: string(volume.Role), Outcome: string(volume.Outcome), Reason: volume.Reason,
			SizeBytes: volume.SizeBytes, Claim: volume.ClaimName,
		})
	}
	return v
}

func (v *backupView) setMoment(m v1alpha1.Moment) {
	taken := m.CutEnded.UTC()
	v.Taken, v.Moment, v.Quiesce = &taken, string(m.Disks), string(m.Quiesce)
	if m.State != v1alpha1.StateNone && string(m.State) != string(m.Disks) {
		v.Moment += "+" + string(m.State)
	}
}

// idDigits of a digest name a backup; mover and API take eight or more.
const idDigits = 12

func shortID(digest string) string { return digest[:min(len(digest), idDigits)] }

func (v *backupView) taken() string {
	if v.Taken == nil {
		return "-"
	}
	return stamp(*v.Taken)
}

func (v *backupView) readyWord() string {
	switch {
	case v.Ready:
		return "Ready"
	case v.Reason == "":
		return "Accepted"
	default:
		return v.Reason
	}
}

// printBackup prints one backup in full.
func (a *app) printBackup(b *v1alpha1.VMStateBackup) error { return a.printView(viewOf(b)) }

func (a *app) printView(v backupView) error {
	if a.format == formatJSON {
		return a.printJSON(v)
	}
	head := []string{v.Namespace + "/" + v.Name, "VM " + v.VM, "taken " + v.taken(), v.readyWord()}
	if v.ID != "" {
		head = append([]string{v.ID}, head...)
	}
	fmt.Fprintln(a.out, strings.Join(head, "  "))
	if v.Moment != "" {
		fmt.Fprintf(a.out, "  moment %s, guest %s, %s, sent %s\n", v.Moment, orDash(v.Quiesce), size(v.SizeBytes), size(v.SentBytes))
	}
	if !v.Ready && v.Message != "" {
		fmt.Fprintf(a.out, "  %s: %s\n", v.Reason, v.Message)
	}
	if v.Authenticated != nil && !*v.Authenticated {
		fmt.Fprintln(a.out, "  signed by a key that was not checked: give --signing-key to tell a true backup from a forged one")
	}
	var rows [][]string
	for _, volume := range v.Volumes {
		word := strings.ToLower(volume.Outcome)
		if volume.Reason != "" {
			word += ": " + volume.Reason
		}
		rows = append(rows, []string{volume.Name, volume.Role, size(volume.SizeBytes), word})
	}
	table(a.out, "  ", rows)
	for _, f := range v.Findings {
		fmt.Fprintln(a.out, "  "+f)
	}
	return nil
}

// printViews prints a list.
func (a *app) printViews(views []backupView, fromStore bool) error {
	if a.format == formatJSON {
		if views == nil {
			views = []backupView{}
		}
		return a.printJSON(views)
	}
	if len(views) == 0 {
		a.note("no backups found")
		return nil
	}
	rows := [][]string{{"NAME", "VM", "TAKEN", "READY", "MOMENT", "SIZE", "SENT", "STORE"}}
	if fromStore {
		rows = [][]string{{"ID", "VM", "TAKEN", "BACKUP", "MOMENT", "SIZE", "STORED", "SEQUENCE"}}
	}
	for _, v := range views {
		if fromStore {
			rows = append(rows, []string{v.ID, v.VM, v.taken(), v.Namespace + "/" + v.Name, orDash(v.Moment), size(v.SizeBytes), size(v.SentBytes), fmt.Sprint(v.Sequence)})
			continue
		}
		rows = append(rows, []string{v.Namespace + "/" + v.Name, v.VM, v.taken(), v.readyWord(), orDash(v.Moment), size(v.SizeBytes), size(v.SentBytes), orDash(v.Store)})
	}
	table(a.out, "", rows)
	return nil
}

// restoreView is one restore as it is printed.
type restoreView struct {
	Namespace string             `json:"namespace"`
	Name      string             `json:"name"`
	Mode      string             `json:"mode"`
	VM        string             `json:"vm,omitempty"`
	Ready     bool               `json:"ready"`
	Reason    string             `json:"reason,omitempty"`
	Message   string             `json:"message,omitempty"`
	Findings  []v1alpha1.Finding `json:"findings,omitempty"`
	Volumes   []string           `json:"volumes,omitempty"`
}

func (a *app) printRestore(r *v1alpha1.VMStateRestore) error {
	v := restoreView{
		Namespace: r.Namespace, Name: r.Name, Mode: string(r.Spec.Mode), VM: r.Status.Summary.VM, Findings: r.Status.Findings,
	}
	s := stateOf(r.Status.Conditions)
	v.Ready, v.Reason, v.Message = s.ready, s.reason, s.message
	for _, volume := range r.Status.Volumes {
		v.Volumes = append(v.Volumes, volume.Name+" in "+volume.ClaimName)
	}
	if a.format == formatJSON {
		return a.printJSON(v)
	}
	fmt.Fprintf(a.out, "%s/%s  %s  VM %s  %s\n", v.Namespace, v.Name, v.Mode, orDash(v.VM), s.reading.step)
	if v.Message != "" {
		fmt.Fprintln(a.out, "  "+v.Message)
	}
	for _, volume := range v.Volumes {
		fmt.Fprintln(a.out, "  "+volume)
	}
	a.printFindings(v.Findings)
	return nil
}

// printFindings prints what a preflight found; the JSON form has them in its object.
func (a *app) printFindings(findings []v1alpha1.Finding) {
	if a.format == formatJSON {
		return
	}
	var rows [][]string
	for _, f := range findings {
		rows = append(rows, []string{string(f.Outcome), f.Check, f.Message})
	}
	table(a.out, "  ", rows)
}
