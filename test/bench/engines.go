package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// engine is one of the programs that are compared, with one place for its backups.
// restore brings the newest backup into the folder to; what is there is overwritten.
type engine interface {
	init(ctx context.Context) error
	backup(ctx context.Context, image string) (cost, error)
	restore(ctx context.Context, to string) (cost, error)
	// restored is the image below the folder that restore was given.
	restored(to string) string
}

// engineNames are all engines, ours first. kopia is as fast and as small as its
// settings make it, velero is kopia with the settings that Velero's mover has: the
// default splitter, DYNAMIC-4M-BUZHASH, no compression and no cutting of large files.
var engineNames = []string{"vmstate", "restic", "kopia", "velero"}

func (b *bench) engine(name string, p *place) engine {
	switch name {
	case "restic":
		return &restic{b, p}
	case "kopia":
		return &kopia{b: b, place: p, name: name, compression: "zstd-fastest"}
	case "velero":
		return &kopia{b: b, place: p, name: name, compression: "none", whole: true}
	default:
		return &vmstate{b: b, place: p}
	}
}

// vmstate is the engine of this repository, each step a run of this program.
type vmstate struct {
	b     *bench
	place *place
	// parent is the backup that the next one stands on, by number; -1 is the newest.
	parent int
	source int // the backup to restore, likewise
}

// memory is the limit that the mover sets for itself.
const memory = "GOMEMLIMIT=176MiB"

func (v *vmstate) step(ctx context.Context, t task) (cost, error) {
	t.State, t.Place = filepath.Join(v.b.work, "vmstate.json"), *v.place
	if v.b.profile {
		v.b.profiles++
		t.Profile = filepath.Join(v.b.cache, fmt.Sprintf("cpu-%s-%02d-%s%s.pprof", v.b.now, v.b.profiles, v.place.suffix(), t.What))
	}
	text, err := json.Marshal(t)
	if err != nil {
		return cost{}, err
	}
	return measure(ctx, []string{memory}, v.b.self, stepCommand, string(text))
}

func (v *vmstate) init(ctx context.Context) error {
	v.parent, v.source = -1, -1
	_, err := v.step(ctx, task{What: "init"})
	return err
}

func (v *vmstate) backup(ctx context.Context, image string) (cost, error) {
	return v.step(ctx, task{What: "backup", Image: image, Number: v.parent})
}

func (v *vmstate) restore(ctx context.Context, to string) (cost, error) {
	return v.step(ctx, task{What: "restore", Image: v.restored(to), Number: v.source})
}

func (v *vmstate) restored(to string) string { return filepath.Join(to, "disk.img") }

// named gives an image the name that it has for all backups, as it would on a node,
// in a folder of its own.
func (b *bench) named(image string) (folder string, err error) {
	folder = filepath.Join(b.cache, "vm")
	if err := os.RemoveAll(folder); err != nil {
		return "", err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", err
	}
	if err := os.Link(image, filepath.Join(folder, "disk.img")); err != nil {
		return "", fmt.Errorf("name the image: %w", err)
	}
	return folder, nil
}

// restic is run without a cache, and with --force, which makes it read an image that
// looks unchanged.
type restic struct {
	b     *bench
	place *place
}

func (r *restic) command(ctx context.Context, args ...string) (cost, error) {
	env := []string{"RESTIC_PASSWORD=bench", "RESTIC_REPOSITORY=" + r.place.Dir}
	base := []string{"--no-cache", "--quiet"}
	if s3 := r.place.S3; s3 != nil {
		env[1] = fmt.Sprintf("RESTIC_REPOSITORY=s3:%s/%s/%s", s3.Endpoint, s3.Bucket, s3.Prefix)
		env = append(env, "AWS_ACCESS_KEY_ID="+s3.AccessKeyID, "AWS_SECRET_ACCESS_KEY="+s3.SecretAccessKey)
		base = append(base, "--cacert", r.place.CAFile)
	}
	return measure(ctx, env, r.b.peer("restic"), append(base, args...)...)
}

func (r *restic) init(ctx context.Context) error {
	_, err := r.command(ctx, "init")
	return err
}

func (r *restic) backup(ctx context.Context, image string) (cost, error) {
	folder, err := r.b.named(image)
	if err != nil {
		return cost{}, err
	}
	defer os.RemoveAll(folder)
	return r.command(ctx, "backup", "--force", filepath.Join(folder, "disk.img"))
}

func (r *restic) restore(ctx context.Context, to string) (cost, error) {
	return r.command(ctx, "restore", "latest:"+filepath.Join(r.b.cache, "vm"), "--sparse", "--target", to)
}

func (r *restic) restored(to string) string { return filepath.Join(to, "disk.img") }

// kopia keeps its configuration and caches in the work folder. A restore begins with
// empty caches: it happens where the backup was not made.
type kopia struct {
	b           *bench
	place       *place
	name        string
	compression string
	whole       bool // large files are not cut into parts
	newest      string
}

func (k *kopia) command(ctx context.Context, args ...string) (cost, error) {
	home := filepath.Join(k.b.work, "home-"+k.name)
	env := []string{
		"KOPIA_PASSWORD=bench", "KOPIA_CONFIG_PATH=" + filepath.Join(home, "config"), "KOPIA_LOG_DIR=" + filepath.Join(home, "logs"),
		"KOPIA_CACHE_DIRECTORY=" + k.caches(), "KOPIA_CHECK_FOR_UPDATES=false", "HOME=" + home,
	}
	return measure(ctx, env, k.b.peer("kopia"), args...)
}

func (k *kopia) caches() string { return filepath.Join(k.b.work, "home-"+k.name, "caches") }

func (k *kopia) init(ctx context.Context) error {
	if err := os.RemoveAll(filepath.Dir(k.caches())); err != nil {
		return err
	}
	create := []string{"repository", "create", "filesystem", "--path=" + k.place.Dir}
	if s3 := k.place.S3; s3 != nil {
		create = []string{
			"repository", "create", "s3", "--endpoint=" + s3.Endpoint[len("https://"):], "--bucket=" + s3.Bucket, "--prefix=" + s3.Prefix + "/",
			"--access-key=" + s3.AccessKeyID, "--secret-access-key=" + s3.SecretAccessKey, "--root-ca-pem-path=" + k.place.CAFile,
		}
	}
	policy := []string{"policy", "set", "--global", "--compression=" + k.compression}
	if k.whole {
		policy = append(policy, "--parallel-upload-above-size-mib=1000000000")
	}
	for _, args := range [][]string{create, policy, {"maintenance", "set", "--enable-quick=false", "--enable-full=false"}} {
		if _, err := k.command(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func (k *kopia) backup(ctx context.Context, image string) (cost, error) {
	folder, err := k.b.named(image)
	if err != nil {
		return cost{}, err
	}
	defer os.RemoveAll(folder)
	c, err := k.command(ctx, "snapshot", "create", "--force-hash=100", "--no-progress", "--json", folder)
	if err != nil {
		return c, err
	}
	var made struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(c.out, &made); err != nil {
		return c, fmt.Errorf("kopia says which snapshot it made: %w: %s", err, c.out)
	}
	k.newest = made.ID
	return c, nil
}

func (k *kopia) restore(ctx context.Context, to string) (cost, error) {
	if err := os.RemoveAll(k.caches()); err != nil {
		return cost{}, err
	}
	return k.command(ctx, "snapshot", "restore", "--write-sparse-files", "--no-progress", k.newest, to)
}

func (k *kopia) restored(to string) string { return filepath.Join(to, "disk.img") }
