package build

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Builder builds parts from one checkout into one cache folder.
type Builder struct {
	source string // folder of test/cluster
	cache  string
	out    io.Writer // progress
}

// New returns a builder that keeps results in the folder cache. It builds from the checkout that the working folder is in;
// without one it can still tell where the newest results are.
func New(cache string, out io.Writer) *Builder {
	return &Builder{cache: cache, out: out}
}

// CacheDir is the folder that everything is kept in: vmstate in the user's cache folder.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache folder: %w", err)
	}
	return filepath.Join(dir, "vmstate"), nil
}

// sourceDir finds the folder test/cluster: the working folder, or one above it that holds it.
func sourceDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		for _, candidate := range []string{dir, filepath.Join(dir, "test", "cluster")} {
			if _, err := os.Stat(filepath.Join(candidate, "tools", "control", "go.mod")); err == nil {
				return candidate, nil
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no test/cluster here or above: run this inside a checkout")
		}
		dir = parent
	}
}

// Assets is the folder of links to the newest binaries.
func (b *Builder) Assets() string { return filepath.Join(b.cache, "assets") }

// Path is the file name of a part, whether it is built or not.
func (b *Builder) Path(part, name string) (string, error) {
	p, err := b.find(part)
	if err != nil {
		return "", err
	}
	dir, err := b.dir(p)
	return filepath.Join(dir, name), err
}

// Ensure builds those of the parts that are not in the cache, and links all of them into the assets folder.
func (b *Builder) Ensure(parts []Part) error {
	if b.source == "" {
		source, err := sourceDir()
		if err != nil {
			return err
		}
		b.source = source
	}
	for i, p := range parts {
		if err := b.ensure(p, fmt.Sprintf("[%d/%d]", i+1, len(parts))); err != nil {
			return fmt.Errorf("build %s: %w", p.Name, err)
		}
	}
	return nil
}

func (b *Builder) ensure(p Part, position string) error {
	dir, err := b.dir(p)
	if err != nil {
		return err
	}
	release, err := b.lock(p.Name, position)
	if err != nil {
		return err
	}
	defer release()
	if _, err := os.Stat(dir); err == nil {
		return b.link(p, dir)
	}
	// What is half built lies beside its final name and takes it by one rename.
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	if err := os.MkdirAll(partial, 0o755); err != nil {
		return err
	}
	if p.Recipe != nil {
		err = b.timed(position+" "+p.Name, func() error { return p.Recipe(b, partial) })
	} else {
		err = b.commands(p, partial, position)
	}
	if err != nil {
		return err
	}
	if err := os.Rename(partial, dir); err != nil {
		return err
	}
	return b.link(p, dir)
}

// lock keeps two builders of the same cache from building a part at once: the second waits and finds it built.
func (b *Builder) lock(part, position string) (release func(), err error) {
	folder := filepath.Join(b.cache, "locks")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(folder, part), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		fmt.Fprintf(b.out, "%s %s is being built by another process; waiting\n", position, part)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock: %w", err)
	}
	return func() { f.Close() }, nil
}

func (b *Builder) commands(p Part, dir, position string) error {
	for i, c := range p.Commands {
		label := fmt.Sprintf("%s %s %d of %d: %s", position, p.Name, i+1, len(p.Commands), c.Binary)
		if err := b.timed(label, func() error { return b.compile(p, c, filepath.Join(dir, c.Binary)) }); err != nil {
			return err
		}
	}
	return nil
}

func (b *Builder) compile(p Part, c Command, target string) error {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", p.LDFlags, "-o", target}
	if p.Tags != "" {
		args = append(args, "-tags", p.Tags)
	}
	build := exec.Command("go", append(args, c.Package)...)
	build.Dir = filepath.Join(b.source, p.Module)
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if p.Static {
		build.Env = append(build.Env, "CGO_ENABLED=0")
	}
	return run(build)
}

// timed prints label, and how long do took once it is done.
func (b *Builder) timed(label string, do func() error) error {
	fmt.Fprintf(b.out, "%-60s", label)
	start := time.Now()
	err := do()
	word := "s"
	if err != nil {
		word = "s, FAILED"
	}
	fmt.Fprintf(b.out, " %6.1f %s\n", time.Since(start).Seconds(), word)
	return err
}

func (b *Builder) find(name string) (Part, error) {
	for _, p := range Parts() {
		if p.Name == name {
			return p, nil
		}
	}
	return Part{}, fmt.Errorf("there is no part %q", name)
}

func (b *Builder) dir(p Part) (string, error) {
	key, err := b.key(p)
	return filepath.Join(b.cache, "parts", p.Name+"-"+key), err
}

// link points the assets folder at the binaries of a part.
func (b *Builder) link(p Part, dir string) error {
	if err := os.MkdirAll(b.Assets(), 0o755); err != nil {
		return err
	}
	for _, c := range p.Commands {
		if err := relink(filepath.Join(dir, c.Binary), filepath.Join(b.Assets(), c.Binary)); err != nil {
			return err
		}
	}
	if p.Name == CRDs {
		return b.writeCRDs(filepath.Join(dir, "kubevirt-manifests"))
	}
	if p.Name == CSI {
		return errors.Join(
			b.linkCRDs("snapshot", "tools/control", snapshotClient, "*snapshot.storage*.yaml"),
			b.linkCRDs("metadata", "tools/metadata", metadataClient, "*.yaml"))
	}
	return nil
}

func relink(target, name string) error {
	if have, err := os.Readlink(name); err == nil && have == target {
		return nil
	}
	scratch := fmt.Sprintf("%s.%d", name, os.Getpid())
	if err := os.Symlink(target, scratch); err != nil {
		return err
	}
	return os.Rename(scratch, name)
}

// ModuleDir is the folder of a module that a tools module requires, downloaded if need be.
func (b *Builder) ModuleDir(tools, module string) (string, error) {
	version := exec.Command("go", "list", "-m", "-f", "{{.Path}}@{{.Version}}", module)
	version.Dir = filepath.Join(b.source, tools)
	version.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	name, err := output(version)
	if err != nil {
		return "", err
	}
	fetch := exec.Command("go", "mod", "download", name)
	fetch.Dir, fetch.Env = version.Dir, version.Env
	if err := run(fetch); err != nil {
		return "", err
	}
	where := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	where.Dir, where.Env = version.Dir, version.Env
	return output(where)
}

func binaryOf(command string) string { return filepath.Base(command) }

func run(c *exec.Cmd) error {
	_, err := output(c)
	return err
}

// output runs c and returns what it printed. An error holds the end of what it said.
func output(c *exec.Cmd) (string, error) {
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		text := strings.TrimSpace(said.String() + string(out))
		if len(text) > 4000 {
			text = "…" + text[len(text)-4000:]
		}
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(c.Args, " "), err, text)
	}
	return strings.TrimSpace(string(out)), nil
}
