package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/blockfile"
)

const aboutSalvage = `Brings out of a damaged backup what is good of it, as files:

  DIR/<volume>.img            a disk of which nothing is missing
  DIR/<volume>.salvaged.img   a disk of which something is: the bad ranges are holes, they read as zeros
  DIR/salvage.json            what is missing: volume, offset, length, and why
  DIR/state/, DIR/spec/       firmware state and documents, each whole or not at all

Every byte outside of the bad ranges is proven. Exit code 3 if anything is missing; an identity that opens nothing of the
backup is an error, and no damage. A machine with a hole in its disk
may start and be wrong: a restore in the cluster refuses a damaged backup, and never mixes it with another.`

func (a *app) salvageCommand() *cobra.Command {
	var vm, id, output string
	cmd := &cobra.Command{
		Use:   "salvage --vm NAMESPACE/NAME --output DIR",
		Short: "Bring out what is good of a damaged backup, with a map of what is not",
		Long:  aboutSalvage,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.saysWhat(vm, id, output); err != nil {
				return err
			}
			return a.salvage(cmd.Context(), vm, id, output)
		},
	}
	cmd.Flags().StringVar(&vm, "vm", "", "namespace/name of the virtual machine as it was backed up")
	cmd.Flags().StringVar(&id, "commit", "latest", "id of the backup, as list prints it")
	cmd.Flags().StringVar(&output, "output", "", "directory for the files")
	a.store.register(cmd.Flags())
	return cmd
}

// missing is a part of a volume that a salvage could not bring back.
type missing struct {
	Volume string `json:"volume"`
	Offset int64  `json:"offset"`
	Length int64  `json:"length"`
	Why    string `json:"why"`
	// Closed says that no identity given opens it.
	Closed bool `json:"closed,omitempty"`
}

func (a *app) salvage(ctx context.Context, vm, id, output string) error {
	repo, err := a.store.open(ctx)
	if err != nil {
		return err
	}
	c, err := find(ctx, repo, vm, id)
	if err != nil {
		return err
	}
	if err := makeEmpty(output); err != nil {
		return err
	}
	r := &fileRestore{repo: repo, commit: c, output: output, progress: newBar(a.err), note: a.note}
	lost, err := r.salvage(ctx)
	r.progress.end()
	if err != nil {
		return errors.Join(fmt.Errorf("salvage backup %s: %w", shortID(c.Digest), err), empty(output))
	}
	if err := a.printView(viewOfCommit(c)); err != nil || len(lost) == 0 {
		return err
	}
	bytes := int64(0)
	for _, m := range lost {
		a.note("%s: %d bytes at %d are missing: %s", m.Volume, m.Length, m.Offset, m.Why)
		bytes += m.Length
	}
	text, err := json.MarshalIndent(lost, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(output, "salvage.json")
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return &outcome{
		kind: errDamaged, err: errDamaged, text: fmt.Sprintf("%s are missing; %s says where", size(bytes), path),
		hint: "what is missing reads as zeros in the files; start nothing from them before you know what was there",
	}
}

// salvage brings out every volume as far as it is good.
func (r *fileRestore) salvage(ctx context.Context) ([]missing, error) {
	lost := []missing{}
	opened, closed := int64(0), ""
	for _, v := range r.commit.Volumes {
		if v.Name == "" || v.Name != filepath.Base(v.Name) {
			return nil, fmt.Errorf("%w: volume name %q is not a file name", errDamaged, v.Name)
		}
		r.total += v.Size
	}
	for _, v := range r.commit.Volumes {
		out, err := r.salvageVolume(ctx, v)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", v.Name, err)
		}
		opened += out.DataBytes
		for _, b := range out.Bad {
			lost = append(lost, missing{v.Name, b.Offset, b.Length, b.Why, b.Closed})
			if b.Closed {
				closed = b.Why
			}
		}
		r.before += v.Size
	}
	if opened == 0 && closed != "" {
		return nil, fmt.Errorf("%w: nothing of the backup is opened: %s", repository.ErrWrongIdentity, closed)
	}
	return lost, nil
}

func (r *fileRestore) salvageVolume(ctx context.Context, v repository.VolumeResult) (repository.SalvageResult, error) {
	if v.Kind == repository.KindTree {
		return r.salvageTree(ctx, v)
	}
	return r.salvageDisk(ctx, v)
}

func (r *fileRestore) salvageDisk(ctx context.Context, v repository.VolumeResult) (repository.SalvageResult, error) {
	partial := r.image(v.Name) + partialSuffix
	target, err := blockfile.Create(partial, v.Size)
	if err != nil {
		return repository.SalvageResult{}, err
	}
	out, err := r.repo.Salvage(ctx, r.commit, repository.RestoreSpec{
		Volume: v.Name, Target: target, Fresh: true, Progress: func(p repository.RestoreProgress) {
			r.progress.show(reading{step: "Salvaging " + v.Name, done: r.before + p.Done, total: r.total})
		},
	})
	if err := errors.Join(err, target.Close()); err != nil {
		return out, err
	}
	name := v.Name
	if len(out.Bad) > 0 {
		name += ".salvaged"
	}
	return out, os.Rename(partial, r.image(name))
}

// salvageTree brings out a set of files, or nothing of it: half of a TPM's state is none.
func (r *fileRestore) salvageTree(ctx context.Context, v repository.VolumeResult) (out repository.SalvageResult, err error) {
	folder := filepath.Join(r.output, "state")
	if v.Role == string(v1alpha1.RoleSpec) {
		folder = filepath.Join(r.output, "spec")
	}
	err = r.tree(ctx, v.Name, folder)
	if err == nil {
		out.DataBytes = v.Size
		return out, nil
	}
	closed := errors.Is(err, repository.ErrWrongIdentity)
	if exitCode(err) != exitDamaged && !closed {
		return out, err
	}
	out.Bad = []repository.BadRange{{Length: v.Size, Why: err.Error(), Closed: closed}}
	return out, os.RemoveAll(folder)
}
