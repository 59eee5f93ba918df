package story

import (
	"context"
	"fmt"
	"time"
)

// StateFolder is where the node has mounted the volume with the firmware state of a running
// virtual machine (kubelet's folder of the virt-launcher pod).
func (r *Runner) StateFolder(ctx context.Context, ns, vm string) (string, error) {
	pod, err := r.K(ctx, "-n", ns, "get", "pods", "-l", "vm.kubevirt.io/name="+vm, "--field-selector=status.phase=Running", "-o", "jsonpath={.items[0].metadata.uid}")
	if err != nil {
		return "", err
	}
	volume, err := r.K(ctx, "-n", ns, "get", "pvc", "-l", "persistent-state-for="+vm, "-o", "jsonpath={.items[0].spec.volumeName}")
	return fmt.Sprintf("/var/lib/kubelet/pods/%s/volumes/kubernetes.io~csi/%s/mount", pod, volume), err
}

// SnapshotToFile takes a snapshot of a claim and writes what it holds to a file; the snapshot is removed again.
func (r *Runner) SnapshotToFile(ctx context.Context, ns, claim, name, file string) error {
	if err := r.Apply(ctx, fmt.Sprintf(`apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: %s, namespace: %s}
spec: {source: {persistentVolumeClaimName: %s}}
`, name, ns, claim)); err != nil {
		return err
	}
	err := Until(ctx, time.Minute, 100*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		out, err := r.K(ctx, "-n", ns, "get", "volumesnapshot", name, "-o", "jsonpath={.status.readyToUse}")
		return out == "true", out, err
	})
	if err != nil {
		return err
	}
	if _, err := r.Run(ctx, nil, r.Cluster, "read-snapshot", ns, name, file); err != nil {
		return err
	}
	_, err = r.K(ctx, "-n", ns, "delete", "volumesnapshot", name, "--wait=false")
	return err
}
