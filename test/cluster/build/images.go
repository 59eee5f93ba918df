package build

import (
	"path/filepath"

	"github.com/vmstate/vmstate/test/cluster/ociimage"
)

// Names of the images that the cluster brings along.
const (
	// BoxImage is the static test tool: the sandbox image, and what fills and reads volumes.
	BoxImage = "localhost/vmstate-test/box:1"
	// KubeVirtRegistry and KubeVirtVersion make the names of KubeVirt's images.
	KubeVirtRegistry = "localhost/kubevirt"
)

// KubeVirtArchive is the file of the part Images.
const KubeVirtArchive = "kubevirt.tar"

// kubeVirtUsers are KubeVirt's images and the users that its manifests expect them to run as.
var kubeVirtUsers = []struct{ name, user string }{
	{"virt-operator", "1001"}, {"virt-api", "1001"}, {"virt-controller", "1001"}, {"virt-exportproxy", "1001"},
	{"virt-handler", "0"}, {"virt-launcher", "107"},
}

// makeImages writes KubeVirt's images: all have the same two layers, so that they are unpacked once.
func makeImages(b *Builder, dir string) error {
	rootfs, err := b.Path(Rootfs, "rootfs.tar")
	if err != nil {
		return err
	}
	archive := ociimage.Archive{Tars: []string{rootfs}}
	for _, command := range kubeVirtCommands {
		name := binaryOf(command)
		source, err := b.Path(KubeVirt, name)
		if err != nil {
			return err
		}
		file := ociimage.File{Source: source, Path: "/usr/bin/" + name}
		if name == "virt-launcher-monitor" {
			file.Capability = ociimage.NetBindService
		}
		archive.Files = append(archive.Files, file)
	}
	for _, image := range kubeVirtUsers {
		name := KubeVirtRegistry + "/" + image.name + ":" + KubeVirtVersion
		archive.Images = append(archive.Images, ociimage.Image{Name: name, User: image.user})
	}
	return archive.Write(filepath.Join(dir, KubeVirtArchive))
}
