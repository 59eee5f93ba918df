package story

import (
	"context"
	"fmt"
	"os"
)

// loaderImage has the programs sleep and dd; VMSTATE_DEMO_LOADER_IMAGE names another one.
const loaderImage = "docker.io/library/busybox:1.37"

// loadDisk writes a raw image into an unused claim in Block mode: by test/cluster where the cluster is
// its own, and otherwise through a pod.
func (e *Env) loadDisk(ctx context.Context, ns, claim, image string) error {
	if !e.foreign {
		_, err := e.Run(ctx, nil, e.Cluster, "load-disk", ns, claim, image)
		return err
	}
	loader := os.Getenv("VMSTATE_DEMO_LOADER_IMAGE")
	if loader == "" {
		loader = loaderImage
	}
	if err := e.Apply(ctx, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: load-disk, namespace: %s}
spec:
  containers:
  - name: load
    image: %s
    command: [busybox, sleep, "3600"]
    volumeDevices: [{name: disk, devicePath: /dev/disk}]
  volumes: [{name: disk, persistentVolumeClaim: {claimName: %s}}]
`, ns, loader, claim)); err != nil {
		return err
	}
	if _, err := e.K(ctx, "-n", ns, "wait", "--for=condition=Ready", "pod/load-disk", "--timeout=180s"); err != nil {
		return err
	}
	content, err := os.ReadFile(image)
	if err != nil {
		return err
	}
	if _, err := e.Run(ctx, content, e.Kubectl, "-n", ns, "exec", "-i", "load-disk", "--", "busybox", "dd", "of=/dev/disk", "bs=1M", "conv=fsync"); err != nil {
		return err
	}
	_, err = e.K(ctx, "-n", ns, "delete", "pod", "load-disk", "--grace-period=0", "--force", "--wait")
	return err
}
