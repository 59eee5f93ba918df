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

// SnapshotToFile takes a snapshot of a claim in Block mode and writes what it holds to a file; what it makes is removed again.
func (r *Runner) SnapshotToFile(ctx context.Context, ns, claim, name, file string) error {
	if err := r.Apply(ctx, fmt.Sprintf(`apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: %s, namespace: %s}
spec: {source: {persistentVolumeClaimName: %s}}
`, name, ns, claim)); err != nil {
		return err
	}
	size := ""
	err := Until(ctx, time.Minute, 100*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		out, err := r.K(ctx, "-n", ns, "get", "volumesnapshot", name, "-o", "jsonpath={.status.readyToUse} {.status.restoreSize}")
		var ready string
		if _, scanned := fmt.Sscan(out, &ready, &size); scanned != nil {
			return false, out, err
		}
		return ready == "true", out, err
	})
	if err != nil {
		return err
	}
	if err := r.Apply(ctx, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  accessModes: [ReadWriteOnce]
  volumeMode: Block
  resources: {requests: {storage: %[3]s}}
  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: %[1]s}
`, name, ns, size)); err != nil {
		return err
	}
	if _, err := r.Run(ctx, nil, r.Cluster, "read-disk", ns, name, file); err != nil {
		return err
	}
	_, err = r.K(ctx, "-n", ns, "delete", "pvc/"+name, "volumesnapshot/"+name, "--wait=false")
	return err
}
