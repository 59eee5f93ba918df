package cluster

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vmstate/vmstate/test/cluster/build"
	"github.com/vmstate/vmstate/test/cluster/node"
)

func TestMain(m *testing.M) {
	if handled, err := node.Hook(os.Args[1:]); handled {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runningCluster is the cluster that runs on this machine; without one there is nothing to test.
func runningCluster(t *testing.T) *Cluster {
	t.Helper()
	cache, err := build.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := os.Getenv("VMSTATE_CLUSTER_DIR")
	if dir == "" {
		dir = filepath.Join(cache, "cluster")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := New(dir, build.New(cache, io.Discard), program, io.Discard)
	if c.Level() < CSI {
		t.Skip("no cluster with storage runs: cluster up --level csi")
	}
	return c
}

// TestReachedFromHost looks at the running cluster from where tests are: the host.
func TestReachedFromHost(t *testing.T) {
	c := runningCluster(t)
	kubernetes, err := trusting(c.pki("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	for what, url := range map[string]string{
		"API server at the node":    apiServer + "/readyz",
		"API server by its service": "https://" + serviceAPI + "/readyz",
	} {
		if err := until(10*time.Second, what, func() (bool, error) { return healthy(kubernetes, url) }); err != nil {
			t.Error(err)
		}
	}
	s3, err := trusting(c.S3CA())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := s3.Get(S3Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
}

// TestDiskComesBack writes an image into a claim of each mode and reads it back, also from a clone of a snapshot.
func TestDiskComesBack(t *testing.T) {
	c := runningCluster(t)
	namespace := fmt.Sprintf("smoke-%d", time.Now().UnixMilli())
	kubectl(t, c, nil, "create", "namespace", namespace)
	defer kubectl(t, c, nil, "delete", "namespace", namespace, "--wait=false")
	for _, mode := range []string{"Block", "Filesystem"} {
		t.Run(mode, func(t *testing.T) {
			name := map[string]string{"Block": "block", "Filesystem": "files"}[mode]
			image := make([]byte, 8<<20)
			_, _ = rand.Read(image[2<<20 : 3<<20]) // never fails
			apply(t, c, namespace, claim(name, mode, ""))
			if err := c.LoadDisk(namespace, name, bytes.NewReader(image)); err != nil {
				t.Fatal(err)
			}
			apply(t, c, namespace, fmt.Sprintf(`apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: %s}
spec: {volumeSnapshotClassName: reflink, source: {persistentVolumeClaimName: %s}}
`, name, name))
			kubectl(t, c, nil, "-n", namespace, "wait", "--for=jsonpath={.status.readyToUse}=true", "--timeout=60s", "volumesnapshot/"+name)
			apply(t, c, namespace, claim(name+"-clone", mode, "dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: "+name+"}"))
			var back bytes.Buffer
			if err := c.ReadDisk(namespace, name+"-clone", &back); err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(back.Bytes(), image) {
				t.Errorf("the clone's %d bytes do not begin with the image", back.Len())
			}
		})
	}
}

func claim(name, mode, source string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec:
  accessModes: [ReadWriteOnce]
  volumeMode: %s
  resources: {requests: {storage: 32Mi}}
  %s
`, name, mode, source)
}

func apply(t *testing.T, c *Cluster, namespace, manifest string) {
	t.Helper()
	kubectl(t, c, []byte(manifest), "-n", namespace, "apply", "-f", "-")
}

func kubectl(t *testing.T, c *Cluster, input []byte, args ...string) {
	t.Helper()
	if _, err := c.kubectlInput(input, args...); err != nil {
		t.Fatal(err)
	}
}
