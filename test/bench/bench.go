package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

type bench struct {
	cache   string // images, kept
	size    int64
	rounds  int
	profile bool
	table   bool

	only, engines, stores []string

	self     string
	work     string // everything else, removed at the end
	now      string // with profiles, it names what is kept of this run
	profiles int
	server   *server
	figures  *figures
}

// say tells a person how far it is.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}

func (b *bench) wants(any ...string) bool {
	return slices.ContainsFunc(any, func(s string) bool { return slices.Contains(b.only, s) })
}

func (b *bench) run(ctx context.Context) (err error) {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.clean()) }()
	for round := range b.rounds {
		if err := b.conditions(); err != nil {
			return err
		}
		for _, store := range b.stores {
			for _, engine := range b.engines {
				b.say("round %d of %d: %s, %s", round+1, b.rounds, engine, store)
				if err := b.suites(ctx, round, store, engine); err != nil {
					return fmt.Errorf("%s, %s: %w", engine, store, err)
				}
			}
		}
	}
	if err := b.conditions(); err != nil {
		return err
	}
	b.figures.print(os.Stdout)
	if b.table {
		b.figures.table(os.Stdout)
	}
	return nil
}

// suites are everything that is wanted of one engine with one store.
func (b *bench) suites(ctx context.Context, round int, store, engine string) error {
	r := &runner{bench: b, place: b.placeFor(store, engine), name: engine}
	if b.wants("full", "unchanged", "scatter", "restore", "inplace", "back", "cluster", "verify") {
		if err := r.vmgen(ctx); err != nil {
			return err
		}
	}
	// What takes long is measured once, where it says the most.
	if round > 0 {
		return nil
	}
	if b.wants("days") && store == "dir" {
		if err := r.days(ctx); err != nil {
			return fmt.Errorf("guest days: %w", err)
		}
	}
	if b.wants("chain") && (store == "tls" || !slices.Contains(b.stores, "tls")) {
		if err := r.chain(ctx); err != nil {
			return fmt.Errorf("chain: %w", err)
		}
	}
	if b.wants("memory") && engine == "vmstate" {
		if err := r.memory(ctx); err != nil {
			return fmt.Errorf("memory: %w", err)
		}
	}
	if b.wants("upload") && engine == "vmstate" && store == "tls" {
		if err := r.upload(ctx); err != nil {
			return fmt.Errorf("upload: %w", err)
		}
	}
	return nil
}

// conditions are what the figures must be read with.
func (b *bench) conditions() error {
	calibration, err := calibrate()
	if err != nil {
		return err
	}
	b.figures.add("calibration_sha256_1gib_cpu", calibration, "s")
	now, err := load()
	if err != nil {
		return err
	}
	b.figures.add("load_average", now, "processes")
	own, err := ownRSS()
	b.figures.add("bench_rss", own, "MiB") // a child's RSS is at least what its parent had
	return err
}

func (b *bench) prepare(ctx context.Context) (err error) {
	if err := os.MkdirAll(b.cache, 0o700); err != nil {
		return err
	}
	if b.self, err = os.Executable(); err != nil {
		return err
	}
	if b.work, err = os.MkdirTemp(b.cache, "work-"); err != nil {
		return err
	}
	b.now = time.Now().UTC().Format("20060102-150405")
	for module, program := range map[string]string{"restic": "github.com/restic/restic/cmd/restic", "kopia": "github.com/kopia/kopia"} {
		if !slices.ContainsFunc(b.engines, func(e string) bool { return e == module || module == "kopia" && e == "velero" }) {
			continue
		}
		b.say("building %s", module)
		build := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join("tools", module), "-o", b.peer(module), program)
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return errors.Join(fmt.Errorf("build %s: %w", module, err), b.clean())
		}
	}
	if slices.Contains(b.stores, "tls") {
		if b.server, err = startServer(ctx, filepath.Join(b.work, "server")); err != nil {
			return errors.Join(err, b.clean())
		}
	}
	return nil
}

// peer is the path of a program that is compared with.
func (b *bench) peer(name string) string { return filepath.Join(b.work, "bin", name) }

func (b *bench) clean() error {
	var err error
	if b.server != nil {
		err = b.server.stop()
	}
	return errors.Join(err, os.RemoveAll(b.work), os.RemoveAll(filepath.Join(b.cache, "vm")))
}
