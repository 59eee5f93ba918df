package cluster

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/vmstate/vmstate/test/cluster/build"
	"github.com/vmstate/vmstate/test/cluster/node"
)

const (
	diskPath   = "/disk"     // where the pod sees a Block volume
	volumePath = "/volume"   // where it sees a Filesystem volume
	diskFile   = "/disk.img" // KubeVirt's name for the disk in a Filesystem volume
	userQEMU   = 107
)

// LoadDisk writes a raw image into a claim, as KubeVirt expects it: to the device of a Block volume, else to disk.img.
// Zeros are not written, so a Block volume must hold zeros.
func (c *Cluster) LoadDisk(namespace, claim string, image io.Reader) error {
	return c.withVolume(namespace, claim, func(pod, path string) error {
		return c.stream(image, nil, "-n", namespace, "exec", "-i", pod, "--", "/box", "write", path)
	})
}

// ReadDisk writes the raw content of a claim's disk to out.
func (c *Cluster) ReadDisk(namespace, claim string, out io.Writer) error {
	return c.withVolume(namespace, claim, func(pod, path string) error {
		return c.stream(nil, out, "-n", namespace, "exec", pod, "--", "/box", "read", path)
	})
}

// ReadSnapshot writes what a VolumeSnapshot of one of the test drivers holds to out: straight from the driver's
// folder, where the image lies from the instant of the cut on.
func (c *Cluster) ReadSnapshot(namespace, name string, out io.Writer) error {
	content, err := c.kubectl("-n", namespace, "get", "volumesnapshot", name, "-o", "jsonpath={.status.boundVolumeSnapshotContentName}")
	if err != nil {
		return err
	}
	found, err := c.kubectl("get", "volumesnapshotcontent", content, "-o", "jsonpath={.spec.driver} {.status.snapshotHandle}")
	if err != nil {
		return err
	}
	driver, handle, ok := strings.Cut(found, " ")
	if !ok || handle == "" {
		return fmt.Errorf("snapshot %s/%s has no handle yet", namespace, name)
	}
	cmd := node.Command(c.dir, c.program, "cat", c.dir.Path("store", driver, "snapshots", handle, diskFile))
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = out, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("read snapshot %s/%s: %w: %s", namespace, name, err, strings.TrimSpace(said.String()))
	}
	return nil
}

func (c *Cluster) stream(in io.Reader, out io.Writer, args ...string) error {
	cmd := exec.Command(c.binary("kubectl"), append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...)...)
	var said strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return nil
}

// withVolume runs a pod that has the claim for as long as do takes.
func (c *Cluster) withVolume(namespace, claim string, do func(pod, path string) error) error {
	mode, err := c.kubectl("-n", namespace, "get", "pvc", claim, "-o", "jsonpath={.spec.volumeMode}")
	if err != nil {
		return err
	}
	pod, path := fmt.Sprintf("box-%d-%d", os.Getpid(), time.Now().UnixMilli()), volumePath+diskFile
	if mode == "Block" {
		path = diskPath
	}
	manifest, err := json.Marshal(boxPod(pod, claim, mode == "Block"))
	if err != nil {
		return err
	}
	// A new namespace takes no pod before it has its service account.
	if err := until(10*time.Second, "a pod", func() (bool, error) {
		_, err := c.kubectlInput(manifest, "-n", namespace, "create", "-f", "-")
		return err == nil, err
	}); err != nil {
		return err
	}
	defer func() {
		// The claim is free only when the pod is gone; a pod that stays is seen by whoever wants the claim.
		_, _ = c.kubectl("-n", namespace, "delete", "pod", pod, "--grace-period=1", "--wait=true")
	}()
	if _, err := c.kubectl("-n", namespace, "wait", "--for=condition=Ready", "--timeout=120s", "pod/"+pod); err != nil {
		return err
	}
	return do(pod, path)
}

// boxPod is a pod that waits with a claim, as the user of KubeVirt's guests and within the restricted pod security
// standard.
func boxPod(name, claim string, block bool) map[string]any {
	container := map[string]any{
		"name": "box", "image": build.BoxImage, "imagePullPolicy": "Never",
		"securityContext": map[string]any{"allowPrivilegeEscalation": false, "capabilities": map[string]any{"drop": []string{"ALL"}}},
	}
	if block {
		container["volumeDevices"] = []any{map[string]any{"name": "v", "devicePath": diskPath}}
	} else {
		container["volumeMounts"] = []any{map[string]any{"name": "v", "mountPath": volumePath}}
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"automountServiceAccountToken": false,
			"containers":                   []any{container},
			"volumes":                      []any{map[string]any{"name": "v", "persistentVolumeClaim": map[string]any{"claimName": claim}}},
			"securityContext": map[string]any{
				"runAsNonRoot": true, "runAsUser": userQEMU, "runAsGroup": userQEMU, "fsGroup": userQEMU,
				"seccompProfile": map[string]any{"type": "RuntimeDefault"},
			},
		},
	}
}
