package story

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
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
    env: [{name: PATH, value: "/bin:/usr/bin:/"}] # an image of one static file has it at its root
    volumeDevices: [{name: disk, devicePath: /dev/disk}]
  volumes: [{name: disk, persistentVolumeClaim: {claimName: %s}}]
`, ns, loader, claim)); err != nil {
		return err
	}
	if _, err := e.K(ctx, "-n", ns, "wait", "--for=condition=Ready", "pod/load-disk", "--timeout=180s"); err != nil {
		return fmt.Errorf("the pod that writes the guest's disk does not start: %w: %s", err, e.events(ctx, ns, "load-disk"))
	}
	if err := e.writeDisk(ctx, ns, image); err != nil {
		return err
	}
	_, err := e.K(ctx, "-n", ns, "delete", "pod", "load-disk", "--grace-period=0", "--force", "--wait")
	return err
}

// writeDisk sends the image through kubectl exec and compares what arrived: a program that is run by exec without
// a shell around it was seen to be told of the end of its input too early (kubectl and containerd of Kubernetes 1.37).
func (e *Env) writeDisk(ctx context.Context, ns, image string) error {
	content, err := os.ReadFile(image)
	if err != nil {
		return err
	}
	script := fmt.Sprintf("busybox cat > /dev/disk && busybox sync && busybox head -c %d /dev/disk | busybox sha256sum", len(content))
	out, err := e.Run(ctx, content, e.Kubectl, "-n", ns, "exec", "-i", "load-disk", "--", "busybox", "sh", "-c", script)
	if err != nil {
		return err
	}
	if want := fmt.Sprintf("%x", sha256.Sum256(content)); !strings.HasPrefix(string(out), want) {
		return fmt.Errorf("the guest's disk did not arrive whole through kubectl exec: SHA-256 %.64s, want %s; run it again", out, want)
	}
	return nil
}

// events are what the cluster says of an object, for the message of a wait that failed.
func (e *Env) events(ctx context.Context, ns, name string) string {
	out, err := e.K(ctx, "-n", ns, "get", "events", "--field-selector=type=Warning,involvedObject.name="+name, "-o=jsonpath={range .items[*]}{.message}; {end}")
	if err != nil {
		return err.Error()
	}
	return string(out)
}
