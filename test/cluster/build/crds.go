package build

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	snapshotClient = "github.com/kubernetes-csi/external-snapshotter/client/v8"
	metadataClient = "github.com/kubernetes-csi/external-snapshot-metadata/client"
	// CRDFolder is the folder, inside the assets, of custom resource definitions.
	CRDFolder = "crds"
)

// writeCRDs puts KubeVirt's custom resource definitions into assets/crds/kubevirt.
func (b *Builder) writeCRDs(generator string) error {
	return b.fillCRDs("kubevirt", generator, func(dir string) error {
		return run(exec.Command(generator, "crds", dir))
	})
}

// linkCRDs puts definitions, as a module ships them, into a folder of assets/crds: those of snapshots and group
// snapshots, and that of snapshot metadata services.
func (b *Builder) linkCRDs(folder, tools, client, pattern string) error {
	module, err := b.ModuleDir(tools, client)
	if err != nil {
		return err
	}
	from := filepath.Join(module, "config", "crd")
	return b.fillCRDs(folder, from, func(dir string) error {
		names, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := copyFile(name, filepath.Join(dir, filepath.Base(name)), 0o644); err != nil {
				return err
			}
		}
		return nil
	})
}

// fillCRDs fills one folder of definitions unless it was filled from the same origin before.
func (b *Builder) fillCRDs(name, origin string, fill func(dir string) error) error {
	dir := filepath.Join(b.Assets(), CRDFolder, name)
	marker := filepath.Join(b.Assets(), CRDFolder, "."+name)
	if have, err := os.ReadFile(marker); err == nil && string(have) == origin {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := fill(dir); err != nil {
		return fmt.Errorf("write definitions of %s: %w", name, err)
	}
	return os.WriteFile(marker, []byte(origin), 0o644)
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if closing := out.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("copy %q: %w", from, err)
	}
	return os.Chmod(to, mode)
}
