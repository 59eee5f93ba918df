package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	// resticModule is the tool that go.mod pins.
	resticModule = "github.com/restic/restic/cmd/restic"
)

// digests of the image and of the changed image at fullSize.
var digests = [2]string{
	"f834f89f226c36324dd8244a9df37f34022a3a960db0c6aba2d4fe0d141cd3f5",
	"61ddf7f5fcdbe64e710536f8ec5062553068313d967ae94e76c5d6bdba6bc500",
}

type bench struct {
	dir   string
	size  int64
	runs  int
	alone bool

	images [2]string // before and after the change
	self   string
	restic string
}

// engine is one of the programs that are compared, as the steps that it runs.
type engine interface {
	name() string
	init(ctx context.Context) error
	backup(ctx context.Context, image string) (figures, error)
	restore(ctx context.Context, to string) (figures, error)
	store() string
}

func (b *bench) run(ctx context.Context) error {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	engines := []func() engine{func() engine { return &vmstate{b: b} }}
	if !b.alone {
		engines = append(engines, func() engine { return &restic{b: b} })
	}
	results := make([]map[string]figures, len(engines))
	sizes := make([]map[string]int64, len(engines))
	for range b.runs {
		calibration, err := calibrate()
		if err != nil {
			return err
		}
		emit("calibration_sha256_1gib_cpu", calibration, "s")
		for i, make := range engines {
			e := make()
			got, stored, err := b.measure(ctx, e)
			if err != nil {
				return fmt.Errorf("%s: %w", e.name(), err)
			}
			if results[i] == nil {
				results[i] = map[string]figures{}
			}
			for step, f := range got {
				results[i][step] = least(results[i][step], f)
			}
			sizes[i] = stored
		}
	}
	for i, make := range engines {
		b.print(make().name(), results[i], sizes[i])
	}
	if !b.alone {
		b.printRatios(results, sizes)
	}
	return nil
}

var steps = []string{"full", "unchanged", "scatter", "restore"}

// measure takes one engine through all steps in an empty store.
func (b *bench) measure(ctx context.Context, e engine) (map[string]figures, map[string]int64, error) {
	if err := os.RemoveAll(e.store()); err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(e.store())
	if err := e.init(ctx); err != nil {
		return nil, nil, err
	}
	got, stored := map[string]figures{}, map[string]int64{}
	before, filesBefore, err := treeBytes(e.store())
	if err != nil {
		return nil, nil, err
	}
	for i, image := range []string{b.images[0], b.images[0], b.images[1]} {
		if got[steps[i]], err = e.backup(ctx, image); err != nil {
			return nil, nil, err
		}
		after, files, err := treeBytes(e.store())
		if err != nil {
			return nil, nil, err
		}
		stored[steps[i]], stored[steps[i]+"_objects"] = after-before, int64(files-filesBefore)
		before, filesBefore = after, files
	}
	to := filepath.Join(b.dir, "restored-"+e.name())
	if err := os.RemoveAll(to); err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(to)
	if got["restore"], err = e.restore(ctx, to); err != nil {
		return nil, nil, err
	}
	return got, stored, b.compare(to)
}

// compare finds the restored image under dir and compares it with its original.
func (b *bench) compare(dir string) error {
	var found string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			found = path
		}
		return err
	})
	if err != nil {
		return err
	}
	got, err := digest(found)
	if err != nil {
		return err
	}
	want, err := digest(b.images[1])
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("restored image has digest %s, not %s", got, want)
	}
	return nil
}

func (b *bench) print(engine string, got map[string]figures, stored map[string]int64) {
	for _, step := range steps {
		f := got[step]
		emit(engine+"_"+step+"_cpu", f.cpu, "s")
		emit(engine+"_"+step+"_wall", f.wall, "s")
		emit(engine+"_"+step+"_rss", f.rss, "MiB")
		if step != "restore" {
			emit(engine+"_"+step+"_stored", float64(stored[step])/1e6, "MB")
			emit(engine+"_"+step+"_objects", float64(stored[step+"_objects"]), "objects")
		}
	}
}

// printRatios prints how much dearer restic is; above 1 is in favour of the engine.
func (b *bench) printRatios(got []map[string]figures, stored []map[string]int64) {
	for _, step := range steps {
		emit("ratio_restic_"+step+"_cpu", got[1][step].cpu/got[0][step].cpu, "x")
		if step != "restore" {
			emit("ratio_restic_"+step+"_stored", float64(stored[1][step])/float64(stored[0][step]), "x")
		}
	}
}

// prepare builds the programs and makes the images, unless they are there.
func (b *bench) prepare(ctx context.Context) error {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return err
	}
	var err error
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if !b.alone {
		b.restic = filepath.Join(b.dir, "restic")
		build := exec.CommandContext(ctx, "go", "build", "-o", b.restic, resticModule)
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build restic: %w", err)
		}
	}
	for i := range b.images {
		b.images[i] = filepath.Join(b.dir, fmt.Sprintf("vmgen-1-%d-%d.img", b.size, i))
		if err := b.image(i); err != nil {
			return fmt.Errorf("make image: %w", err)
		}
	}
	return nil
}

func (b *bench) image(i int) error {
	path := b.images[i]
	if info, err := os.Stat(path); err == nil && info.Size() == b.size {
		return nil
	}
	f, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(b.size); err != nil {
		return err
	}
	if err := vmgen.Image(f, b.size, seed); err != nil {
		return err
	}
	if i == 1 {
		if err := vmgen.Scatter(f, b.size, seed, percent); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	got, err := digest(path + ".part")
	if err != nil {
		return err
	}
	if b.size == fullSize && got != digests[i] {
		return fmt.Errorf("digest is %s, not %s", got, digests[i])
	}
	return os.Rename(path+".part", path)
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
