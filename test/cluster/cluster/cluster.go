// Package cluster brings a real one-node Kubernetes up and down: control plane, node, CSI with snapshots, an S3 server
// and KubeVirt with software emulation, every part the real one, in the namespaces of package node.
//
// It comes in levels, each with all of the one before:
//
//	ControlPlane  etcd, API server, controller manager
//	CSI           scheduler, containerd, kubelet, kube-proxy, the CSI driver three times over, snapshots and
//	              their metadata, S3
//	KubeVirt      KubeVirt by its own operator
package cluster

import (
	"embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"github.com/vmstate/vmstate/test/cluster/build"
	"github.com/vmstate/vmstate/test/cluster/node"
)

// Level is how much of a cluster there is.
type Level int

// The levels.
const (
	None Level = iota
	ControlPlane
	CSI
	KubeVirt
)

var levelNames = map[Level]string{None: "none", ControlPlane: "control-plane", CSI: "csi", KubeVirt: "kubevirt"}

func (l Level) String() string { return levelNames[l] }

// ParseLevel reads the name of a level.
func ParseLevel(name string) (Level, error) {
	for level, n := range levelNames {
		if n == name {
			return level, nil
		}
	}
	return None, fmt.Errorf("there is no level %q", name)
}

// Parts lists the parts that a level needs built.
func (l Level) Parts() []string {
	parts := []string{build.ControlPlane}
	if l >= CSI {
		parts = append(parts, build.CSI, build.Metadata, build.Node, build.Runtime, build.S3, build.Driver)
	}
	if l >= KubeVirt {
		parts = append(parts, build.CRDs, build.KubeVirt, build.Rootfs, build.Images)
	}
	return parts
}

//go:embed manifests
var manifests embed.FS

// Cluster is one cluster in one folder.
type Cluster struct {
	dir     node.Dir
	builder *build.Builder
	program string // executable that calls node.Hook
	out     io.Writer
}

// New makes no cluster yet. program is the executable to run as the node's init, and must call node.Hook.
func New(dir string, builder *build.Builder, program string, out io.Writer) *Cluster {
	return &Cluster{dir: node.Dir(dir), builder: builder, program: program, out: out}
}

// Up brings the cluster to a level, from whatever is there: a crashed or stopped one is removed first, a running one
// goes on from its own level.
func (c *Cluster) Up(level Level) error {
	start := time.Now()
	have := c.Level()
	if have == None {
		if err := c.Down(); err != nil {
			return fmt.Errorf("clean up: %w", err)
		}
	}
	for _, s := range stages() {
		if s.level <= have || s.level > level {
			continue
		}
		if err := s.do(c); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(c.out, "%7.1f s  %s\n", time.Since(start).Seconds(), s.name)
		if s.last {
			if err := os.WriteFile(c.dir.Path("level"), []byte(s.level.String()), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// Level is the level that a running cluster has reached.
func (c *Cluster) Level() Level {
	if c.dir.PID() == 0 {
		return None
	}
	raw, err := os.ReadFile(c.dir.Path("level"))
	if err != nil {
		return None
	}
	level, err := ParseLevel(string(raw))
	if err != nil {
		return None
	}
	return level
}

// Down ends the cluster and removes its folder and everything that it left on the host.
func (c *Cluster) Down() error {
	if err := node.Clean(c.dir); err != nil {
		return err
	}
	return os.RemoveAll(string(c.dir))
}

// Dir is the cluster's folder.
func (c *Cluster) Dir() node.Dir { return c.dir }

// binary is the path of a built command.
func (c *Cluster) binary(name string) string { return filepath.Join(c.builder.Assets(), name) }

// render writes a file of the folder manifests, with its blanks filled, to a path and returns the path.
func (c *Cluster) render(name string, path ...string) (string, error) {
	parsed, err := template.ParseFS(manifests, "manifests/"+name)
	if err != nil {
		return "", err
	}
	target := c.dir.Path(path...)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return "", err
	}
	out, err := os.Create(target)
	if err != nil {
		return "", err
	}
	defer out.Close()
	return target, parsed.Execute(out, map[string]string{
		"State": string(c.dir), "Registry": build.KubeVirtRegistry, "Version": build.KubeVirtVersion,
	})
}
