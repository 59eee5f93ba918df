package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/vmstate/vmstate/pkg/repository/vmgen"
)

const (
	fullSize = 4 << 30
	seed     = 1
	percent  = 1
)

// digests of images at fullSize, where they are known.
var digests = map[string]string{
	"base":    "f834f89f226c36324dd8244a9df37f34022a3a960db0c6aba2d4fe0d141cd3f5",
	"scatter": "61ddf7f5fcdbe64e710536f8ec5062553068313d967ae94e76c5d6bdba6bc500",
}

// changes make an image of the base.
var changes = map[string]func(w io.WriterAt, size int64, seed uint64, percent float64) error{
	"base":    func(io.WriterAt, int64, uint64, float64) error { return nil },
	"scatter": vmgen.Scatter,
	"cluster": vmgen.Cluster,
}

// image returns the path of a vmgen-1 image, made unless it is there.
func (b *bench) image(ctx context.Context, kind string, size int64) (string, error) {
	path := filepath.Join(b.cache, fmt.Sprintf("vmgen-1-%d-%s.img", size, kind))
	if info, err := os.Stat(path); err == nil && info.Size() == size {
		return path, nil
	}
	b.say("making image %s", filepath.Base(path))
	part := path + ".part"
	if err := os.RemoveAll(part); err != nil {
		return "", err
	}
	defer os.Remove(part) // unless it has its name by then
	if kind != "base" {
		base, err := b.image(ctx, "base", size)
		if err != nil {
			return "", err
		}
		if err := copySparse(ctx, base, part); err != nil {
			return "", err
		}
	}
	if err := generate(ctx, part, kind, size); err != nil {
		return "", fmt.Errorf("make image %s: %w", kind, err)
	}
	if want := digests[kind]; want != "" && size == fullSize {
		got, err := digest(part)
		if err != nil {
			return "", err
		}
		if got != want {
			return "", fmt.Errorf("image %s has digest %s, not %s", kind, got, want)
		}
	}
	return path, os.Rename(part, path)
}

// ending is a file that takes no more once ctx has ended.
type ending struct {
	io.WriterAt
	ctx context.Context
}

func (e ending) WriteAt(p []byte, off int64) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	return e.WriterAt.WriteAt(p, off)
}

func generate(ctx context.Context, path, kind string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return err
	}
	if kind == "base" {
		err = vmgen.Image(ending{f, ctx}, size, seed)
	} else {
		err = changes[kind](ending{f, ctx}, size, seed, percent)
	}
	return errors.Join(err, f.Sync())
}

// copySparse copies a file with its holes.
func copySparse(ctx context.Context, from, to string) error {
	out, err := exec.CommandContext(ctx, "cp", "--sparse=always", "--reflink=auto", from, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cp: %w: %s", err, out)
	}
	return nil
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// same compares two files without keeping either in memory.
func same(ctx context.Context, a, b string) error {
	out, err := exec.CommandContext(ctx, "cmp", a, b).CombinedOutput()
	if err != nil {
		return fmt.Errorf("restored image is not the one that was backed up: %w: %s", err, out)
	}
	return nil
}
