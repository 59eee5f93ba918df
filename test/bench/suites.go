package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// runner takes one engine through the suites.
type runner struct {
	bench  *bench
	place  *place
	name   string
	engine engine

	bytes   int64 // stored before the step
	objects int
}

// fresh begins with an empty store.
func (r *runner) fresh(ctx context.Context) error {
	if err := r.place.empty(); err != nil {
		return err
	}
	r.engine = r.bench.engine(r.name, r.place)
	if err := r.engine.init(ctx); err != nil {
		return err
	}
	r.place.traffic()
	var err error
	r.bytes, r.objects, err = r.place.stored()
	return err
}

func (r *runner) add(step, what string, value float64, unit string) {
	r.bench.figures.add(r.name+"_"+r.place.suffix()+step+"_"+what, value, unit)
}

// note keeps what a step took. An empty name is a step that others stand on and nobody
// asked for.
func (r *runner) note(step string, c cost, stores bool) error {
	t := r.place.traffic()
	bytes, objects, err := r.place.stored()
	if err != nil || !r.bench.wants(step) {
		r.bytes, r.objects = bytes, objects
		return err
	}
	r.add(step, "cpu", c.cpu, "s")
	r.add(step, "wall", c.wall, "s")
	r.add(step, "rss", c.rss, "MiB")
	if stores {
		r.add(step, "stored", float64(bytes-r.bytes)/1e6, "MB")
		r.add(step, "objects", float64(objects-r.objects), "objects")
	}
	r.requests(step, t)
	r.bytes, r.objects = bytes, objects
	return nil
}

func (r *runner) requests(step string, t traffic) {
	if r.place.S3 == nil {
		return
	}
	for _, q := range []struct {
		name string
		n    int
	}{{"put", t.put}, {"get", t.get}, {"list", t.list}, {"head", t.head}, {"other", t.other}} {
		r.add(step, q.name, float64(q.n), "requests")
	}
	r.add(step, "sent", float64(t.sent)/1e6, "MB")
	r.add(step, "received", float64(t.received)/1e6, "MB")
}

func (r *runner) backup(ctx context.Context, step, image string) error {
	c, err := r.engine.backup(ctx, image)
	if err != nil {
		return err
	}
	return r.note(step, c, true)
}

// vmgen is a full backup, one without a change, one with scattered change, what can
// be restored of it, and one with clustered change.
func (r *runner) vmgen(ctx context.Context) error {
	images := map[string]string{}
	for kind := range changes {
		var err error
		if images[kind], err = r.bench.image(ctx, kind, r.bench.size); err != nil {
			return err
		}
	}
	if err := r.fresh(ctx); err != nil {
		return err
	}
	if err := r.backup(ctx, "full", images["base"]); err != nil {
		return err
	}
	if r.bench.wants("unchanged") {
		if err := r.backup(ctx, "unchanged", images["base"]); err != nil {
			return err
		}
	}
	if r.bench.wants("scatter", "restore", "inplace", "back") {
		if err := r.backup(ctx, "scatter", images["scatter"]); err != nil {
			return err
		}
		if err := r.restores(ctx, images); err != nil {
			return err
		}
	}
	if r.bench.wants("cluster") {
		if ours, ok := r.engine.(*vmstate); ok {
			ours.parent = 0 // the others find the base's blocks by themselves
		}
		if err := r.backup(ctx, "cluster", images["cluster"]); err != nil {
			return err
		}
	}
	if err := r.verify(ctx); err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	return r.place.empty()
}

// verify has our engine read and prove all that is stored, without an identity.
func (r *runner) verify(ctx context.Context) error {
	ours, ok := r.engine.(*vmstate)
	if !ok || !r.bench.wants("verify") {
		return nil
	}
	c, err := ours.step(ctx, task{What: "verify"})
	if err != nil {
		return err
	}
	var out told
	if err := json.Unmarshal(c.out, &out); err != nil {
		return err
	}
	r.add("verify", "rate", float64(out.Fetched)/1e9/c.cpu, "GB/s per core")
	return r.note("verify", c, false)
}

// restores brings the scattered image back: into a new file, onto the image as it
// was before the change, and, backwards, the first backup onto the changed image.
func (r *runner) restores(ctx context.Context, images map[string]string) error {
	for _, s := range []struct {
		step, onto, want string
		source           int
	}{{"restore", "", "scatter", -1}, {"inplace", "base", "scatter", -1}, {"back", "scatter", "base", 0}} {
		ours, ok := r.engine.(*vmstate)
		if !r.bench.wants(s.step) || s.source >= 0 && !ok {
			continue
		}
		if ok {
			ours.source = s.source
		}
		if err := r.restore(ctx, s.step, images[s.onto], images[s.want]); err != nil {
			return fmt.Errorf("%s: %w", s.step, err)
		}
	}
	return nil
}

// restore brings a backup into a folder that holds the image onto, or nothing.
func (r *runner) restore(ctx context.Context, step, onto, want string) error {
	to := filepath.Join(r.bench.work, "restored")
	defer os.RemoveAll(to)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	file := r.engine.restored(to)
	if onto != "" {
		if err := copySparse(ctx, onto, file); err != nil {
			return err
		}
	}
	c, err := r.engine.restore(ctx, to)
	if err != nil {
		return err
	}
	if err := errors.Join(r.note(step, c, false), r.told(step, c), same(ctx, file, want)); err != nil {
		return err
	}
	had, err := blocks(want)
	if err != nil {
		return err
	}
	has, err := blocks(file)
	if r.bench.wants(step) {
		r.add(step, "blocks", float64(has)/float64(had), "x of the source")
	}
	return err
}

// told adds what our engine itself counted of a restore.
func (r *runner) told(step string, c cost) error {
	if r.name != "vmstate" || !r.bench.wants(step) {
		return nil
	}
	var out told
	if err := json.Unmarshal(c.out, &out); err != nil {
		return err
	}
	r.add(step, "fetched", float64(out.Fetched)/1e6, "MB")
	r.add(step, "reads", float64(out.Requests), "requests")
	r.add(step, "written", float64(out.Written)/1e6, "MB")
	return nil
}
