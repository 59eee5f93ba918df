// Package build makes every real part of the test cluster and keeps it in the user's cache folder.
//
// A part is a set of commands built from one Go module, or a file made by one recipe. It is kept under a name that holds a hash
// of what it was made from (module files, own source, flags, compiler), so a fresh clone of the same sources
// finds it, and a changed pin makes a new one:
//
//	~/.cache/vmstate/parts/control-plane-1f0c…/kube-apiserver
//
// The newest parts are linked from ~/.cache/vmstate/assets, which can be used as KUBEBUILDER_ASSETS.
package build

import (
	"fmt"
	"slices"
)

// Versions of the parts, where a version is needed as text. They must agree with the go.mod files below tools.
const (
	KubernetesVersion = "v1.37.2"
	KubeVirtVersion   = "v1.9.0"
	containerdVersion = "2.4.2"
)

// Names of the parts, which are what build's --only takes.
const (
	ControlPlane = "control-plane"
	CSI          = "csi"
	Metadata     = "metadata"
	Node         = "node"
	S3           = "s3"
	Runtime      = "runtime"
	CRDs         = "crds"
	KubeVirt     = "kubevirt"
	Driver       = "driver"
	Rootfs       = "rootfs"
	Images       = "images"
)

// Command is one main package and the file name of its binary.
type Command struct {
	Package, Binary string
}

// Part is what is built, kept and hashed together.
type Part struct {
	Name string
	// Module is the folder of the Go module, relative to test/cluster.
	Module string
	// Sources are files and folders, relative to test/cluster, that the part is made from besides go.mod and go.sum.
	Sources  []string
	Commands []Command
	Tags     string
	LDFlags  string
	// Static builds without cgo, for binaries that run in an empty image.
	Static bool
	// Needs names the parts whose results this one is made from.
	Needs []string
	// Recipe makes a part that is not a Go command; dir is where its files go.
	Recipe func(b *Builder, dir string) error
}

const strip = "-s -w"

// Parts lists every part, in the order in which they are best built: what other tests need comes first.
func Parts() []Part {
	return append(kubernetesParts(), kubeVirtParts()...)
}

func kubernetesParts() []Part {
	const (
		component  = "k8s.io/component-base/version."
		kubernetes = strip + " -X " + component + "gitVersion=" + KubernetesVersion + " -X " + component + "gitMajor=1 -X " + component + "gitMinor=37"
		cmd        = "k8s.io/kubernetes/cmd/"
		snapshot   = "github.com/kubernetes-csi/external-snapshotter/v8/cmd/"
		containerd = "github.com/containerd/containerd/v2/"
	)
	control := []string{"tools/control/tools.go"}
	return []Part{
		{Name: ControlPlane, Module: "tools/control", Sources: control, LDFlags: kubernetes, Commands: []Command{
			{"go.etcd.io/etcd/server/v3", "etcd"},
			{cmd + "kube-apiserver", "kube-apiserver"},
			{cmd + "kube-controller-manager", "kube-controller-manager"},
			{cmd + "kubectl", "kubectl"},
		}},
		{Name: CSI, Module: "tools/control", Sources: control, LDFlags: kubernetes, Commands: []Command{
			{snapshot + "snapshot-controller", "snapshot-controller"},
			{snapshot + "csi-snapshotter", "csi-snapshotter"},
			{"github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner", "csi-provisioner"},
		}},
		{Name: Node, Module: "tools/control", Sources: control, LDFlags: kubernetes, Commands: []Command{
			{cmd + "kube-scheduler", "kube-scheduler"},
			{cmd + "kubelet", "kubelet"},
			{cmd + "kube-proxy", "kube-proxy"},
		}},
		{Name: Runtime, Module: "tools/containerd", Sources: []string{"tools/containerd/tools.go"},
			Tags: "no_btrfs no_devmapper no_zfs", LDFlags: strip + " -X " + containerd + "version.Version=" + containerdVersion,
			Commands: []Command{
				{containerd + "cmd/containerd", "containerd"},
				{containerd + "cmd/containerd-shim-runc-v2", "containerd-shim-runc-v2"},
				{containerd + "cmd/ctr", "ctr"},
			}},
		{Name: Metadata, Module: "tools/metadata", Sources: []string{"tools/metadata/tools.go"}, LDFlags: kubernetes, Commands: []Command{
			{"github.com/kubernetes-csi/external-snapshot-metadata/cmd/csi-snapshot-metadata", "csi-snapshot-metadata"},
		}},
		{Name: S3, Module: "tools/s3", Sources: []string{"tools/s3/tools.go"}, LDFlags: strip, Commands: []Command{
			{"github.com/versity/versitygw/cmd/versitygw", "versitygw"},
		}},
		{Name: Driver, Module: ".", Sources: []string{"csireflink", "cmd/csi-reflink", "cmd/box"}, LDFlags: strip, Static: true, Commands: []Command{
			{"./cmd/csi-reflink", "csi-reflink"},
			{"./cmd/box", "box"},
		}},
	}
}

func kubeVirtParts() []Part {
	const version = "kubevirt.io/client-go/version."
	part := Part{
		Name: KubeVirt, Module: "tools/kubevirt", Sources: []string{"tools/kubevirt/tools.go", "tools/kubevirt/standin"},
		LDFlags: strip + " -X " + version + "gitVersion=" + KubeVirtVersion + " -X " + version + "gitCommit=none -X " + version + "gitTreeState=clean",
	}
	for _, name := range kubeVirtCommands {
		part.Commands = append(part.Commands, Command{"kubevirt.io/kubevirt/cmd/" + name, binaryOf(name)})
	}
	return []Part{
		// KubeVirt's definitions alone, for suites that need no KubeVirt to run.
		{Name: CRDs, Module: part.Module, Sources: []string{"tools/kubevirt/manifests", "tools/kubevirt/standin"}, LDFlags: part.LDFlags,
			Commands: []Command{{"./manifests", "kubevirt-manifests"}}},
		part,
		{Name: Rootfs, Module: "tools/kubevirt", Sources: []string{"build/rootfs.go"}, Recipe: makeRootfs},
		{Name: Images, Module: "tools/kubevirt", Sources: []string{"build/images.go", "ociimage"}, Needs: []string{KubeVirt, Rootfs}, Recipe: makeImages},
	}
}

// kubeVirtCommands are packages below kubevirt.io/kubevirt/cmd. virt-operator comes first: it brings most of what the others share.
var kubeVirtCommands = []string{
	"virt-operator", "virt-controller", "virt-api", "virt-handler", "virt-chroot", "virt-exportproxy",
	"virt-launcher", "virt-launcher-monitor", "virt-launcher/libvirt-hook-client", "virt-freezer", "virt-probe", "virt-tail",
}

// Select returns the parts with one of the names, in building order, together with the parts they need. No name or "all" selects
// every part.
func Select(names ...string) ([]Part, error) {
	all := Parts()
	if len(names) == 0 || slices.Contains(names, "all") {
		return all, nil
	}
	wanted := map[string]bool{}
	for _, name := range names {
		i := slices.IndexFunc(all, func(p Part) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no part %q", name)
		}
		wanted[name] = true
		for _, need := range all[i].Needs {
			wanted[need] = true
		}
	}
	return slices.DeleteFunc(all, func(p Part) bool { return !wanted[p.Name] }), nil
}
