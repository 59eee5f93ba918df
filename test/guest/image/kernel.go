package image

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmstate/vmstate/test/guest/tool"
)

const metaPackage = "linux-image-cloud-amd64"

// guestModules are what the guest needs beyond what is built in: its disk, its
// agent port, and the EFI variables.
var guestModules = []string{"virtio_pci", "virtio_blk", "virtio_console", "efivarfs"}

// kernel is an unpacked kernel: its image, and modules in loading order.
type kernel struct {
	path    string
	modules []module
}

// module is one .ko file, its debug information stripped.
type module struct{ name, path string }

// fetchKernel returns the newest cloud kernel that the package lists name, from
// the cache if it is there.
func fetchKernel(ctx context.Context, o Options) (kernel, error) {
	deb, pkg, err := resolveKernel(ctx)
	if err != nil {
		return kernel{}, err
	}
	cache, err := cacheDir()
	if err != nil {
		return kernel{}, err
	}
	dir := filepath.Join(cache, strings.TrimSuffix(deb, ".deb"))
	if _, err := os.Stat(filepath.Join(dir, "order")); err == nil {
		o.say("kernel: %s (cached)", deb)
		return readKernel(dir)
	}
	o.say("kernel: download %s", deb)
	work, err := os.MkdirTemp(cache, "unpack-")
	if err != nil {
		return kernel{}, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := unpackKernel(ctx, work, pkg); err != nil {
		return kernel{}, err
	}
	if err := os.Rename(filepath.Join(work, "kernel"), dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return kernel{}, err
	}
	return readKernel(dir)
}

func cacheDir() (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(user, "vmstate", "guest")
	return dir, os.MkdirAll(dir, 0o755)
}

// resolveKernel names the .deb file and the package behind the meta package.
func resolveKernel(ctx context.Context) (deb, pkg string, err error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", "--important", metaPackage).Output()
	if err != nil {
		return "", "", fmt.Errorf("apt-cache depends %s: %w (apt-get update fetches the package lists)", metaPackage, err)
	}
	for line := range strings.Lines(string(out)) {
		if d, ok := strings.CutPrefix(strings.TrimSpace(line), "Depends: "); ok {
			pkg = d
		}
	}
	if pkg == "" {
		return "", "", fmt.Errorf("package %s names no kernel", metaPackage)
	}
	out, err = exec.CommandContext(ctx, "apt-get", "download", "--print-uris", pkg).Output()
	if err != nil {
		return "", "", fmt.Errorf("apt-get download --print-uris %s: %w", pkg, err)
	}
	fields := strings.Fields(string(out)) // 'URI' FILE SIZE HASH
	if len(fields) < 2 || !strings.HasSuffix(fields[1], ".deb") {
		return "", "", fmt.Errorf("apt-get names no file for %s: %q", pkg, out)
	}
	return fields[1], pkg, nil
}

// unpackKernel downloads pkg and leaves in dir/kernel what a guest needs of it.
func unpackKernel(ctx context.Context, dir, pkg string) error {
	download := exec.CommandContext(ctx, "apt-get", "-o", "APT::Sandbox::User=root", "download", "-q", pkg)
	download.Dir = dir
	if err := tool.Run(download); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(debs) != 1 {
		return fmt.Errorf("downloaded %d files, want 1: %w", len(debs), err)
	}
	root := filepath.Join(dir, "root")
	if err := run(ctx, "dpkg-deb", "-x", debs[0], root); err != nil {
		return err
	}
	images, err := filepath.Glob(filepath.Join(root, "boot/vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return fmt.Errorf("package holds %d kernels, want 1: %w", len(images), err)
	}
	order, paths, err := moduleOrder(filepath.Join(root, "lib/modules"), guestModules)
	if err != nil {
		return err
	}
	out := filepath.Join(dir, "kernel")
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	if err := os.Rename(images[0], filepath.Join(out, "vmlinuz")); err != nil {
		return err
	}
	for _, name := range order {
		if err := run(ctx, "objcopy", "--strip-debug", paths[name], filepath.Join(out, name+".ko")); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(out, "order"), []byte(strings.Join(order, "\n")+"\n"), 0o644)
}

func readKernel(dir string) (kernel, error) {
	order, err := os.ReadFile(filepath.Join(dir, "order"))
	if err != nil {
		return kernel{}, err
	}
	k := kernel{path: filepath.Join(dir, "vmlinuz")}
	for _, name := range strings.Fields(string(order)) {
		k.modules = append(k.modules, module{name, filepath.Join(dir, name+".ko")})
	}
	return k, nil
}

// moduleOrder finds the wanted modules and what they depend on, dependencies
// first. The Debian package has no modules.dep, but every module names its own.
func moduleOrder(root string, wanted []string) (order []string, paths map[string]string, err error) {
	paths = map[string]string{}
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(p), ".ko"); ok && err == nil && !d.IsDir() {
			paths[normalName(name)] = p
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	var visit func(name string) error
	visit = func(name string) error {
		if slices.Contains(order, name) {
			return nil
		}
		path, ok := paths[name]
		if !ok {
			return fmt.Errorf("no module %s.ko (compressed modules are not supported)", name)
		}
		deps, err := moduleDepends(path)
		if err != nil {
			return err
		}
		for _, d := range deps {
			if err := visit(d); err != nil {
				return err
			}
		}
		order = append(order, name)
		return nil
	}
	for _, name := range wanted {
		if err := visit(name); err != nil {
			return nil, nil, err
		}
	}
	return order, paths, nil
}

func normalName(name string) string { return strings.ReplaceAll(name, "-", "_") }

func moduleDepends(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("module %s: no .modinfo", path)
	}
	info, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", path, err)
	}
	return parseDepends(info), nil
}

// parseDepends reads the depends= entry of a .modinfo section: NUL-separated
// key=value pairs.
func parseDepends(info []byte) []string {
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		list, ok := strings.CutPrefix(string(entry), "depends=")
		if !ok || list == "" {
			continue
		}
		var names []string
		for name := range strings.SplitSeq(list, ",") {
			names = append(names, normalName(name))
		}
		return names
	}
	return nil
}
