package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// vmstate is the engine of this repository, over a directory store.
type vmstate struct{ b *bench }

func (v *vmstate) name() string { return "vmstate" }

func (v *vmstate) store() string { return filepath.Join(v.b.dir, "store-vmstate") }

// memory is the limit that the mover sets for itself.
const memory = "GOMEMLIMIT=176MiB"

func (v *vmstate) step(ctx context.Context, what, image string) (figures, error) {
	file := filepath.Join(v.b.dir, "vmstate.json")
	return measure(ctx, []string{memory}, v.b.self, stepCommand, what, file, v.store(), image)
}

func (v *vmstate) init(ctx context.Context) error {
	_, err := v.step(ctx, "init", "")
	return err
}

func (v *vmstate) backup(ctx context.Context, image string) (figures, error) {
	return v.step(ctx, "backup", image)
}

func (v *vmstate) restore(ctx context.Context, to string) (figures, error) {
	return v.step(ctx, "restore", filepath.Join(to, "disk.img"))
}

// restic is what it is compared with, with a local repository and no cache. The
// image has one name for all backups, as it would have on a node, and --force makes
// restic read it although it looks unchanged.
type restic struct{ b *bench }

func (r *restic) name() string { return "restic" }

func (r *restic) store() string { return filepath.Join(r.b.dir, "store-restic") }

func (r *restic) command(ctx context.Context, args ...string) (figures, error) {
	env := []string{"RESTIC_PASSWORD=bench", "RESTIC_REPOSITORY=" + r.store()}
	return measure(ctx, env, r.b.restic, append([]string{"--no-cache"}, args...)...)
}

func (r *restic) init(ctx context.Context) error {
	_, err := r.command(ctx, "init")
	return err
}

func (r *restic) backup(ctx context.Context, image string) (figures, error) {
	link := filepath.Join(r.b.dir, "disk.img")
	if err := os.RemoveAll(link); err != nil {
		return figures{}, err
	}
	if err := os.Link(image, link); err != nil {
		return figures{}, fmt.Errorf("name the image: %w", err)
	}
	defer os.Remove(link)
	return r.command(ctx, "backup", "--force", link)
}

func (r *restic) restore(ctx context.Context, to string) (figures, error) {
	return r.command(ctx, "restore", "latest", "--sparse", "--target", to)
}
