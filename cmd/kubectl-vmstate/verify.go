package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

const aboutVerify = `Reads every object that any backup of a store needs, each once, and compares it bit for bit with what was written. That
takes no identity: the members of the Secret <store>-repository-keys as files in a directory (--keys) do.

A damaged object is named with every backup and every volume that it takes something from. A store that cannot be
reached is an error and no damage. Exit code 3 if anything is damaged.

With --state FILE a verification that was interrupted goes on where it was. With --full and an identity every backup is
also opened as a restore would, so that damage is told to the single frame and key files are proven. --rate bounds both.`

// verifyFlags are those of verify alone.
type verifyFlags struct {
	keys, state, rate string
	full              bool
}

func (a *app) verifyCommand() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify (--keys DIR | --identity FILE)",
		Short: "Read a whole store and prove that its backups are as they were written",
		Long:  aboutVerify,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case !a.store.given():
				return usagef("say with --bucket or --dir which store is meant")
			case f.keys == "" == (len(a.store.identities) == 0):
				return usagef("give either --keys or --identity")
			case f.full && f.keys != "":
				return usagef("--full opens backups, which takes an --identity")
			}
			return a.verify(cmd.Context(), f)
		},
	}
	cmd.Flags().StringVar(&f.keys, "keys", "", "directory with the members of the Secret <store>-repository-keys")
	cmd.Flags().StringVar(&f.state, "state", "", "file that keeps how far the verification is")
	cmd.Flags().StringVar(&f.rate, "rate", "", "bytes a second to read at most, as in 50Mi")
	cmd.Flags().BoolVar(&f.full, "full", false, "open every backup as well")
	a.store.register(cmd.Flags())
	return cmd
}

// verifyState is what --state keeps.
type verifyState struct {
	// Round is the library's.
	Round string `json:"round"`
	// Unfinished says that a round is under way, Full that it opens backups.
	Unfinished bool `json:"unfinished,omitempty"`
	Full       bool `json:"full,omitempty"`
	// Backups were judged in this round.
	Backups []repository.Verdict `json:"backups,omitempty"`
}

// read reads a state; a file that is not there is none.
func (f verifyFlags) read() (verifyState, error) {
	var s verifyState
	if f.state == "" {
		return s, nil
	}
	text, err := os.ReadFile(f.state)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(text) == 0 {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read state: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read state %q: %w", f.state, err)
	}
	if s.Round == "" { // of a version that kept nothing else
		return verifyState{Round: string(text)}, nil
	}
	if s.Unfinished && s.Full != f.full {
		return s, usagef("%q is of a verification with --full=%t that has not ended: go on with that, or remove the file", f.state, s.Full)
	}
	return s, nil
}

// keep writes the state whole or not at all.
func (f verifyFlags) keep(s verifyState) error {
	if f.state == "" {
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if err := os.WriteFile(f.state+partialSuffix, text, 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return os.Rename(f.state+partialSuffix, f.state)
}

// spec goes on from a state.
func (f verifyFlags) spec(s verifyState) (repository.VerifySpec, error) {
	spec := repository.VerifySpec{State: s.Round, Full: f.full}
	if f.rate != "" {
		q, err := resource.ParseQuantity(f.rate)
		if err != nil || q.Value() <= 0 {
			return spec, usagef("--rate is a number of bytes as in 50Mi, not %q", f.rate)
		}
		spec.BytesPerSecond = q.Value()
	}
	return spec, nil
}

func (a *app) verify(ctx context.Context, f verifyFlags) error {
	before, err := f.read()
	if err != nil {
		return err
	}
	spec, err := f.spec(before)
	if err != nil {
		return err
	}
	repo, err := a.openVerified(ctx, f.keys)
	if err != nil {
		return err
	}
	progress := newBar(a.err)
	var kept error
	spec.Progress = func(p repository.VerifyProgress) {
		kept = errors.Join(kept, f.keep(before.after(p.State, f.full, p.Backups)))
		progress.show(readingVerify(p))
	}
	found, err := repo.Verify(ctx, spec)
	progress.end()
	after := before.after(found.State, f.full, found.Backups)
	if found.Backups = after.Backups; found.RoundDone {
		after = verifyState{Round: found.State}
	}
	if err = errors.Join(err, kept, f.keep(after)); err != nil {
		return err
	}
	return a.printVerified(found)
}

// after is the state with what was judged since.
func (s verifyState) after(round string, full bool, judged []repository.Verdict) verifyState {
	out := verifyState{Round: round, Unfinished: true, Full: full}
	for _, v := range s.Backups {
		if !slices.ContainsFunc(judged, func(j repository.Verdict) bool { return j.Key == v.Key }) {
			out.Backups = append(out.Backups, v)
		}
	}
	out.Backups = append(out.Backups, judged...)
	return out
}

func readingVerify(p repository.VerifyProgress) reading {
	r := reading{step: "Verifying", done: p.Bytes, total: p.Total, extra: fmt.Sprintf("%d packs", p.Packs)}
	if o := p.Opening; o != nil {
		r = reading{step: "Opening " + o.Volume, done: o.Done, total: o.Total, extra: "fetched " + size(o.Fetched)}
	}
	return r
}

func (a *app) openVerified(ctx context.Context, folder string) (*repository.Repository, error) {
	if folder == "" {
		return a.store.open(ctx)
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	members := map[string][]byte{}
	for _, file := range files {
		if file.IsDir() {
			continue
		}
		if members[file.Name()], err = os.ReadFile(filepath.Join(folder, file.Name())); err != nil {
			return nil, fmt.Errorf("read keys: %w", err)
		}
	}
	k, err := keys.FromSecret(members)
	if err != nil {
		return nil, fmt.Errorf("keys in %q: %w", folder, err)
	}
	store, err := a.store.objects()
	if err != nil {
		return nil, err
	}
	repo, err := repository.OpenWithKeys(ctx, store, k)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", a.store.place(), err)
	}
	return repo, nil
}

// verdictView is one backup as verify prints it.
type verdictView struct {
	ID      string             `json:"id"`
	VM      string             `json:"vm"`
	Backup  string             `json:"backup"`
	Key     string             `json:"key"`
	Outcome repository.Outcome `json:"outcome"`
	Reason  string             `json:"reason,omitempty"`
	Volumes []hurtView         `json:"volumes,omitempty"`
}

type hurtView struct {
	Name   string      `json:"name"`
	Role   string      `json:"role"`
	Bytes  int64       `json:"bytes"`
	Ranges []rangeView `json:"ranges,omitempty"`
}

type rangeView struct {
	Offset int64 `json:"offset"`
	Length int64 `json:"length"`
}

type objectView struct {
	Key string `json:"key"`
	Why string `json:"why"`
}

type verifiedView struct {
	Packs   int64         `json:"packs"`
	Bytes   int64         `json:"bytes"`
	Backups []verdictView `json:"backups"`
	Damaged []objectView  `json:"damaged"`
}

func viewOfVerified(r repository.VerifyResult) verifiedView {
	v := verifiedView{Packs: r.Packs, Bytes: r.Bytes, Backups: []verdictView{}, Damaged: []objectView{}}
	for _, d := range r.Damaged {
		v.Damaged = append(v.Damaged, objectView{d.Key, d.Why})
	}
	for _, b := range r.Backups {
		view := verdictView{Key: b.Key, Outcome: b.Outcome, Reason: b.Reason}
		if b.VM.Name != "" {
			view.ID, view.VM, view.Backup = shortID(b.Digest), b.VM.Namespace+"/"+b.VM.Name, b.Backup.Namespace+"/"+b.Backup.Name
		}
		for _, hurt := range b.Volumes {
			h := hurtView{Name: hurt.Name, Role: hurt.Role, Bytes: hurt.Bytes}
			if hurt.Kind == repository.KindBlock { // of files, which bytes says nothing to anybody
				for _, e := range hurt.Ranges {
					h.Ranges = append(h.Ranges, rangeView(e))
				}
			}
			view.Volumes = append(view.Volumes, h)
		}
		v.Backups = append(v.Backups, view)
	}
	return v
}

func (a *app) printVerified(r repository.VerifyResult) error {
	v := viewOfVerified(r)
	if a.format == formatJSON {
		if err := a.printJSON(v); err != nil {
			return err
		}
		return v.err()
	}
	rows := [][]string{{"ID", "VM", "BACKUP", "VERDICT", "HURT"}}
	for _, b := range v.Backups {
		rows = append(rows, []string{orDash(b.ID), orDash(b.VM), orDash(b.Backup), string(b.Outcome), orDash(b.hurt())})
	}
	table(a.out, "", rows)
	fmt.Fprintf(a.out, "read %d packs, %s\n", v.Packs, size(v.Bytes))
	for _, d := range v.Damaged {
		fmt.Fprintf(a.out, "%s is %s\n", d.Key, d.Why)
	}
	for _, b := range v.Backups {
		if b.Outcome != repository.OutcomeVerified {
			a.note("%s: %s", b.Key, b.Reason)
		}
	}
	return v.err()
}

func (v verdictView) hurt() string {
	var out []string
	for _, h := range v.Volumes {
		out = append(out, fmt.Sprintf("%s %s", h.Name, size(h.Bytes)))
	}
	return strings.Join(out, ", ")
}

func (v verifiedView) err() error {
	n := len(v.Damaged)
	for _, b := range v.Backups {
		if b.Outcome == repository.OutcomeDamaged {
			n++
		}
	}
	closed := slices.ContainsFunc(v.Backups, func(b verdictView) bool { return b.Outcome == repository.OutcomeClosed })
	switch {
	case n == 0 && closed:
		return &outcome{
			kind: repository.ErrWrongIdentity, err: repository.ErrWrongIdentity, text: "some backups are not opened by the identity given: they are named above",
			hint: "give every identity with an --identity of its own; kubectl vmstate rewrap opens old backups for a new one",
		}
	case n == 0:
		return nil
	}
	return &outcome{
		kind: errDamaged, text: "the store is damaged: backups and objects are named above", err: errDamaged,
		hint: "the next backup sends again what its source still has; kubectl vmstate salvage brings out what is good of a damaged one",
	}
}
