package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vmstate/vmstate/test/cluster/node"
	"github.com/vmstate/vmstate/test/cluster/ociimage"
)

// ctr runs containerd's own client inside the node, where Kubernetes' images are.
func (c *Cluster) ctr(args ...string) error {
	cmd := node.Command(c.dir, c.program, append([]string{c.binary("ctr"), "--namespace=k8s.io"}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// LoadImage makes an image of single files, each put into the root under its own name, and gives it to the node under
// every one of the names. The first file is the entry point. A name that is there already moves to the new image.
func (c *Cluster) LoadImage(names, files []string) error {
	archive := ociimage.Archive{}
	for _, f := range files {
		archive.Files = append(archive.Files, ociimage.File{Source: f, Path: "/" + filepath.Base(f)})
	}
	for _, name := range names {
		archive.Images = append(archive.Images, ociimage.Image{Name: name, Entrypoint: []string{"/" + filepath.Base(files[0])}})
	}
	return c.importArchive(archive)
}

func (c *Cluster) importArchive(archive ociimage.Archive) error {
	scratch, err := os.CreateTemp(string(c.dir), "image-*.tar")
	if err != nil {
		return err
	}
	defer os.Remove(scratch.Name())
	if err := scratch.Close(); err != nil {
		return err
	}
	if err := archive.Write(scratch.Name()); err != nil {
		return err
	}
	return c.ctr("images", "import", scratch.Name())
}

// kubeVirtManifests is what virt-operator needs before it starts, as KubeVirt's own packages define it.
func (c *Cluster) kubeVirtManifests(namespace string) ([]byte, error) {
	out, err := exec.Command(c.binary("kubevirt-manifests"), "operator", namespace).Output()
	if err != nil {
		return nil, fmt.Errorf("make KubeVirt's manifests: %w", err)
	}
	return out, nil
}
